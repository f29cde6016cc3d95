import type {
  Answer,
  Attachment,
  CalledContent,
  ChannelKind,
  ChannelSetup,
  HttpCall,
  HttpReply,
  InboundRequest,
  ReplyStep,
} from '../../domain/ports/channel.ts';
import {
  formFields,
  isJsonType,
  listAt,
  mediaType,
  needText,
  readFormBody,
  readJsonBody,
  textAt,
  type Json,
} from '../body.ts';
import { basic, formCall, getCall, isBefore, readJson, readStatus, segment } from '../call.ts';
import { event, textAnswer, withoutEmpty } from '../event.ts';
import { forged, genuine, hmac, sameBytes, secretsOf, sha256 } from '../signing.ts';
import { splitText } from '../split.ts';
import { allows, apiOf, leadsTo, required, sentToApi, setting } from '../specs.ts';

const smsChars = 1_600;

/** SMS, MMS and WhatsApp through Twilio. */
export const twilio: ChannelKind = {
  name: 'twilio',
  bodyBytes: 1024 * 1024,
  methods: ['POST'],
  whenBusy: 503,
  lane: () => 'reserved',
  paceMs: 1_000,
  credentials: [
    required('accountSid', 'The SID of the account, AC….'),
    required(
      'authToken',
      'The primary auth token of the account: signs what Twilio sends, and sends answers.',
    ),
  ],
  settings: [
    setting('allowedSenders', 'texts', 'Numbers to take messages from, as +4915…; none given: all.'),
    setting(
      'publicUrl',
      'namedUrl',
      'The URL as entered at Twilio, when it is another than webhookUrl (a proxy).',
    ),
  ],
  signing: () => ({ credential: 'authToken', made: 'given' }),
  sentTo: sentToApi('accountSid', 'authToken'),
  check() {},
  verify(request, setup) {
    const signature = request.headers.get('x-twilio-signature');
    if (!signature) return forged('signature_missing', 'The header X-Twilio-Signature is needed.');
    const given = Buffer.from(signature, 'base64');
    const text = signedText(request, setup);
    if (text === null) return forged('signature_wrong', 'bodySHA256 in the URL is not the hash of the body.');
    const secrets = secretsOf(setup.credentials['authToken'], setup.previousSecret);
    // A newer setting of the account signs with SHA-256; the length says which it is.
    const algorithm = given.length === 32 ? 'sha256' : 'sha1';
    return secrets.some((secret) => sameBytes(hmac(algorithm, secret, text), given))
      ? genuine
      : forged(
          'signature_wrong',
          'X-Twilio-Signature does not fit; check the auth token and the URL at Twilio.',
        );
  },
  parse(request, setup) {
    const fields = isJsonType(mediaType(request).type)
      ? fieldsOf(readJsonBody(request))
      : readFormBody(request);
    // An empty document: the answer is sent later by the API.
    const answer = textAnswer('<?xml version="1.0" encoding="UTF-8"?><Response/>', 'text/xml; charset=utf-8');
    return { answer, events: [readMessage(fields, setup)] };
  },
  reply: replySteps,
  readReply: (reply) => readStatus(reply, ['sid']),
  nextLookup,
  stream: null,
};

/** What is neither a text nor a number is left out. */
function fieldsOf(body: Json): URLSearchParams {
  const fields = new URLSearchParams();
  for (const name of Object.keys(body)) {
    const text = textAt(body, name);
    if (text !== null) fields.set(name, text);
  }
  return fields;
}

/**
 * The URL, and after it each field's name and value, sorted by name (twilio.com/docs, "Validating requests"). A body
 * that is no form is covered by `bodySHA256` in the URL; null when that does not fit.
 */
function signedText(request: InboundRequest, setup: ChannelSetup): string | null {
  const query = new URL(request.url).search;
  const publicUrl = setup.settings['publicUrl'];
  const url =
    typeof publicUrl === 'string' && publicUrl !== '' ? publicUrl.split('?')[0] + query : request.url;
  if (mediaType(request).type !== 'application/x-www-form-urlencoded') {
    const bodyHash = new URL(request.url).searchParams.get('bodySHA256') ?? '';
    return sameBytes(sha256(request.body), Buffer.from(bodyHash, 'hex')) ? url : null;
  }
  const fields = formFields(request.body.toString('utf8'));
  const names = [...new Set(fields.keys())].sort();
  return (
    url +
    names
      .map((name) =>
        [...new Set(fields.getAll(name))]
          .sort()
          .map((value) => name + value)
          .join(''),
      )
      .join('')
  );
}

