import type { IgnoreReason } from '../../domain/channel.ts';
import type {
  Answer,
  ChannelKind,
  ChannelSetup,
  HttpReply,
  InboundEvent,
  InboundRequest,
  ReplyStep,
  SendOutcome,
} from '../../domain/ports/channel.ts';
import { invalid } from '../../domain/errors.ts';
import { retryAfterMs } from '../../domain/retry-after.ts';
import { at, listAt, objectAt, readJsonBody, textAt, type Json } from '../body.ts';
import { jsonCall, readJson, readStatus } from '../call.ts';
import { parsedDocument } from '../documents.ts';
import { emptyAnswer, event, plainName, withoutEmpty } from '../event.ts';
import { forged, genuine, secretsOf, sha256, signedInHex, staleness } from '../signing.ts';
import { splitText } from '../split.ts';
import { allows, apiOf, optional, required, sentToApi, setting, textOf } from '../specs.ts';
import { names } from './mention.ts';

const bodyChars = 60_000;

export const linear: ChannelKind = {
  name: 'linear',
  bodyBytes: 1024 * 1024,
  methods: ['POST'],
  whenBusy: 503,
  lane: () => 'ordinary',
  paceMs: 1_000,
  credentials: [
    required('signingSecret', 'The signing secret of the webhook (Settings, API, Webhooks).'),
    optional('apiKey', 'An API key or OAuth token (Bearer …) that may comment.'),
  ],
  settings: [
    setting('respondTo', ['mention', 'all'], 'Comments and issues that name the agent, or all.', 'mention'),
    setting('mention', 'text', 'The display name of the agent at Linear, without @.'),
    setting('teams', 'texts', 'Ids of teams to take events from; none given: all.'),
    setting(
      'ownUserId',
      'text',
      'The id of the user as whom the agent comments, so that it never answers itself.',
    ),
  ],
  signing: () => ({ credential: 'signingSecret', made: 'given' }),
  sentTo: sentToApi('apiKey'),
  check() {},
  verify(request, setup, nowMs) {
    const signature = request.headers.get('linear-signature');
    if (!signature) return forged('signature_missing', 'The header Linear-Signature is needed.');
    const secrets = secretsOf(setup.credentials['signingSecret'], setup.previousSecret);
    if (!signedInHex(secrets, signature, request.body)) {
      return forged('signature_wrong', 'Linear-Signature does not fit; check the signing secret.');
    }
    // The time is inside of what is signed, so it is read only now. Retries are signed anew.
    return staleness(signedSeconds(request), nowMs, 300) ?? genuine;
  },
  parse(request, setup) {
    return { answer: emptyAnswer, events: [readEvent(request, readJsonBody(request), setup)] };
  },
  reply: replySteps,
  readReply,
  stream: null,
};

function signedSeconds(request: InboundRequest): number | null {
  const found = at(parsedDocument(request.body.toString()), 'webhookTimestamp');
  return typeof found === 'number' ? found / 1_000 : null;
}

