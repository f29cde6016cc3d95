import type {
  Answer,
  Attachment,
  CalledContent,
  ChannelKind,
  ChannelSetup,
  HttpReply,
  InboundEvent,
  InboundRequest,
  ReplyStep,
  SendOutcome,
} from '../../domain/ports/channel.ts';
import { invalid } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';
import { retryAfterMs } from '../../domain/retry-after.ts';
import { isObject, listAt, at, objectAt, readJsonBody, textAt, type Json } from '../body.ts';
import { bearer, getCall, jsonCall, readJson, readStatus, segment } from '../call.ts';
import { emptyAnswer, event, plainName, textAnswer, withoutEmpty } from '../event.ts';
import { forged, genuine, sameText, secretsOf, sha256, signedInHex } from '../signing.ts';
import { splitText } from '../split.ts';
import { allows, apiOf, leadsTo, required, requiredSetting, sentToApi, setting } from '../specs.ts';

const bodyChars = 4_096;
/** Of what several messages have in common, since each keeps a copy. */
const keptChars = 200;
const mediaHosts = ['lookaside.fbsbx.com', '.fbsbx.com', '.whatsapp.net', 'graph.facebook.com'];
const mediaTypes = ['image', 'video', 'audio', 'document', 'sticker'];

/** WhatsApp Business Platform, Cloud API. One request carries any number of messages. */
export const whatsapp: ChannelKind = {
  name: 'whatsapp',
  bodyBytes: 3 * 1024 * 1024,
  methods: ['GET', 'POST'],
  whenBusy: 503,
  lane: () => 'ordinary',
  paceMs: 0,
  credentials: [
    required('appSecret', 'The app secret of the Meta app (Settings, Basic).'),
    required('verifyToken', 'A text of your choice, entered beside the callback URL.'),
    required('accessToken', 'A system user token with whatsapp_business_messaging.'),
  ],
  settings: [
    requiredSetting('phoneNumberId', 'text', 'The id of the phone number, not the number itself.'),
    setting('allowedSenders', 'texts', 'Numbers to take messages from, digits only; none given: all.'),
  ],
  signing: () => ({ credential: 'appSecret', made: 'given' }),
  sentTo: sentToApi('accessToken'),
  check() {},
  verify(request, setup) {
    if (request.method === 'GET') return verifyHandshake(request, setup);
    const signature = request.headers.get('x-hub-signature-256');
    if (!signature) return forged('signature_missing', 'The header X-Hub-Signature-256 is needed.');
    if (!signature.startsWith('sha256=')) {
      return forged('signature_malformed', 'X-Hub-Signature-256 must begin with "sha256=".');
    }
    const secrets = secretsOf(setup.credentials['appSecret'], setup.previousSecret);
    return signedInHex(secrets, signature.slice(7), request.body)
      ? genuine
      : forged('signature_wrong', 'X-Hub-Signature-256 does not fit; check the app secret.');
  },
  parse(request, setup) {
    if (request.method === 'GET') {
      const challenge = new URL(request.url).searchParams.get('hub.challenge') ?? '';
      // Answered as plain text: nothing that a browser would run.
      return { answer: textAnswer(challenge.slice(0, 256)), events: [] };
    }
    const changes = listAt(readJsonBody(request), 'entry').flatMap((entry) =>
      listAt(entry, 'changes').map((change) => ({ entry, change, value: objectAt(change, 'value') })),
    );
    const held = changes.reduce(
      (sum: number, { value }) =>
        sum + Math.max(1, listAt(value, 'messages').length + listAt(value, 'statuses').length),
      0,
    );
    if (held > limits.inboundEventsPerDelivery) {
      const most = `${limits.inboundEventsPerDelivery} messages, statuses and other changes`;
      throw invalid('entry', `holds more than ${most}.`);
    }
    // Messages and statuses first, since events that were stored before name their place among them.
    const said = changes.map(({ value }) => readChange(value, setup));
    const others = changes.filter((_, place) => said[place]!.length === 0);
    const found = [...said.flat(), ...others.map(({ entry, change }) => otherChange(entry, change))];
    return { answer: emptyAnswer, events: found.length > 0 ? found : [nothing(request)] };
  },
  reply: replySteps,
  readReply,
  stream: null,
};

