import type { IgnoreReason } from '../../domain/channel.ts';
import type { Attachment, ChannelSetup, InboundEvent, InboundRequest } from '../../domain/ports/channel.ts';
import { at, listAt, needText, objectAt, textAt, type Json } from '../body.ts';
import { bearer, getCall } from '../call.ts';
import { event, withoutEmpty } from '../event.ts';
import { allows, isOn, leadsTo, textOf } from '../specs.ts';
import { plainText } from './text.ts';

/** Subtypes under which a person still says something. */
const spoken = new Set(['file_share', 'thread_broadcast', 'me_message', 'bot_message']);
const fileHosts = ['files.slack.com', 'slack.com', '.slack.com', '.slack-files.com', '.slack-gov.com'];

/** One delivery of the Events API, of a message or of anything else that the app subscribed to. */
export function readEvent(request: InboundRequest, body: Json, setup: ChannelSetup): InboundEvent {
  const inner = objectAt(body, 'event');
  const appId = textAt(body, 'api_app_id') ?? '';
  const teamId = textAt(body, 'team_id') ?? '';
  const common = {
    deliveryKey: `${appId}:${teamId}:${needText(body, 'event_id')}`,
    retry: readRetry(request),
  };
  const type = textAt(inner, 'type');
  if (type !== 'message' && type !== 'app_mention') {
    return event({ ...common, kind: 'slack.event', ignore: 'not_a_message' });
  }
  const subtype = textAt(inner, 'subtype');
  if (subtype === 'message_changed' || subtype === 'message_deleted') {
    return event({ ...common, ...readChange(inner, teamId, subtype) });
  }
  return withoutEmpty(event({ ...common, ...readMessage(body, inner, teamId, setup) }));
}

export function readRetry(request: InboundRequest): InboundEvent['retry'] {
  const attempt = request.headers.get('x-slack-retry-num');
  if (attempt === undefined || !/^\d{1,4}$/.test(attempt)) return null;
  const reason = request.headers.get('x-slack-retry-reason') ?? null;
  return { attempt: Number(attempt), reason: reason && /^[a-z_]{1,40}$/.test(reason) ? reason : null };
}

/** What was edited or deleted has been answered already; the change is kept, and answered by nothing. */
function readChange(inner: Json, teamId: string, subtype: string): Partial<InboundEvent> & { kind: string } {
  const isEdit = subtype === 'message_changed';
  const ts =
    textAt(inner, isEdit ? 'message' : 'previous_message', 'ts') ?? textAt(inner, 'deleted_ts') ?? '';
  const change = textAt(inner, 'event_ts') ?? textAt(inner, 'ts') ?? '';
  return {
    kind: 'slack.message',
    messageKey: `${teamId}:${textAt(inner, 'channel') ?? ''}:${ts}:${isEdit ? 'edited' : 'deleted'}:${change}`,
    text: plainText(textAt(inner, 'message', 'text') ?? '', null),
    ignore: isEdit ? 'edited' : 'deleted',
  };
}

function readMessage(
  body: Json,
  inner: Json,
  teamId: string,
  setup: ChannelSetup,
): Partial<InboundEvent> & { kind: string } {
  const channel = needText(inner, 'channel');
  const ts = needText(inner, 'ts');
  const threadTs = textAt(inner, 'thread_ts');
  const isDirect = textAt(inner, 'channel_type') === 'im' || channel.startsWith('D');
  const botUserId = textAt(body, 'authorizations', 0, 'user_id');
  const markup = textAt(inner, 'text') ?? '';
  const isMention =
    textAt(inner, 'type') === 'app_mention' || (botUserId !== null && markup.includes(`<@${botUserId}>`));
  const addressed = addressing(setup, isDirect, isMention, threadTs !== null);
  const userId = textAt(inner, 'user');
  const botId = textAt(inner, 'bot_id');
  const inThread = !isDirect && textOf(setup.settings, 'replyMode') !== 'channel';
  const root = inThread ? (threadTs ?? ts) : threadTs;
  return {
    kind: 'slack.message',
    messageKey: `${teamId}:${channel}:${ts}`,
    conversationKey: root === null ? `${teamId}:${channel}` : `${teamId}:${channel}:${root}`,
    onlyIfKnown: addressed === 'if_known',
    text: plainText(markup, botUserId),
    sender: { id: userId ?? botId ?? '', name: textAt(inner, 'username'), isBot: botId !== null },
    ignore: reasonToIgnore(body, inner, setup, botUserId) ?? (addressed === 'no' ? 'not_addressed' : null),
    attachments: readFiles(inner, setup),
    replyTo: { channel, threadTs: root, messageTs: ts, userId, teamId, responseUrl: null },
  };
}

/** A thread in which the agent takes part goes on without mentions. */
function addressing(
  setup: ChannelSetup,
  isDirect: boolean,
  isMention: boolean,
  isInThread: boolean,
): 'yes' | 'if_known' | 'no' {
  const respondTo = textOf(setup.settings, 'respondTo') ?? 'mention';
  if (isDirect || respondTo === 'all') return 'yes';
  if (respondTo === 'dm') return 'no';
  if (isMention) return 'yes';
  return isInThread ? 'if_known' : 'no';
}

function reasonToIgnore(
  body: Json,
  inner: Json,
  setup: ChannelSetup,
  botUserId: string | null,
): IgnoreReason | null {
  const appId = textAt(body, 'api_app_id');
  const senderApp = textAt(inner, 'app_id') ?? textAt(inner, 'bot_profile', 'app_id');
  const isOwn =
    (botUserId !== null && textAt(inner, 'user') === botUserId) || (appId !== null && senderApp === appId);
  if (isOwn) return 'own_message';
  const subtype = textAt(inner, 'subtype');
  if (subtype !== null && !spoken.has(subtype)) return 'not_a_message';
  const isBot = textAt(inner, 'bot_id') !== null || subtype === 'bot_message';
  if (isBot && !isOn(setup.settings, 'allowBots')) return 'other_bot';
  const isOurs =
    allows(setup.settings, 'teamIds', textAt(body, 'team_id')) &&
    allows(setup.settings, 'channels', textAt(inner, 'channel'));
  return isOurs ? null : 'not_addressed';
}

function readFiles(inner: Json, setup: ChannelSetup): Attachment[] {
  return listAt(inner, 'files').flatMap((file) => {
    const url = textAt(file, 'url_private_download') ?? textAt(file, 'url_private');
    if (!leadsTo(url, fileHosts, setup)) return [];
    const size = at(file, 'size');
    return {
      name: textAt(file, 'name') ?? 'file',
      mediaType: textAt(file, 'mimetype') ?? 'application/octet-stream',
      sizeBytes: typeof size === 'number' ? size : null,
      content: {
        at: 'call',
        call: getCall(url, { ...bearer(setup.credentials['botToken']), accept: '*/*' }),
      },
    } satisfies Attachment;
  });
}
