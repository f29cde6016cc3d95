import { createPublicKey, verify as verifySignature } from 'node:crypto';
import type { ChannelSetup, InboundRequest, MailSource, Verdict } from '../../../domain/ports/channel.ts';
import { decode } from '../../body.ts';
import { bearer, jsonCall } from '../../call.ts';
import { parsedDocument } from '../../documents.ts';
import { objectAt, textAt, textsAt } from '../../body.ts';
import { emptyAnswer } from '../../event.ts';
import { forged, genuine, readSeconds, sha256, staleness } from '../../signing.ts';
import { apiOf } from '../../specs.ts';
import { bareAddress } from '../addresses.ts';
import { verifyBasicAuth } from '../basic-auth.ts';
import { headerOf } from '../loops.ts';
import { mailEvent } from '../mail-event.ts';
import { readMultipart, type FormPart } from '../multipart.ts';
import { unfoldHeaders } from '../headers.ts';
import type { MailReceiver, MailSender } from '../provider.ts';

/** A public key of SendGrid's security policy is a P-256 key in DER, in base64. */
const keyHead = 'MFkwEwYHKoZIzj0';

/** twilio.com/docs/sendgrid, "Inbound Parse webhook". Signed by a security policy, or with a password in the URL. */
export const sendgridReceiver: MailReceiver = {
  needs: ['webhookSecret'],
  verify(request, setup, nowMs) {
    const isSigned = (setup.credentials['webhookSecret'] ?? '').startsWith(keyHead);
    return isSigned ? verifySigned(request, setup, nowMs) : verifyBasicAuth(request, setup);
  },
  parse(request) {
    const parts = readMultipart(request);
    const source = readSource(parts);
    const id = source.form === 'fields' ? headerOf(source.fields.headers, 'message-id') : messageIdIn(source);
    // SendGrid sends no id of its own, and that of the mail is for its sender to choose.
    const deliveryKey = `mail:${sha256(...parts.map((part) => part.bytes)).toString('hex')}`;
    const to = source.envelope.to.join(',');
    return {
      answer: emptyAnswer,
      events: [mailEvent({ deliveryKey: `${deliveryKey}:${to}`, messageId: id, source })],
    };
  },
};

function verifySigned(request: InboundRequest, setup: ChannelSetup, nowMs: number): Verdict {
  const signature = request.headers.get('x-twilio-email-event-webhook-signature');
  const timestamp = request.headers.get('x-twilio-email-event-webhook-timestamp');
  if (!signature || !timestamp) {
    return forged(
      'signature_missing',
      'The headers X-Twilio-Email-Event-Webhook-Signature and -Timestamp are needed.',
    );
  }
  // SendGrid retries over days, so that a retry may carry an old time; the delivery key stops replays.
  const stale = staleness(readSeconds(timestamp), nowMs, 4 * 24 * 3_600);
  if (stale) return stale;
  const signed = Buffer.concat([Buffer.from(timestamp), request.body]);
  const keys = [setup.credentials['webhookSecret'], setup.previousSecret];
  const isGenuine = keys.some((key) => key?.startsWith(keyHead) && isSignedWith(key, signed, signature));
  return isGenuine ? genuine : forged('signature_wrong', 'The signature does not fit; check the public key.');
}

function isSignedWith(key: string, signed: Buffer, signature: string): boolean {
  try {
    const publicKey = createPublicKey({ key: Buffer.from(key, 'base64'), format: 'der', type: 'spki' });
    return verifySignature('sha256', signed, publicKey, Buffer.from(signature, 'base64'));
  } catch {
    return false;
  }
}

/** Each field may be in a charset of its own, which the field `charsets` names. */
function readSource(parts: FormPart[]): MailSource {
  const bytes = new Map(
    parts.filter((part) => part.fileName === null).map((part) => [part.name, part.bytes]),
  );
  const plain = (name: string) => (bytes.has(name) ? decode(bytes.get(name)!, null) : null);
  const charsets = objectAt({ charsets: parsedDocument(plain('charsets') ?? '{}') }, 'charsets');
  const field = (name: string) => {
    const found = bytes.get(name);
    return found === undefined ? null : decodeLeniently(found, textAt(charsets, name));
  };
  const told = parsedDocument(plain('envelope') ?? '{}');
  const envelope = { from: textAt(told, 'from'), to: textsAt(told, 'to') };
  const verdicts = {
    spf: plain('SPF')?.toLowerCase() ?? null,
    dkim: plain('dkim')?.includes(': pass') ? 'pass' : (plain('dkim') ?? null),
    dmarc: null,
  };
  const raw = bytes.get('email');
  if (raw) return { form: 'mime', raw, envelope, verdicts };
  const headers = unfoldHeaders(field('headers') ?? '');
  if (headerOf(headers, 'from') === null) headers.push(['From', field('from') ?? '']);
  if (headerOf(headers, 'subject') === null) headers.push(['Subject', field('subject') ?? '']);
  return {
    form: 'fields',
    envelope,
    verdicts,
    fields: {
      headers,
      text: field('text'),
      html: field('html'),
      stripped: null,
      attachments: parts
        .filter((part) => part.fileName !== null)
        .map((part) => ({
          name: part.fileName ?? 'file',
          mediaType: part.mediaType,
          content: { at: 'inline', bytes: part.bytes },
        })),
    },
  };
}

/** A charset that nobody knows is no reason to lose the mail. */
function decodeLeniently(bytes: Buffer, charset: string | null): string {
  try {
    return decode(bytes, charset);
  } catch {
    return decode(bytes, null);
  }
}

function messageIdIn(source: MailSource): string | null {
  if (source.form !== 'mime') return null;
  const head =
    source.raw
      .subarray(0, 64 * 1024)
      .toString('latin1')
      .split(/\r?\n\r?\n/, 1)[0] ?? '';
  return headerOf(unfoldHeaders(head), 'message-id');
}

export const sendgridSender: MailSender = {
  needs: ['apiKey'],
  idPath: [],
  send(mail, answer, setup) {
    const body = {
      personalizations: [{ to: [{ email: mail.to }], custom_args: { berth: answer.outboxId } }],
      from: { email: bareAddress(mail.from) },
      subject: mail.subject,
      content: [{ type: 'text/plain', value: mail.text }],
      headers: Object.fromEntries(mail.headers),
    };
    const call = jsonCall(
      'POST',
      `${apiOf(setup, 'https://api.sendgrid.com')}/v3/mail/send`,
      body,
      bearer(setup.credentials['apiKey']),
    );
    return { call, repeat: 'again', lookup: null, mark: answer.outboxId };
  },
};