function verifyHandshake(request: InboundRequest, setup: ChannelSetup) {
  const query = new URL(request.url).searchParams;
  const token = query.get('hub.verify_token');
  if (query.get('hub.mode') !== 'subscribe' || token === null || !query.has('hub.challenge')) {
    return forged('signature_missing', 'hub.mode=subscribe, hub.verify_token and hub.challenge are needed.');
  }
  return sameText(token, setup.credentials['verifyToken'] ?? '')
    ? genuine
    : forged('signature_wrong', 'hub.verify_token is not the verifyToken of this channel.');
}

function readChange(value: Json, setup: ChannelSetup): InboundEvent[] {
  const phoneNumberId = textAt(value, 'metadata', 'phone_number_id');
  const isOurs = phoneNumberId === setup.settings['phoneNumberId'];
  const names = namesOf(value);
  const metadata = {
    phone_number_id: isOurs ? phoneNumberId : (phoneNumberId?.slice(0, keptChars) ?? null),
  };
  const messages = listAt(value, 'messages')
    .filter(isObject)
    .map((message) => readMessage(message, { names, isOurs, metadata }, setup));
  const statuses = listAt(value, 'statuses').map((status) =>
    event({
      kind: 'whatsapp.status',
      deliveryKey: `status:${textAt(status, 'id') ?? ''}:${plainName(textAt(status, 'status'))}`,
      ignore: 'not_a_message',
      alone: () => inEnvelope({ statuses: [status] }),
    }),
  );
  return [...messages, ...statuses];
}

/** What Meta tells of beside messages, such as a change of the account: told apart by when it was and what it says. */
function otherChange(entry: unknown, change: unknown): InboundEvent {
  const field = plainName(textAt(change, 'field'));
  const part = {
    id: textAt(entry, 'id')?.slice(0, keptChars),
    time: textAt(entry, 'time')?.slice(0, keptChars),
    changes: [{ field, value: at(change, 'value') }],
  };
  return event({
    kind: `whatsapp.${field}`,
    deliveryKey: `change:${sha256(JSON.stringify(part)).toString('hex')}`,
    ignore: 'not_a_message',
    alone: () => ({ entry: [part] }),
  });
}

/** A genuine delivery in which nothing is that we know; what was acknowledged is kept all the same. */
const nothing = ({ body }: InboundRequest): InboundEvent =>
  event({
    kind: 'whatsapp.unknown',
    deliveryKey: `body:${sha256(body).toString('hex')}`,
    ignore: 'not_a_message',
  });

/** Names of people by their numbers. */
function namesOf(value: Json): Map<string, string> {
  const names = new Map<string, string>();
  for (const contact of listAt(value, 'contacts')) {
    const [number, name] = [textAt(contact, 'wa_id'), textAt(contact, 'profile', 'name')];
    if (number !== null && name !== null && !names.has(number)) names.set(number, name.slice(0, keptChars));
  }
  return names;
}

const inEnvelope = (value: Json): Json => ({ entry: [{ changes: [{ value }] }] });

interface About {
  names: Map<string, string>;
  isOurs: boolean;
  metadata: Json;
}