function readMessage(fields: URLSearchParams, setup: ChannelSetup) {
  const sid = needText({ MessageSid: fields.get('MessageSid') ?? fields.get('SmsSid') }, 'MessageSid');
  const from = fields.get('From') ?? '';
  const to = fields.get('To') ?? '';
  const status = fields.get('SmsStatus') ?? fields.get('MessageStatus') ?? 'received';
  const isReceived =
    fields.has('Body') || fields.has('NumMedia') ? status === 'received' || status === 'receiving' : false;
  const isOurs = (fields.get('AccountSid') ?? '') === setup.credentials['accountSid'];
  const isAllowed = allows(setup.settings, 'allowedSenders', from);
  return withoutEmpty(
    event({
      kind: isReceived ? 'twilio.message' : 'twilio.status',
      deliveryKey: isReceived ? sid : `${sid}:${status}`,
      messageKey: isReceived ? sid : null,
      conversationKey: `${to}:${from}`,
      text: fields.get('Body') ?? '',
      sender: { id: from, name: fields.get('ProfileName'), isBot: false },
      ignore: !isReceived
        ? 'not_a_message'
        : !isOurs
          ? 'not_addressed'
          : isAllowed
            ? null
            : 'sender_not_allowed',
      attachments: readMedia(fields, setup),
      replyTo: { to: from, from: to },
    }),
  );
}

function readMedia(fields: URLSearchParams, setup: ChannelSetup): Attachment[] {
  const count = Math.min(Number(fields.get('NumMedia') ?? 0) || 0, 10);
  return Array.from({ length: count }, (_, index) => index).flatMap((index) => {
    const url = fields.get(`MediaUrl${index}`);
    if (!leadsTo(url, ['api.twilio.com', '.api.twilio.com', 'mcs.us1.twilio.com'], setup)) return [];
    return {
      name: `media-${index + 1}`,
      mediaType: fields.get(`MediaContentType${index}`) ?? 'application/octet-stream',
      sizeBytes: null,
      content: {
        at: 'call',
        call: getCall(url, { ...account(setup), accept: '*/*' }),
        next: storedCall,
      },
    } satisfies Attachment;
  });
}

/** Twilio leads on to where the media are stored, by a link that needs no credentials and gets none. */
function storedCall(reply: HttpReply): CalledContent | null {
  const location = reply.headers.get('location') ?? '';
  const isLink = reply.status >= 301 && reply.status <= 308 && location.startsWith('https://');
  return isLink ? { at: 'call', call: getCall(location, { accept: '*/*' }), next: storedCall } : null;
}

const account = (setup: ChannelSetup) =>
  basic(setup.credentials['accountSid'] ?? '', setup.credentials['authToken'] ?? '');

function replySteps(answer: Answer, setup: ChannelSetup): ReplyStep[] {
  const { to, from } = answer.replyTo;
  const sid = segment(setup.credentials['accountSid'] ?? '');
  const url = `${apiOf(setup, 'https://api.twilio.com')}/2010-04-01/Accounts/${sid}/Messages.json`;
  const query = new URLSearchParams({ To: String(to), From: String(from), PageSize: '100' });
  return splitText(answer.text, smsChars).map((text, index) => ({
    call: formCall(
      url,
      [
        ['To', String(to)],
        ['From', String(from)],
        ['Body', text],
      ],
      account(setup),
    ),
    repeat: 'again',
    // A message takes no mark of ours, but its words and its time are enough between two numbers.
    lookup: getCall(`${url}?${query}`, account(setup)),
    mark: `${answer.outboxId}:${index}`,
    hasArrived: (reply, beganAt) => isAmong(reply, text, beganAt),
  }));
}

/** For clocks that differ. */
const slackMs = 30_000;
/** Carriers change quotation marks and spaces. */
const words = (text: string) => text.normalize('NFKC').replace(/[^\p{L}\p{N}]/gu, '');

function isAmong(reply: HttpReply, text: string, beganAt: Date): boolean {
  return listAt(readJson(reply), 'messages').some(
    (message) =>
      (textAt(message, 'direction') ?? '').startsWith('outbound') &&
      !['failed', 'undelivered', 'canceled'].includes(textAt(message, 'status') ?? '') &&
      Date.parse(textAt(message, 'date_created') ?? '') >= beganAt.getTime() - slackMs &&
      words(textAt(message, 'body') ?? '').endsWith(words(text)),
  );
}

/** twilio.com/docs, "Messages resource", paging: the newest come first. */
function nextLookup(asked: HttpCall, reply: HttpReply, beganAt: Date): HttpCall | null {
  const found = readJson(reply);
  const next = textAt(found, 'next_page_uri') ?? '';
  const oldest = textAt(listAt(found, 'messages').at(-1), 'date_created');
  const at = new URL(asked.url);
  const url = new URL(next, at);
  // The account's credentials go with it.
  return next !== '' && !isBefore(oldest, beganAt) && url.origin === at.origin
    ? { ...asked, url: url.href }
    : null;
}
