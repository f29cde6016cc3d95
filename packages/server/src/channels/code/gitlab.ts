import type { IgnoreReason } from '../../domain/channel.ts';
import type {
  Answer,
  ChannelKind,
  ChannelSetup,
  HttpCall,
  HttpReply,
  InboundEvent,
  InboundRequest,
  ReplyStep,
} from '../../domain/ports/channel.ts';
import { at, objectAt, readJsonBody, textAt, type Json } from '../body.ts';
import { getCall, isBefore, jsonCall, readJson, readStatus, segment, withQuery } from '../call.ts';
import { emptyAnswer, event, plainName, withoutEmpty } from '../event.ts';
import { forged, genuine, sameText, secretsOf, sha256 } from '../signing.ts';
import { splitText } from '../split.ts';
import { standardHeaders, verifyStandard } from '../standard-webhooks.ts';
import { allows, apiOf, optional, required, sentToApi, setting, textOf } from '../specs.ts';
import { hiddenMark, names } from './mention.ts';

const noteChars = 900_000;

export const gitlab: ChannelKind = {
  name: 'gitlab',
  bodyBytes: 25 * 1024 * 1024,
  methods: ['POST'],
  // GitLab switches a hook off after four refusals; a 503 switches it off for a minute, a 4xx for good.
  whenBusy: 503,
  lane: () => 'reserved',
  paceMs: 1_000,
  credentials: [
    required('webhookSecret', 'The secret token of the webhook, or its signing token (whsec_…).'),
    optional('token', 'An access token with the scope api, to answer with notes.'),
  ],
  settings: [
    setting(
      'respondTo',
      ['mention', 'all'],
      'Notes, issues and merge requests that name the agent, or all.',
      'mention',
    ),
    setting('mention', 'text', 'The user name of the agent at GitLab, without @.'),
    setting('projects', 'texts', 'Projects to take events from, as group/name; none given: all.'),
  ],
  signing: () => ({ credential: 'webhookSecret', made: 'token' }),
  sentTo: sentToApi('token'),
  check() {},
  verify(request, setup, nowMs) {
    const secrets = secretsOf(setup.credentials['webhookSecret'], setup.previousSecret);
    // A hook with a signing token signs as Standard Webhooks says, and is then held to it.
    if (standardHeaders(request) || secrets[0]?.startsWith('whsec_'))
      return verifyStandard(request, secrets, nowMs);
    const token = request.headers.get('x-gitlab-token');
    if (!token)
      return forged(
        'signature_missing',
        'The header X-Gitlab-Token is needed; set a secret token at GitLab.',
      );
    return secrets.some((secret) => sameText(secret, token))
      ? genuine
      : forged('signature_wrong', 'X-Gitlab-Token does not fit; check the secret token of the webhook.');
  },
  parse(request, setup) {
    return { answer: emptyAnswer, events: [readEvent(request, readJsonBody(request), setup)] };
  },
  reply: replySteps,
  readReply: (reply) => readStatus(reply, ['id']),
  nextLookup,
  stream: null,
};

const targets: Record<string, string> = { issue: 'issues', merge_request: 'merge_requests' };

