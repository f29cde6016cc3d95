import type { IgnoreReason } from '../../domain/channel.ts';
import { invalid } from '../../domain/errors.ts';
import type { ChannelSetup, InboundEvent, InboundRequest } from '../../domain/ports/channel.ts';
import { at, isObject, objectAt, textAt, type Json } from '../body.ts';
import { event, plainName, withoutEmpty } from '../event.ts';
import { sha256 } from '../signing.ts';
import { allows, isOn, listOf, textOf } from '../specs.ts';
import { names } from './mention.ts';

/** Where the text of a person is in each event, and what is talked about. */
const spoken: Record<string, { body: string; action: string; edited: string; deleted: string }> = {
  issue_comment: { body: 'comment', action: 'created', edited: 'edited', deleted: 'deleted' },
  pull_request_review_comment: { body: 'comment', action: 'created', edited: 'edited', deleted: 'deleted' },
  discussion_comment: { body: 'comment', action: 'created', edited: 'edited', deleted: 'deleted' },
  commit_comment: { body: 'comment', action: 'created', edited: 'edited', deleted: 'deleted' },
  issues: { body: 'issue', action: 'opened', edited: 'edited', deleted: 'deleted' },
  pull_request: { body: 'pull_request', action: 'opened', edited: 'edited', deleted: 'deleted' },
  pull_request_review: { body: 'review', action: 'submitted', edited: 'edited', deleted: 'dismissed' },
  discussion: { body: 'discussion', action: 'created', edited: 'edited', deleted: 'deleted' },
};

/** Events that say neither when they were nor which one of them it is: another one may have the same bytes. */
const withoutTime = new Set([
  'repository_dispatch',
  'workflow_dispatch',
  'member',
  'membership',
  'organization',
  'star',
  'team',
  'team_add',
  'watch',
]);

/** Null for GitHub's ping. */
export function readGithubEvent(
  request: InboundRequest,
  body: Json,
  setup: ChannelSetup,
): InboundEvent | null {
  const name = plainName(request.headers.get('x-github-event'));
  const delivery = request.headers.get('x-github-delivery');
  if (!delivery) throw invalid('X-GitHub-Delivery', 'is missing.');
  if (name === 'ping') return null;
  const repository = textAt(body, 'repository', 'full_name') ?? '';
  const place = spoken[name];
  const isWanted = listOf(setup.settings, 'events').includes(name);
  const common = {
    kind: `github.${name}`,
    deliveryKey: delivery,
    sender: {
      id: textAt(body, 'sender', 'login') ?? '',
      name: textAt(body, 'sender', 'login'),
      isBot: textAt(body, 'sender', 'type') === 'Bot',
    },
  };
  if (!place) {
    const ignore = isWanted ? reasonBySender(body, setup, repository) : 'not_a_message';
    return event({
      ...common,
      // The header with the delivery's id is not signed; what it tells of is, and says when that was.
      messageKey: isWanted
        ? `${name}:${withoutTime.has(name) ? delivery : sha256(request.body).toString('hex')}`
        : null,
      conversationKey: `${repository}:${name}:${textAt(body, 'ref') ?? ''}`,
      text: isWanted ? JSON.stringify(body).slice(0, 50_000) : '',
      ignore,
    });
  }
  return withoutEmpty(event({ ...common, ...readSpoken(body, name, place, repository, setup) }));
}

function readSpoken(
  body: Json,
  name: string,
  place: (typeof spoken)[string],
  repository: string,
  setup: ChannelSetup,
): Partial<InboundEvent> {
  const said = objectAt(body, place.body);
  const thing = ['issue', 'pull_request', 'discussion']
    .map((key) => objectAt(body, key))
    .find((found) => isObject(at(found, 'user')) || textAt(found, 'number') !== null);
  const number = textAt(thing, 'number');
  const action = plainName(textAt(body, 'action'));
  const id = textAt(said, 'node_id') ?? textAt(said, 'id') ?? '';
  const text = [
    place.body === 'comment' || place.body === 'review' ? null : textAt(said, 'title'),
    textAt(said, 'body'),
  ]
    .filter((part) => part !== null)
    .join('\n\n');
  const subject = number === null ? `commit:${textAt(said, 'commit_id') ?? ''}` : number;
  const inReply = textAt(said, 'in_reply_to_id');
  const isReview = name === 'pull_request_review_comment';
  return {
    messageKey: `${id}:${action}${action === place.action ? '' : `:${textAt(said, 'updated_at') ?? ''}`}`,
    conversationKey: `${repository}#${subject}`,
    text,
    ignore:
      reasonByAction(action, place) ??
      reasonBySender(body, setup, repository) ??
      reasonByMention(text, setup),
    replyTo: {
      repository,
      number,
      name,
      reviewCommentId: isReview ? (inReply ?? textAt(said, 'id')) : null,
      commitId: textAt(said, 'commit_id'),
      discussionId: name.startsWith('discussion') ? textAt(body, 'discussion', 'node_id') : null,
      since: textAt(said, 'created_at') ?? textAt(said, 'submitted_at'),
      installationId: textAt(body, 'installation', 'id'),
    },
  };
}

function reasonByAction(action: string, place: (typeof spoken)[string]): IgnoreReason | null {
  if (action === place.action) return null;
  if (action === place.edited) return 'edited';
  return action === place.deleted ? 'deleted' : 'not_a_message';
}

function reasonBySender(body: Json, setup: ChannelSetup, repository: string): IgnoreReason | null {
  const said = objectAt(body, 'comment');
  // A person's comment on an issue that our own app has opened is that person's.
  const made = textAt(body, 'action') === 'opened' ? objectAt(body, 'issue') : said;
  const app = textAt(made, 'performed_via_github_app', 'id');
  const login = textAt(body, 'sender', 'login') ?? '';
  const own = textOf(setup.settings, 'mention');
  const isOwnApp = app !== null && app === textOf(setup.settings, 'appId');
  if (isOwnApp || (own !== null && [own, `${own}[bot]`].includes(login))) return 'own_message';
  if ((textAt(said, 'body') ?? '').includes('<!-- berth:')) return 'own_message';
  if (textAt(body, 'sender', 'type') === 'Bot' && !isOn(setup.settings, 'allowBots')) return 'other_bot';
  return allows(setup.settings, 'repositories', repository) ? null : 'not_addressed';
}

function reasonByMention(text: string, setup: ChannelSetup): IgnoreReason | null {
  if (textOf(setup.settings, 'respondTo') === 'all') return null;
  return names(text, textOf(setup.settings, 'mention')) ? null : 'not_addressed';
}
