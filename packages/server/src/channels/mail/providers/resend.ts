import type { MailSource } from '../../../domain/ports/channel.ts';
import { at, isObject, listAt, needText, objectAt, readJsonBody, textAt, textsAt } from '../../body.ts';
import { bearer, getCall, jsonCall, readJson, segment } from '../../call.ts';
import { emptyAnswer, event, plainName } from '../../event.ts';
import { secretsOf } from '../../signing.ts';
import { apiOf } from '../../specs.ts';
import { standardHeaders, verifyStandard } from '../../standard-webhooks.ts';
import { mailEvent } from '../mail-event.ts';
import type { MailFetcher, MailReceiver, MailSender } from '../provider.ts';

/** The webhook tells of a mail; its text and files are behind the API (resend.com/docs, "Receiving emails"). */
export const resendReceiver: MailReceiver = {
  needs: ['webhookSecret', 'apiKey'],
  verify: (request, setup, nowMs) =>
    verifyStandard(request, secretsOf(setup.credentials['webhookSecret'], setup.previousSecret), nowMs),
  parse(request) {
    const body = readJsonBody(request);
    const type = plainName(textAt(body, 'type'));
    const deliveryKey = standardHeaders(request)?.id ?? '';
    if (type !== 'email.received') {
      const ignore = type === 'email.bounced' || type === 'email.complained' ? 'bounce' : 'not_a_message';
      const kind = type.startsWith('email.') ? type : 'email.event';
      return { answer: emptyAnswer, events: [event({ kind, deliveryKey, ignore })] };
    }
    const emailId = needText(body, 'data', 'email_id');
    const source: MailSource = {
      form: 'fetch',
      from: 'resend',
      what: { emailId },
      envelope: { from: null, to: textsAt(body, 'data', 'to') },
      verdicts: { spf: null, dkim: null, dmarc: null },
    };
    const messageId = textAt(body, 'data', 'message_id');
    return {
      answer: emptyAnswer,
      events: [mailEvent({ deliveryKey, messageId: messageId ?? emailId, source })],
    };
  },
};

export const resendFetcher: MailFetcher = {
  call: (what, setup) =>
    getCall(
      `${apiOf(setup, 'https://api.resend.com')}/emails/receiving/${segment(what['emailId'] ?? '')}`,
      bearer(setup.credentials['apiKey']),
    ),
  read(reply, source) {
    const value = readJson(reply);
    const headers = Object.entries(objectAt(value, 'headers')).map(([name, text]): [string, string] => [
      name,
      String(text as string),
    ]);
    const given = (name: string, path: string) => {
      const text = at(value, path);
      if (headers.some(([key]) => key.toLowerCase() === name) || typeof text !== 'string') return;
      headers.push([name, text]);
    };
    given('from', 'from');
    given('subject', 'subject');
    given('message-id', 'message_id');
    return {
      form: 'fields',
      envelope: source.envelope,
      verdicts: source.verdicts,
      fields: {
        headers,
        text: textAt(value, 'text'),
        html: textAt(value, 'html'),
        stripped: null,
        attachments: listAt(value, 'attachments')
          .filter(isObject)
          .flatMap((file) => {
            const url = textAt(file, 'download_url');
            if (url === null || !url.startsWith('https://')) return [];
            return {
              name: textAt(file, 'filename') ?? 'file',
              mediaType: textAt(file, 'content_type') ?? 'application/octet-stream',
              // The link is signed; it takes no credentials.
              content: { at: 'call' as const, call: getCall(url, { accept: '*/*' }) },
            };
          }),
      },
    };
  },
};

export const resendSender: MailSender = {
  needs: ['apiKey'],
  idPath: ['id'],
  send(mail, answer, setup) {
    const body = {
      from: mail.from,
      to: [mail.to],
      subject: mail.subject,
      text: mail.text,
      headers: Object.fromEntries(mail.headers),
    };
    const headers = { ...bearer(setup.credentials['apiKey']), 'idempotency-key': `berth-${answer.outboxId}` };
    const call = jsonCall('POST', `${apiOf(setup, 'https://api.resend.com')}/emails`, body, headers);
    return { call, repeat: 'same', lookup: null, mark: answer.outboxId };
  },
};
