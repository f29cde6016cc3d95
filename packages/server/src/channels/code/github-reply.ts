import type {
  Answer,
  ChannelSetup,
  HttpCall,
  HttpReply,
  ReplyStep,
  SendOutcome,
  TokenGrant,
} from '../../domain/ports/channel.ts';
import { retryAfterMs } from '../../domain/retry-after.ts';
import { bearer, getCall, jsonCall, readStatus, segment, withQuery } from '../call.ts';
import { signToken } from '../jwt.ts';
import { splitText } from '../split.ts';
import { apiOf, textOf } from '../specs.ts';
import { hiddenMark } from './mention.ts';

/** GitHub takes 65,536 characters; our mark needs some. */
const bodyChars = 65_000;
const version = {
  accept: 'application/vnd.github+json',
  'x-github-api-version': '2022-11-28',
  'user-agent': 'berth',
};

/** A comment where the question was. The hidden mark lets us ask later whether it arrived. */
export function githubReply(answer: Answer, setup: ChannelSetup, nowMs: number): ReplyStep[] {
  const auth = authorization(answer, setup, nowMs);
  if (auth === null) return [];
  const headers = { ...version, ...auth.headers };
  return splitText(answer.text, bodyChars).map((text, index) => {
    const mark = hiddenMark(`${answer.outboxId}:${index}`);
    const body = `${text}\n\n${mark}`;
    const place = placeOf(answer, setup);
    const lookup: HttpCall | null =
      place.list === null ? null : getCall(`${place.list}?${place.query}`, headers, auth.token);
    const content = place.discussionId === null ? { body } : discussionComment(place.discussionId, body);
    return {
      call: jsonCall('POST', place.post, content, headers, auth.token),
      repeat: 'again',
      lookup,
      mark,
    };
  });
}

/** Too many calls are told with 403 too (docs.github.com, "Rate limits for the REST API"). */
export function readReply(reply: HttpReply): SendOutcome {
  const outcome = readStatus(reply, ['id']);
  if (reply.status !== 403) return outcome;
  const isUsedUp = reply.headers.get('x-ratelimit-remaining') === '0';
  const afterMs = retryAfterMs(reply.headers);
  if (afterMs === null && !isUsedUp) return outcome;
  const reason = 'GitHub answered with status 403, since its rate limit is used up.';
  return { outcome: 'retry', afterMs: afterMs ?? untilReset(reply), reason, isTooMany: true };
}

function untilReset({ headers }: HttpReply): number | null {
  const ms = Number(headers.get('x-ratelimit-reset') ?? '') * 1000 - Date.parse(headers.get('date') ?? '');
  return Number.isFinite(ms) && ms >= 0 ? ms : null;
}

/** docs.github.com, "Using pagination in the REST API": the oldest comments come first. */
export function nextLookup(asked: HttpCall, reply: HttpReply): HttpCall | null {
  if (!/;\s*rel="next"/.test(reply.headers.get('link') ?? '')) return null;
  const page = Number(new URL(asked.url).searchParams.get('page') ?? '1') + 1;
  return withQuery(asked, 'page', String(page));
}

function placeOf(answer: Answer, setup: ChannelSetup) {
  const { repository, number, name, reviewCommentId, commitId, discussionId, since } = answer.replyTo;
  const api = apiOf(setup, 'https://api.github.com');
  const repo = `${api}/repos/${String(repository).split('/').map(segment).join('/')}`;
  const query = new URLSearchParams({
    per_page: '100',
    ...(typeof since === 'string' ? { since } : {}),
  }).toString();
  const at = (post: string, list: string | null) => ({ post, list, query, discussionId: null });
  if (typeof discussionId === 'string') return { post: `${api}/graphql`, list: null, query, discussionId };
  if (typeof reviewCommentId === 'string') {
    const comments = `${repo}/pulls/${segment(String(number))}/comments`;
    return at(`${comments}/${segment(reviewCommentId)}/replies`, comments);
  }
  if (name === 'commit_comment' && typeof commitId === 'string') {
    const comments = `${repo}/commits/${segment(commitId)}/comments`;
    return at(comments, comments);
  }
  const comments = `${repo}/issues/${segment(String(number))}/comments`;
  return at(comments, comments);
}

const discussionComment = (discussionId: string, body: string) => ({
  query:
    'mutation($id: ID!, $body: String!) { addDiscussionComment(input: {discussionId: $id, body: $body}) { comment { id } } }',
  variables: { id: discussionId, body },
});

/** A token as it is, or one of the app's installation (docs.github.com, "Authenticating as a GitHub App installation"). */
function authorization(
  answer: Answer,
  setup: ChannelSetup,
  nowMs: number,
): { headers: Record<string, string>; token: TokenGrant | null } | null {
  const { token, appPrivateKey } = setup.credentials;
  if (token) return { headers: bearer(token), token: null };
  const installationId = answer.replyTo['installationId'];
  if (!appPrivateKey || typeof installationId !== 'string') return null;
  const seconds = Math.floor(nowMs / 1_000);
  const claims = { iss: textOf(setup.settings, 'appId'), iat: seconds - 60, exp: seconds + 540 };
  const url = `${apiOf(setup, 'https://api.github.com')}/app/installations/${segment(installationId)}/access_tokens`;
  const headers = { ...version, ...bearer(signToken(claims, appPrivateKey)) };
  return {
    headers: {},
    token: {
      cacheKey: `github:${setup.channelId}:${installationId}`,
      call: jsonCall('POST', url, {}, headers),
      tokenField: 'token',
    },
  };
}