function readMessage(message: Json, { names, isOurs, metadata }: About, setup: ChannelSetup): InboundEvent {
  const id = textAt(message, 'id');
  if (!id) throw invalid('messages.id', 'is missing in the payload.');
  const from = textAt(message, 'from') ?? '';
  const type = plainName(textAt(message, 'type'));
  const name = names.get(from) ?? null;
  const isSpoken = !['reaction', 'system', 'unsupported', 'unknown'].includes(type);
  const isAllowed = allows(setup.settings, 'allowedSenders', from);
  return withoutEmpty(
    event({
      kind: 'whatsapp.message',
      deliveryKey: id,
      messageKey: id,
      conversationKey: from,
      text: messageText(message, type),
      sender: { id: from, name, isBot: false },
      ignore: !isSpoken
        ? 'not_a_message'
        : !isOurs
          ? 'not_addressed'
          : isAllowed
            ? null
            : 'sender_not_allowed',
      attachments: readMedia(message, type, setup),
      replyTo: { to: from, messageId: id },
      alone: () =>
        inEnvelope({
          metadata,
          ...(name !== null && { contacts: [{ wa_id: from, profile: { name } }] }),
          messages: [message],
        }),
    }),
  );
}

function messageText(message: Json, type: string): string {
  const location = objectAt(message, 'location');
  if (type === 'location')
    return `Location: ${textAt(location, 'latitude') ?? ''}, ${textAt(location, 'longitude') ?? ''}`;
  return (
    textAt(message, 'text', 'body') ??
    textAt(message, 'button', 'text') ??
    textAt(message, 'interactive', 'button_reply', 'title') ??
    textAt(message, 'interactive', 'list_reply', 'title') ??
    textAt(message, type, 'caption') ??
    ''
  );
}

/** The answer to the call names the URL of the bytes (`url`), which takes the same token. */
function readMedia(message: Json, type: string, setup: ChannelSetup): Attachment[] {
  const id = textAt(message, type, 'id');
  if (!mediaTypes.includes(type) || id === null) return [];
  const size = at(message, type, 'file_size');
  const call = getCall(`${graph(setup)}/${segment(id)}`, bearer(setup.credentials['accessToken']));
  return [
    {
      name: textAt(message, type, 'filename') ?? type,
      mediaType: textAt(message, type, 'mime_type') ?? 'application/octet-stream',
      sizeBytes: typeof size === 'number' ? size : null,
      content: { at: 'call', call, next: (reply) => mediaCall(reply, setup) },
    },
  ];
}

function mediaCall(reply: HttpReply, setup: ChannelSetup): CalledContent | null {
  const url = textAt(readJson(reply), 'url');
  if (!leadsTo(url, mediaHosts, setup)) return null;
  const token = bearer(setup.credentials['accessToken']);
  return { at: 'call', call: getCall(url, { ...token, accept: '*/*' }) };
}

const graph = (setup: ChannelSetup) => apiOf(setup, 'https://graph.facebook.com/v23.0');

function replySteps(answer: Answer, setup: ChannelSetup): ReplyStep[] {
  const { to, messageId } = answer.replyTo;
  const url = `${graph(setup)}/${segment(String(setup.settings['phoneNumberId']))}/messages`;
  return splitText(answer.text, bodyChars).map((body, index) => ({
    call: jsonCall(
      'POST',
      url,
      {
        messaging_product: 'whatsapp',
        recipient_type: 'individual',
        to,
        type: 'text',
        text: { body, preview_url: false },
        ...(index === 0 ? { context: { message_id: messageId } } : {}),
        biz_opaque_callback_data: `${answer.outboxId}:${index}`,
      },
      bearer(setup.credentials['accessToken']),
    ),
    repeat: 'again',
    lookup: null,
    mark: `${answer.outboxId}:${index}`,
  }));
}

/** developers.facebook.com, "WhatsApp Cloud API error codes": of the app, the account, the number, and the pair of numbers. */
const tooMany = new Set([4, 80_007, 130_429, 131_056]);

/** Too many calls are told with status 400 too. */
function readReply(reply: HttpReply): SendOutcome {
  const outcome = readStatus(reply, ['messages', 0, 'id']);
  const code = at(readJson(reply), 'error', 'code');
  if (outcome.outcome !== 'failed' || typeof code !== 'number' || !tooMany.has(code)) return outcome;
  const reason = `${outcome.reason.slice(0, -1)}, error ${code}.`;
  return { outcome: 'retry', afterMs: retryAfterMs(reply.headers), reason, isTooMany: true };
}
