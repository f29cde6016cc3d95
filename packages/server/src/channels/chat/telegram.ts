import type { IgnoreReason } from '../../domain/channel.ts';
import type {
  Answer,
  Attachment,
  CalledContent,
  ChannelKind,
  ChannelSetup,
  HttpReply,
  ReplyStep,
  SendOutcome,
} from '../../domain/ports/channel.ts';
import { at, isObject, listAt, needText, objectAt, readJsonBody, textAt, type Json } from '../body.ts';
import { getCall, jsonCall, readJson, readStatus, segment } from '../call.ts';
import { emptyAnswer, event, withoutEmpty } from '../event.ts';
import { forged, genuine, sameText, secretsOf } from '../signing.ts';
import { splitText } from '../split.ts';
import {
  allowBots,
  allows,
  apiOf,
  isOn,
  maxAnswersPerBot,
  required,
  sentToApi,
  setting,
  textOf,
} from '../specs.ts';

/** core.telegram.org/bots/api, "sendMessage". */
const textChars = 4_096;

export const telegram: ChannelKind = {
  name: 'telegram',
  bodyBytes: 1024 * 1024,
  methods: ['POST'],
  whenBusy: 503,
  lane: () => 'ordinary',
  paceMs: 1_000,
  credentials: [
    required('botToken', 'The token that BotFather gave.'),
    required('webhookSecret', 'The secret_token of setWebhook, 1 to 256 of the characters A-Z a-z 0-9 _ -.'),
  ],
  settings: [
    setting('respondTo', ['mention', 'all'], 'In groups: messages that name the bot, or all.', 'mention'),
    setting('botUsername', 'text', 'The name of the bot without @; needed for mentions in groups.'),
    setting('chats', 'texts', 'Ids of chats to take messages from; none given: all.'),
    allowBots,
    maxAnswersPerBot,
  ],
  signing: () => ({ credential: 'webhookSecret', made: 'token' }),
  sentTo: sentToApi('botToken'),
  check() {},
  verify(request, setup) {
    const given = request.headers.get('x-telegram-bot-api-secret-token');
    if (!given) return forged('signature_missing', 'The header X-Telegram-Bot-Api-Secret-Token is needed.');
    const secrets = secretsOf(setup.credentials['webhookSecret'], setup.previousSecret);
    return secrets.some((secret) => sameText(secret, given))
      ? genuine
      : forged(
          'signature_wrong',
          'The secret token does not fit; call setWebhook again with the present one.',
        );
  },
  parse(request, setup) {
    const body = readJsonBody(request);
    const updateId = needText(body, 'update_id');
    const botId = (setup.credentials['botToken'] ?? '').split(':')[0] ?? '';
    return { answer: emptyAnswer, events: [readUpdate(body, `${botId}:${updateId}`, setup, botId)] };
  },
  reply: replySteps,
  readReply,
  stream: null,
};

function readUpdate(body: Json, deliveryKey: string, setup: ChannelSetup, botId: string) {
  const kind = [
    'message',
    'edited_message',
    'channel_post',
    'edited_channel_post',
    'business_message',
    'callback_query',
  ].find((name) => isObject(at(body, name)));
  if (kind === undefined) return event({ kind: 'telegram.update', deliveryKey, ignore: 'not_a_message' });
  const isQuery = kind === 'callback_query';
  const message = isQuery ? objectAt(body, kind, 'message') : objectAt(body, kind);
  const from = isQuery ? objectAt(body, kind, 'from') : objectAt(message, 'from');
  const chat = needText(message, 'chat', 'id');
  const topic = at(message, 'is_topic_message') === true ? textAt(message, 'message_thread_id') : null;
  const messageId = textAt(message, 'message_id') ?? '';
  const text = isQuery ? textAt(body, kind, 'data') : (textAt(message, 'text') ?? textAt(message, 'caption'));
  const edit = kind.startsWith('edited_') ? `:edited:${textAt(message, 'edit_date') ?? ''}` : '';
  return withoutEmpty(
    event({
      kind: isQuery ? 'telegram.callback' : 'telegram.message',
      deliveryKey,
      messageKey: isQuery ? `query:${textAt(body, kind, 'id') ?? ''}` : `${chat}:${messageId}${edit}`,
      conversationKey: topic === null ? chat : `${chat}:${topic}`,
      text: text ?? '',
      sender: {
        id: textAt(from, 'id') ?? textAt(message, 'sender_chat', 'id') ?? '',
        name: textAt(from, 'username') ?? textAt(from, 'first_name'),
        isBot: at(from, 'is_bot') === true,
      },
      ignore: reasonToIgnore(kind, message, from, setup, botId),
      attachments: readFiles(message, setup),
      replyTo: { chat, topic, messageId },
    }),
  );
}