function readEvent(request: InboundRequest, body: Json, setup: ChannelSetup): InboundEvent {
  const type = plainName(textAt(body, 'type'));
  const action = plainName(textAt(body, 'action'));
  const data = objectAt(body, 'data');
  const deliveryKey = request.headers.get('linear-delivery') ?? textAt(body, 'webhookId');
  if (!deliveryKey || !request.headers.has('linear-delivery'))
    throw invalid('Linear-Delivery', 'is missing.');
  const isComment = type === 'comment';
  const issueId = isComment ? (textAt(data, 'issueId') ?? textAt(data, 'issue', 'id')) : textAt(data, 'id');
  const isSpoken = (isComment || type === 'issue') && issueId !== null;
  const text = isComment
    ? (textAt(data, 'body') ?? '')
    : [textAt(data, 'title'), textAt(data, 'description')].filter((part) => part).join('\n\n');
  return withoutEmpty(
    event({
      kind: `linear.${type}`,
      deliveryKey,
      messageKey: isSpoken
        ? `${textAt(data, 'id') ?? ''}:${action}${action === 'update' ? `:${textAt(data, 'updatedAt') ?? ''}` : ''}`
        : null,
      conversationKey: isSpoken ? issueId : null,
      text,
      sender: {
        id: textAt(body, 'actor', 'id') ?? textAt(data, 'userId') ?? '',
        name: textAt(body, 'actor', 'name'),
        isBot:
          textAt(body, 'actor', 'type') === 'OauthClient' || textAt(body, 'actor', 'type') === 'integration',
      },
      ignore: isSpoken ? reasonToIgnore(body, data, action, text, setup) : 'not_a_message',
      replyTo: isSpoken
        ? { issueId, parentId: isComment ? (textAt(data, 'parentId') ?? textAt(data, 'id')) : null }
        : null,
    }),
  );
}

function reasonToIgnore(
  body: Json,
  data: Json,
  action: string,
  text: string,
  setup: ChannelSetup,
): IgnoreReason | null {
  if (action === 'update') return 'edited';
  if (action === 'remove') return 'deleted';
  if (action !== 'create') return 'not_a_message';
  const own = textOf(setup.settings, 'ownUserId');
  const actor = textAt(body, 'actor', 'id') ?? textAt(data, 'userId');
  if (own !== null && actor === own) return 'own_message';
  if (textAt(data, 'botActor', 'id') !== null || textAt(body, 'actor', 'type') === 'integration')
    return 'other_bot';
  if (textAt(body, 'actor', 'type') === 'OauthClient') return 'other_bot';
  const team =
    textAt(data, 'teamId') ?? textAt(data, 'issue', 'teamId') ?? textAt(data, 'issue', 'team', 'id');
  if (!allows(setup.settings, 'teams', team)) return 'not_addressed';
  return textOf(setup.settings, 'respondTo') === 'all' || names(text, textOf(setup.settings, 'mention'))
    ? null
    : 'not_addressed';
}

function replySteps(answer: Answer, setup: ChannelSetup): ReplyStep[] {
  const { apiKey } = setup.credentials;
  if (!apiKey) return [];
  const { issueId, parentId } = answer.replyTo;
  return splitText(answer.text, bodyChars).map((text, index) => {
    const mark = `${answer.outboxId}:${index}`;
    const input = { id: commentId(mark), issueId, body: text, ...(parentId === null ? {} : { parentId }) };
    const query =
      'mutation($input: CommentCreateInput!) { commentCreate(input: $input) { success comment { id } } }';
    const call = jsonCall(
      'POST',
      `${apiOf(setup, 'https://api.linear.app')}/graphql`,
      { query, variables: { input } },
      { authorization: apiKey },
    );
    return { call, repeat: 'same', lookup: null, mark };
  });
}

/** The id is ours to choose, and one that is taken makes no second comment. A UUID version 4 in shape. */
function commentId(mark: string): string {
  const hex = sha256(mark).toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

/** GraphQL says what went wrong with status 200 or 400. */
function readReply(reply: HttpReply): SendOutcome {
  const value = readJson(reply);
  const error = listAt(value, 'errors')[0];
  if (error === undefined) return readStatus(reply, ['data', 'commentCreate', 'comment', 'id']);
  const code = textAt(error, 'extensions', 'code') ?? '';
  const message = textAt(error, 'message') ?? '';
  if (/already exists|conflict on insert|duplicate/i.test(message))
    return { outcome: 'sent', externalId: null };
  const reason = `Linear answered "${message.slice(0, 100)}".`;
  const isTooMany = code === 'RATELIMITED' || reply.status === 429;
  return isTooMany || reply.status >= 500
    ? { outcome: 'retry', afterMs: retryAfterMs(reply.headers), reason, isTooMany }
    : { outcome: 'failed', reason };
}