function readEvent(request: InboundRequest, body: Json, setup: ChannelSetup): InboundEvent {
  const name = plainName(textAt(body, 'object_kind') ?? textAt(body, 'event_name'));
  const said = objectAt(body, 'object_attributes');
  const project = textAt(body, 'project', 'path_with_namespace') ?? '';
  const delivery =
    request.headers.get('idempotency-key') ??
    request.headers.get('webhook-id') ??
    request.headers.get('x-gitlab-event-uuid');
  // Older servers send no id at all; the same event then has the same bytes.
  const deliveryKey = delivery ?? `body:${sha256(request.body).toString('hex')}`;
  const target = name === 'note' ? (textAt(body, 'issue', 'iid') ? 'issue' : 'merge_request') : name;
  const path = targets[target];
  const iid = name === 'note' ? textAt(body, target, 'iid') : textAt(said, 'iid');
  const action = plainName(textAt(said, 'action') ?? (name === 'note' ? 'create' : null));
  const text =
    name === 'note'
      ? (textAt(said, 'note') ?? '')
      : [textAt(said, 'title'), textAt(said, 'description')].filter((part) => part).join('\n\n');
  const isSpoken = path !== undefined && iid !== null;
  return withoutEmpty(
    event({
      kind: `gitlab.${name}`,
      deliveryKey,
      messageKey: isSpoken
        ? `${name}:${textAt(said, 'id') ?? ''}:${action}${action === 'update' ? `:${textAt(said, 'updated_at') ?? ''}` : ''}`
        : null,
      conversationKey: isSpoken ? `${project}:${target}:${iid}` : null,
      text,
      sender: {
        id: textAt(body, 'user', 'username') ?? '',
        name: textAt(body, 'user', 'name'),
        isBot: isBot(body),
      },
      ignore: isSpoken ? reasonToIgnore(body, said, action, text, project, setup) : 'not_a_message',
      replyTo: isSpoken
        ? { projectId: textAt(body, 'project', 'id'), path, iid, discussionId: textAt(said, 'discussion_id') }
        : null,
    }),
  );
}

/** Access tokens of projects and groups post as such users. */
function isBot(body: Json): boolean {
  return /^(project|group)_\d+_bot/.test(textAt(body, 'user', 'username') ?? '');
}

function reasonToIgnore(
  body: Json,
  said: Json,
  action: string,
  text: string,
  project: string,
  setup: ChannelSetup,
): IgnoreReason | null {
  if (action === 'update') return 'edited';
  if (action === 'delete') return 'deleted';
  if (action !== 'create' && action !== 'open') return 'not_a_message';
  const own = textOf(setup.settings, 'mention');
  const isOwn = own !== null && textAt(body, 'user', 'username') === own;
  if (isOwn || text.includes('<!-- berth:')) return 'own_message';
  if (isBot(body)) return 'other_bot';
  if (at(said, 'system') === true) return 'not_a_message';
  if (!allows(setup.settings, 'projects', project)) return 'not_addressed';
  return textOf(setup.settings, 'respondTo') === 'all' || names(text, own) ? null : 'not_addressed';
}

function replySteps(answer: Answer, setup: ChannelSetup): ReplyStep[] {
  const { token } = setup.credentials;
  if (!token) return [];
  const { projectId, path, iid, discussionId } = answer.replyTo;
  const api = apiOf(setup, 'https://gitlab.com/api/v4');
  const thing = `${api}/projects/${segment(String(projectId))}/${segment(String(path))}/${segment(String(iid))}`;
  const notes =
    typeof discussionId === 'string'
      ? `${thing}/discussions/${segment(discussionId)}/notes`
      : `${thing}/notes`;
  const headers = { 'private-token': token };
  return splitText(answer.text, noteChars).map((text, index) => {
    const mark = hiddenMark(`${answer.outboxId}:${index}`);
    return {
      call: jsonCall('POST', notes, { body: `${text}\n\n${mark}` }, headers),
      repeat: 'again',
      lookup: getCall(`${thing}/notes?sort=desc&order_by=created_at&per_page=100`, headers),
      mark,
    };
  });
}

/** docs.gitlab.com, "REST API", pagination: the newest notes come first. */
function nextLookup(asked: HttpCall, reply: HttpReply, beganAt: Date): HttpCall | null {
  const page = reply.headers.get('x-next-page') ?? '';
  const notes = readJson(reply);
  const oldest = textAt(Array.isArray(notes) ? notes.at(-1) : null, 'created_at');
  return /^\d+$/.test(page) && !isBefore(oldest, beganAt) ? withQuery(asked, 'page', page) : null;
}
