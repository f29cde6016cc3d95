import type { ChannelSetup, InboundRequest, MailSource, Verdict } from '../../../domain/ports/channel.ts';
import { parsedDocument } from '../../documents.ts';
import { invalid } from '../../../domain/errors.ts';
import { decode, mediaType, parseForm } from '../../body.ts';
import { basic, formCall, getCall, segment } from '../../call.ts';
import { emptyAnswer } from '../../event.ts';
import { forged, genuine, readSeconds, secretsOf, signedInHex, staleness } from '../../signing.ts';
import { apiOf, textOf } from '../../specs.ts';
import { headerOf } from '../loops.ts';
import { mailEvent } from '../mail-event.ts';
import { readMultipart, type FormPart } from '../multipart.ts';
import type { MailReceiver, MailSender } from '../provider.ts';

/**
 * The signature covers no body, so the token, which is the delivery key and is remembered for longer than the window,
 * is what stops a captured one from vouching for another text. Mailgun retries over eight hours, and does not say
 * whether it signs each attempt anew.
 */
const windowSeconds = 24 * 3_600;

/** documentation.mailgun.com, "Receive, forward and store messages" and "Securing webhooks". */
export const mailgunReceiver: MailReceiver = {
  needs: ['webhookSecret'],
  verify: verifyMailgun,
  parse(request) {
    const { fields, files } = readFields(request);
    const token = fields.get('token');
    if (!token) throw invalid('token', 'is missing in the form.');
    const source = readSource(fields, files);
    const id =
      fields.get('Message-Id') ??
      (source.form === 'fields' ? headerOf(source.fields.headers, 'message-id') : null);
    return { answer: emptyAnswer, events: [mailEvent({ deliveryKey: token, messageId: id, source })] };
  },
};

function verifyMailgun(request: InboundRequest, setup: ChannelSetup, nowMs: number): Verdict {
  const { fields } = readFields(request);
  const [timestamp, token, signature] = ['timestamp', 'token', 'signature'].map(
    (name) => fields.get(name) ?? '',
  );
  if (!timestamp || !token || !signature) {
    return forged('signature_missing', 'The fields timestamp, token and signature are needed.');
  }
  const stale = staleness(readSeconds(timestamp), nowMs, windowSeconds);
  if (stale) return stale;
  const secrets = secretsOf(setup.credentials['webhookSecret'], setup.previousSecret);
  return signedInHex(secrets, signature, timestamp + token)
    ? genuine
    : forged('signature_wrong', 'The signature does not fit; check the HTTP webhook signing key.');
}

function readFields(request: InboundRequest): { fields: URLSearchParams; files: FormPart[] } {
  const { type, charset } = mediaType(request);
  if (type === 'application/x-www-form-urlencoded') {
    return { fields: parseForm(decode(request.body, charset)), files: [] };
  }
  const fields = new URLSearchParams();
  const files: FormPart[] = [];
  for (const part of readMultipart(request)) {
    if (part.fileName === null) fields.append(part.name, decode(part.bytes, null));
    else files.push(part);
  }
  return { fields, files };
}

function readSource(fields: URLSearchParams, files: FormPart[]): MailSource {
  const envelope = { from: fields.get('sender'), to: (fields.get('recipient') ?? '').split(',') };
  const headers = readHeaders(fields.get('message-headers'));
  const verdicts = {
    spf: lower(headerOf(headers, 'x-mailgun-spf')),
    dkim: lower(headerOf(headers, 'x-mailgun-dkim-check-result')),
    dmarc: null,
  };
  const mime = fields.get('body-mime');
  if (mime !== null) return { form: 'mime', raw: Buffer.from(mime), envelope, verdicts };
  if (headers.length === 0)
    headers.push(['From', fields.get('from') ?? ''], ['Subject', fields.get('subject') ?? '']);
  return {
    form: 'fields',
    envelope,
    verdicts,
    fields: {
      headers,
      text: fields.get('body-plain'),
      html: fields.get('body-html'),
      stripped: fields.get('stripped-text') || null,
      attachments: files.map((file) => ({
        name: file.fileName ?? 'file',
        mediaType: file.mediaType,
        content: { at: 'inline', bytes: file.bytes },
      })),
    },
  };
}

const lower = (text: string | null) => text?.toLowerCase() ?? null;

/** A JSON list of pairs. */
function readHeaders(text: string | null): [string, string][] {
  const list = parsedDocument(text ?? '[]');
  if (!Array.isArray(list)) return [];
  try {
    return list
      .filter((pair): pair is [unknown, unknown] => Array.isArray(pair) && pair.length === 2)
      .map(([name, value]) => [String(name), String(value)]);
  } catch {
    // What is nested deep is no text.
    return [];
  }
}

export const mailgunSender: MailSender = {
  needs: ['apiKey'],
  idPath: ['id'],
  send(mail, answer, setup) {
    const domain = segment(
      textOf(setup.settings, 'domain') ?? mail.from.slice(mail.from.lastIndexOf('@') + 1).replace('>', ''),
    );
    const api = `${apiOf(setup, 'https://api.mailgun.net')}/v3/${domain}`;
    const auth = basic('api', setup.credentials['apiKey'] ?? '');
    const fields: [string, string][] = [
      ['from', mail.from],
      ['to', mail.to],
      ['subject', mail.subject],
      ['text', mail.text],
      ...mail.headers.map(([name, value]): [string, string] => [`h:${name}`, value]),
    ];
    const id = mail.messageId.replace(/^<|>$/g, '');
    const lookup = getCall(`${api}/events?message-id=${encodeURIComponent(id)}&limit=1`, auth);
    return { call: formCall(`${api}/messages`, fields, auth), repeat: 'again', lookup, mark: id };
  },
};
