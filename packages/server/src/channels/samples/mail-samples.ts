import type { ChannelSetup } from '../../domain/ports/channel.ts';
import type { Sample, SampleInput } from '../../domain/ports/channel-sample.ts';
import { basic } from '../call.ts';
import { bareAddress } from '../mail/addresses.ts';
import { hmac } from '../signing.ts';
import { signStandard } from '../standard-webhooks.ts';
import { listOf, textOf } from '../specs.ts';
import {
  hexOf,
  post,
  secretOf,
  signedSample,
  unixSeconds,
  unsignedSample,
  type SampleKind,
} from './sample.ts';

interface SampleMail {
  from: string;
  to: string;
  messageId: string;
  subject: string;
  text: string;
}

/** A mail in the form in which the channel's provider delivers it. */
export const mailSamples: SampleKind = {
  names: () => ['email.received'],
  make(input, setup) {
    const provider = textOf(setup.settings, 'provider') ?? '';
    return makers[provider]!(mailOf(input, setup), input, setup);
  },
};

function mailOf(input: SampleInput, setup: ChannelSetup): SampleMail {
  const allowed = listOf(setup.settings, 'allowedSenders')[0];
  return {
    from: allowed === undefined || allowed.startsWith('@') ? `sample${allowed ?? '@example.com'}` : allowed,
    to: bareAddress(textOf(setup.settings, 'address') ?? ''),
    messageId: `<sample.${input.id}@example.com>`,
    subject: 'Sample',
    text: input.text,
  };
}

/** The verdict of the server that the channel trusts, for one that asks for it. */
function verdictOf(setup: ChannelSetup): string[] {
  const server = textOf(setup.settings, 'authenticationServer');
  return server === null ? [] : [`Authentication-Results: ${server}; dmarc=pass`];
}

const headersOf = (mail: SampleMail, setup: ChannelSetup): string[] => [
  `From: Sample <${mail.from}>`,
  `To: ${mail.to}`,
  `Subject: ${mail.subject}`,
  `Message-ID: ${mail.messageId}`,
  ...verdictOf(setup),
];

const mimeOf = (mail: SampleMail, setup: ChannelSetup): string =>
  [
    ...headersOf(mail, setup),
    'MIME-Version: 1.0',
    'Content-Type: text/plain; charset=utf-8',
    'Content-Transfer-Encoding: base64',
    '',
    Buffer.from(mail.text)
      .toString('base64')
      .replace(/(.{76})/g, '$1\r\n'),
    '',
  ].join('\r\n');

const pairsOf = (mail: SampleMail, setup: ChannelSetup): [string, string][] =>
  headersOf(mail, setup).map((line) => {
    const colon = line.indexOf(':');
    return [line.slice(0, colon), line.slice(colon + 2)];
  });

type Maker = (mail: SampleMail, input: SampleInput, setup: ChannelSetup) => Sample;

const standard = (input: SampleInput, setup: ChannelSetup, body: string) =>
  signStandard(`msg_${input.id}`, Math.floor(input.nowMs / 1_000), body, secretOf(setup, 'webhookSecret'));

const password = (setup: ChannelSetup) => basic('berth', secretOf(setup, 'webhookSecret'));

const makers: Record<string, Maker> = {
  mime(mail, input, setup) {
    const body = mimeOf(mail, setup);
    const secret = secretOf(setup, 'webhookSecret');
    const proof = secret.startsWith('whsec_')
      ? standard(input, setup, body)
      : { authorization: `Bearer ${secret}` };
    const envelope = { 'x-envelope-from': mail.from, 'x-envelope-to': mail.to };
    return signedSample(post(input, 'message/rfc822', body, { ...envelope, ...proof }));
  },

  resend(mail, input, setup) {
    const { from, to, subject, text, messageId } = mail;
    const data = { email_id: input.id, from, to: [to], subject, message_id: messageId };
    const body = JSON.stringify({ type: 'email.received', data });
    const proof = Object.fromEntries(
      Object.entries(standard(input, setup, body)).map(([name, value]) => [
        name.replace('webhook-', 'svix-'),
        value,
      ]),
    );
    const headers = Object.fromEntries(
      pairsOf(mail, setup).map(([name, value]) => [name.toLowerCase(), value]),
    );
    const fetched = JSON.stringify({
      from,
      to: [to],
      subject,
      text,
      html: null,
      headers,
      message_id: messageId,
    });
    return { ...signedSample(post(input, 'application/json', body, proof)), fetched };
  },

  postmark(mail, input, setup) {
    const body = JSON.stringify({
      MessageID: input.id,
      From: mail.from,
      OriginalRecipient: mail.to,
      Subject: mail.subject,
      TextBody: mail.text,
      Headers: pairsOf(mail, setup).map(([Name, Value]) => ({ Name, Value })),
    });
    return signedSample(post(input, 'application/json', body, password(setup)));
  },

  mailgun(mail, input, setup) {
    const timestamp = unixSeconds(input);
    const token = hexOf(input);
    const body = new URLSearchParams({
      timestamp,
      token,
      signature: hmac('sha256', secretOf(setup, 'webhookSecret'), timestamp + token).toString('hex'),
      sender: mail.from,
      recipient: mail.to,
      'Message-Id': mail.messageId,
      'message-headers': JSON.stringify(pairsOf(mail, setup)),
      'body-plain': mail.text,
    }).toString();
    return signedSample(post(input, 'application/x-www-form-urlencoded', body, {}));
  },

  sendgrid(mail, input, setup) {
    const boundary = `sample${input.id}`;
    const fields = {
      headers: headersOf(mail, setup).join('\n'),
      from: mail.from,
      to: mail.to,
      subject: mail.subject,
      text: mail.text,
      envelope: JSON.stringify({ to: [mail.to], from: mail.from }),
      charsets: JSON.stringify({ to: 'UTF-8', from: 'UTF-8', subject: 'UTF-8', text: 'utf-8' }),
    };
    const parts = Object.entries(fields).map(
      ([name, value]) =>
        `--${boundary}\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`,
    );
    const body = `${parts.join('')}--${boundary}--\r\n`;
    const request = post(input, `multipart/form-data; boundary=${boundary}`, body, password(setup));
    // A public key: SendGrid alone has the private one.
    const isKey = secretOf(setup, 'webhookSecret').startsWith('MFkwEwYHKoZIzj0');
    return isKey ? unsignedSample(request) : signedSample(request);
  },

  ses(mail, input, setup) {
    const message = {
      notificationType: 'Received',
      mail: { messageId: input.id, source: mail.from, commonHeaders: { messageId: mail.messageId } },
      receipt: {
        recipients: [mail.to],
        dmarcVerdict: { status: 'PASS' },
        action: { type: 'SNS', encoding: 'BASE64' },
      },
      content: Buffer.from(mimeOf(mail, setup)).toString('base64'),
    };
    const body = JSON.stringify({
      Type: 'Notification',
      MessageId: input.id,
      TopicArn: textOf(setup.settings, 'topicArn'),
      Timestamp: new Date(input.nowMs).toISOString(),
      Message: JSON.stringify(message),
    });
    return unsignedSample(post(input, 'text/plain; charset=UTF-8', body, {}));
  },
};
