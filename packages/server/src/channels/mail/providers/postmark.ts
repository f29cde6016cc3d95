import type { MailSource } from '../../../domain/ports/channel.ts';
import { isObject, listAt, needText, readJsonBody, textAt, type Json } from '../../body.ts';
import { getCall, jsonCall } from '../../call.ts';
import { emptyAnswer, event } from '../../event.ts';
import { apiOf } from '../../specs.ts';
import { verifyBasicAuth } from '../basic-auth.ts';
import { headerOf } from '../loops.ts';
import { mailEvent } from '../mail-event.ts';
import type { MailReceiver, MailSender } from '../provider.ts';

/** postmarkapp.com/developer, "Parse an email". */
export const postmarkReceiver: MailReceiver = {
  needs: ['webhookSecret'],
  verify: (request, setup) => verifyBasicAuth(request, setup),
  parse(request) {
    const body = readJsonBody(request);
    const record = textAt(body, 'RecordType');
    const id = needText(body, 'MessageID');
    if (record !== null && record !== 'Inbound') {
      const isBounce = record === 'Bounce' || record === 'SpamComplaint';
      const found = event({
        kind: isBounce ? 'email.bounced' : 'email.event',
        deliveryKey: `${record}:${id}`,
        ignore: isBounce ? 'bounce' : 'not_a_message',
      });
      return { answer: emptyAnswer, events: [found] };
    }
    const source = readSource(body);
    const messageId = source.form === 'fields' ? headerOf(source.fields.headers, 'message-id') : null;
    return { answer: emptyAnswer, events: [mailEvent({ deliveryKey: id, messageId, source })] };
  },
};

function readSource(body: Json): MailSource {
  const headers = listAt(body, 'Headers')
    .filter(isObject)
    .map((item): [string, string] => [textAt(item, 'Name') ?? '', textAt(item, 'Value') ?? '']);
  headers.push(
    ['From', textAt(body, 'From') ?? ''],
    ['Subject', textAt(body, 'Subject') ?? ''],
    ['Date', textAt(body, 'Date') ?? ''],
  );
  const attachments = listAt(body, 'Attachments')
    .filter(isObject)
    .map((file) => ({
      name: textAt(file, 'Name') ?? 'file',
      mediaType: textAt(file, 'ContentType') ?? 'application/octet-stream',
      content: { at: 'inline' as const, bytes: Buffer.from(textAt(file, 'Content') ?? '', 'base64') },
    }));
  const spf = /^(\w+)/.exec(headerOf(headers, 'received-spf') ?? '')?.[1] ?? null;
  return {
    form: 'fields',
    envelope: { from: null, to: [textAt(body, 'OriginalRecipient') ?? textAt(body, 'To') ?? ''] },
    verdicts: { spf: spf?.toLowerCase() ?? null, dkim: null, dmarc: null },
    fields: {
      headers,
      text: textAt(body, 'TextBody') || null,
      html: textAt(body, 'HtmlBody') || null,
      stripped: textAt(body, 'StrippedTextReply') || null,
      attachments,
    },
  };
}

export const postmarkSender: MailSender = {
  needs: ['apiKey'],
  idPath: ['MessageID'],
  send(mail, answer, setup) {
    const api = apiOf(setup, 'https://api.postmarkapp.com');
    const headers = { 'x-postmark-server-token': setup.credentials['apiKey'] ?? '' };
    const body = {
      From: mail.from,
      To: mail.to,
      Subject: mail.subject,
      TextBody: mail.text,
      Headers: mail.headers.map(([Name, Value]) => ({ Name, Value })),
      Metadata: { berth: answer.outboxId },
      MessageStream: 'outbound',
    };
    const lookup = getCall(
      `${api}/messages/outbound?count=1&offset=0&metadata_berth=${answer.outboxId}`,
      headers,
    );
    return {
      call: jsonCall('POST', `${api}/email`, body, headers),
      repeat: 'again',
      lookup,
      mark: '"MessageID"',
    };
  },
};