function reasonToIgnore(
  kind: string,
  message: Json,
  from: Json,
  setup: ChannelSetup,
  botId: string,
): IgnoreReason | null {
  if (kind.startsWith('edited_')) return 'edited';
  if (textAt(from, 'id') === botId) return 'own_message';
  if (at(from, 'is_bot') === true && !isOn(setup.settings, 'allowBots')) return 'other_bot';
  // What the owner of a business account types is sent to the bot too.
  if (kind === 'business_message' && textAt(message, 'chat', 'id') !== textAt(from, 'id'))
    return 'own_message';
  if (!allows(setup.settings, 'chats', textAt(message, 'chat', 'id'))) return 'not_addressed';
  const isPrivate = textAt(message, 'chat', 'type') === 'private' || kind === 'callback_query';
  if (isPrivate || textOf(setup.settings, 'respondTo') === 'all') return null;
  return namesBot(message, setup, botId) ? null : 'not_addressed';
}

function namesBot(message: Json, setup: ChannelSetup, botId: string): boolean {
  if (textAt(message, 'reply_to_message', 'from', 'id') === botId) return true;
  const name = textOf(setup.settings, 'botUsername');
  const text = `${textAt(message, 'text') ?? ''} ${textAt(message, 'caption') ?? ''}`.toLowerCase();
  return name !== null && text.includes(`@${name.toLowerCase().replace(/^@/, '')}`);
}

/** `getFile` tells the path under which the bytes are. */
function readFiles(message: Json, setup: ChannelSetup): Attachment[] {
  const photos = listAt(message, 'photo');
  const found = [photos.at(-1), ...['document', 'voice', 'audio', 'video'].map((name) => at(message, name))];
  return found.filter(isObject).flatMap((file) => {
    const id = textAt(file, 'file_id');
    if (id === null) return [];
    const size = at(file, 'file_size');
    return {
      name: textAt(file, 'file_name') ?? 'file',
      mediaType: textAt(file, 'mime_type') ?? 'image/jpeg',
      sizeBytes: typeof size === 'number' ? size : null,
      content: {
        at: 'call',
        call: getCall(`${api(setup)}/getFile?file_id=${encodeURIComponent(id)}`),
        next: (reply) => fileCall(reply, setup),
      },
    } satisfies Attachment;
  });
}

function fileCall(reply: HttpReply, setup: ChannelSetup): CalledContent | null {
  const path = textAt(readJson(reply), 'result', 'file_path');
  if (path === null || !/^[\w-][\w./-]{0,300}$/.test(path) || path.includes('..')) return null;
  const base = api(setup).replace(/\/bot(?=[^/]*$)/, '/file/bot');
  return { at: 'call', call: getCall(`${base}/${path}`, { accept: '*/*' }) };
}

const api = (setup: ChannelSetup) =>
  `${apiOf(setup, 'https://api.telegram.org')}/bot${segment(setup.credentials['botToken'] ?? '').replaceAll('%3A', ':')}`;

function replySteps(answer: Answer, setup: ChannelSetup): ReplyStep[] {
  const { chat, topic, messageId } = answer.replyTo;
  return splitText(answer.text, textChars).map((text, index) => ({
    call: jsonCall('POST', `${api(setup)}/sendMessage`, {
      chat_id: chat,
      text,
      ...(topic === null ? {} : { message_thread_id: Number(topic) }),
      ...(index === 0 && messageId !== '' && messageId !== null
        ? { reply_parameters: { message_id: Number(messageId), allow_sending_without_reply: true } }
        : {}),
    }),
    repeat: 'again',
    lookup: null,
    mark: `${answer.outboxId}:${index}`,
  }));
}

function readReply(reply: HttpReply): SendOutcome {
  const seconds = at(readJson(reply), 'parameters', 'retry_after');
  if (reply.status === 429 && typeof seconds === 'number') {
    const reason = 'Telegram answered with status 429.';
    return { outcome: 'retry', afterMs: seconds * 1_000, reason, isTooMany: true };
  }
  return readStatus(reply, ['result', 'message_id']);
}
