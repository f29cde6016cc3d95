import { invalid } from '../../domain/errors.ts';
import type { ChannelKind, ChannelSetup } from '../../domain/ports/channel.ts';
import { readStatus } from '../call.ts';
import { optional, requiredSetting, setting, textOf } from '../specs.ts';
import { bareAddress } from './addresses.ts';
import type { MailReceiver, MailSender } from './provider.ts';
import { mailgunReceiver, mailgunSender } from './providers/mailgun.ts';
import { mimeReceiver } from './providers/mime.ts';
import { postmarkReceiver, postmarkSender } from './providers/postmark.ts';
import { resendReceiver, resendSender } from './providers/resend.ts';
import { sendgridReceiver, sendgridSender } from './providers/sendgrid.ts';
import { sesReceiver, sesSender } from './providers/ses.ts';
import { smtpReceiver } from './providers/smtp.ts';
import { outgoingMail } from './reply.ts';

const receivers: Record<string, MailReceiver> = {
  resend: resendReceiver,
  postmark: postmarkReceiver,
  mailgun: mailgunReceiver,
  sendgrid: sendgridReceiver,
  ses: sesReceiver,
  mime: mimeReceiver,
  smtp: smtpReceiver,
};
const senders: Record<string, MailSender> = {
  resend: resendSender,
  postmark: postmarkSender,
  mailgun: mailgunSender,
  sendgrid: sendgridSender,
  ses: sesSender,
};

/** With which credentials a provider is asked for mail that it only announced. */
const fetches: Record<string, readonly string[]> = {
  resend: resendSender.needs,
  ses: sesSender.needs,
};

/** Mail to an address, over whichever service takes it in. Its text is read after the answer (`completeMail`). */
export const email: ChannelKind = {
  name: 'email',
  bodyBytes: 40 * 1024 * 1024,
  methods: ['POST'],
  // 429: some mail servers bounce a message to its sender at the first 5xx.
  whenBusy: 429,
  lane: () => 'ordinary',
  paceMs: 0,
  credentials: [
    optional(
      'webhookSecret',
      'What proves deliveries: the signing secret (Resend), the signing key (Mailgun), the public key or password (SendGrid), the password (Postmark), the secret or token (mime).',
    ),
    optional('apiKey', 'The API key of Resend, Mailgun or SendGrid, or the server token of Postmark.'),
    optional('accessKeyId', 'Of an AWS user that may ses:SendEmail and, for large mail, s3:GetObject.'),
    optional('secretAccessKey', 'Of the same AWS user.'),
  ],
  settings: [
    requiredSetting('provider', Object.keys(receivers), 'Who takes the mail in.'),
    requiredSetting('address', 'text', 'The address that people write to.'),
    setting('sender', Object.keys(senders), 'Who sends answers; left out, the provider.'),
    setting(
      'from',
      'text',
      'The sender of answers, when it is another than address, as Name <agent@example.com>.',
    ),
    setting('allowedSenders', 'texts', 'Addresses, or @domain, to take mail from; none given: all.'),
    setting('requireDmarcPass', 'flag', 'Whether mail is ignored whose domain does not vouch for it.', false),
    setting(
      'authenticationServer',
      'text',
      'The name in Authentication-Results headers that the provider itself writes.',
    ),
    setting('maxAnswersPerHour', 'count', 'Answers in one conversation in an hour at most.', 6),
    setting(
      'maxAnswersPerSender',
      'count',
      'Answers to one address in an hour at most, in whatever conversations: a machine that answers each with a mail of its own stops here.',
      30,
    ),
    setting('topicArn', 'text', 'The SNS topic; needed with ses.'),
    setting('region', 'text', 'The AWS region.', 'us-east-1'),
    setting('domain', 'text', 'The sending domain at Mailgun, when it is another than that of the sender.'),
  ],
  signing: (settings) => {
    const provider = textOf(settings, 'provider');
    if (provider === 'ses' || provider === 'smtp') return null;
    const isGiven = provider === 'resend' || provider === 'mailgun';
    return { credential: 'webhookSecret', made: isGiven ? 'given' : provider === 'mime' ? 'whsec' : 'token' };
  },
  sentTo,
  check,
  verify: (request, setup, nowMs, documents) => receiverOf(setup).verify(request, setup, nowMs, documents),
  parse: (request, setup) => receiverOf(setup).parse(request, setup),
  reply(answer, setup, nowMs) {
    const sender = senderOf(setup);
    if (sender === null || answer.replyTo['to'] === '' || answer.text.trim() === '') return [];
    return [sender.send(outgoingMail(answer, setup), answer, setup, nowMs)];
  },
  readReply(reply) {
    const found = [['id'], ['MessageID'], ['MessageId']].map((path) => readStatus(reply, path));
    return found.find((outcome) => outcome.outcome === 'sent' && outcome.externalId !== null) ?? found[0]!;
  },
  stream: null,
};

function receiverOf(setup: Pick<ChannelSetup, 'settings'>): MailReceiver {
  const receiver = receivers[textOf(setup.settings, 'provider') ?? ''];
  if (!receiver) throw invalid('settings.provider', `must be one of ${Object.keys(receivers).join(', ')}.`);
  return receiver;
}

function senderOf(setup: Pick<ChannelSetup, 'settings'>): MailSender | null {
  return senders[textOf(setup.settings, 'sender') ?? textOf(setup.settings, 'provider') ?? ''] ?? null;
}

/** To the service that sends answers, and to the one that is asked for mail which it only announced. */
function sentTo(
  credential: string,
  { settings, apiBaseUrl }: Pick<ChannelSetup, 'settings' | 'apiBaseUrl'>,
): string | null {
  const provider = textOf(settings, 'provider') ?? '';
  const sender = textOf(settings, 'sender') ?? provider;
  const names = [
    ...(senders[sender]?.needs.includes(credential) ? [sender] : []),
    ...(fetches[provider]?.includes(credential) && provider !== sender ? [provider] : []),
  ];
  if (names.length === 0) return null;
  return apiBaseUrl === null ? names.sort().join(' and ') : new URL(apiBaseUrl).origin;
}

function check({ settings, credentials }: Pick<ChannelSetup, 'settings' | 'credentials'>): void {
  const receiver = receiverOf({ settings });
  if (bareAddress(textOf(settings, 'address') ?? '') === '') {
    throw invalid('settings.address', 'must be a mail address, as agent@example.com.');
  }
  if (textOf(settings, 'provider') === 'smtp' && !isBare(textOf(settings, 'address')!)) {
    throw invalid('settings.address', 'must be a bare address without a plus, as agent@example.com.');
  }
  // It becomes part of a host name.
  if (!/^[a-z0-9-]{1,40}$/.test(textOf(settings, 'region') ?? 'us-east-1')) {
    throw invalid('settings.region', 'must be the name of an AWS region, as eu-west-1.');
  }
  const from = textOf(settings, 'from');
  if (from !== null && (bareAddress(from) === '' || /[\r\n]/.test(from))) {
    throw invalid('settings.from', 'must be a mail address, with or without a name before it.');
  }
  if (textOf(settings, 'provider') === 'ses' && textOf(settings, 'topicArn') === null) {
    throw invalid('settings.topicArn', 'is needed with ses.');
  }
  for (const name of [...receiver.needs, ...(senderOf({ settings })?.needs ?? [])]) {
    if (!credentials[name]) throw invalid(`credentials.${name}`, 'is needed with this provider.');
  }
}

const isBare = (address: string) => bareAddress(address) === address.toLowerCase() && !address.includes('+');
