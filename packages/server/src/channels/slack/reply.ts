import type {
  Answer,
  AnswerStream,
  ChannelSetup,
  HttpReply,
  ReplyStep,
  SendOutcome,
} from '../../domain/ports/channel.ts';
import { isObject, textAt } from '../body.ts';
import { bearer, getCall, jsonCall, readJson, readStatus, retryAfterMs } from '../call.ts';
import { splitText } from '../split.ts';
import { apiOf } from '../specs.ts';

/** Of `markdown_text` in chat.postMessage and in the streaming methods. */
const markdownChars = 12_000;
const transient = new Set([
  'ratelimited',
  'internal_error',
  'fatal_error',
  'service_unavailable',
  'request_timeout',
]);

const api = (setup: ChannelSetup, method: string) => `${apiOf(setup, 'https://slack.com/api')}/${method}`;

export function replySteps(answer: Answer, setup: ChannelSetup): ReplyStep[] {
  const { responseUrl } = answer.replyTo;
  return splitText(answer.text, markdownChars).map((text, index) => {
    const mark = `${answer.outboxId}:${index}`;
    if (typeof responseUrl === 'string') return answerCommand(responseUrl, text, mark);
    return post(answer, setup, text, mark);
  });
}

function post(answer: Answer, setup: ChannelSetup, text: string, mark: string): ReplyStep {
  const { channel, threadTs } = answer.replyTo;
  const call = jsonCall(
    'POST',
    api(setup, 'chat.postMessage'),
    {
      channel,
      markdown_text: text,
      ...(threadTs === null ? {} : { thread_ts: threadTs }),
      unfurl_links: false,
      metadata: metadata(mark),
    },
    bearer(setup.credentials['botToken']),
  );
  return { call, repeat: 'again', lookup: lookup(answer, setup), mark };
}

/** Slack keeps it with the message and shows it to nobody but us. */
const metadata = (mark: string) => ({ event_type: 'berth_answer', event_payload: { mark } });

function lookup(answer: Answer, setup: ChannelSetup) {
  const { channel, threadTs, messageTs } = answer.replyTo;
  const query = new URLSearchParams({ channel: String(channel), include_all_metadata: 'true', limit: '200' });
  if (typeof messageTs === 'string') query.set('oldest', messageTs);
  if (typeof threadTs === 'string') query.set('ts', threadTs);
  const method = typeof threadTs === 'string' ? 'conversations.replies' : 'conversations.history';
  return getCall(`${api(setup, method)}?${query}`, bearer(setup.credentials['botToken']));
}

/** Works for 30 minutes and five messages, and where the bot is no member. It cannot be asked what arrived. */
function answerCommand(responseUrl: string, text: string, mark: string): ReplyStep {
  const call = jsonCall('POST', responseUrl, { response_type: 'in_channel', replace_original: false, text });
  return { call, repeat: 'again', lookup: null, mark };
}

/** Slack says what went wrong with status 200 (docs.slack.dev, "Web API", evaluating responses). */
export function readReply(reply: HttpReply): SendOutcome {
  const value = readJson(reply);
  if (!isObject(value) || value['ok'] === true || reply.status !== 200) return readStatus(reply, ['ts']);
  const error = textAt(value, 'error') ?? 'unknown_error';
  const reason = `Slack answered "${error.slice(0, 100)}".`;
  return transient.has(error)
    ? { outcome: 'retry', afterMs: retryAfterMs(reply), reason }
    : { outcome: 'failed', reason };
}

/** chat.startStream and its sisters: only in threads, and outside of direct messages only to somebody. */
export const answerStream: AnswerStream = {
  intervalMs: 500,
  start(answer, setup) {
    const { channel, threadTs, userId, teamId, responseUrl } = answer.replyTo;
    if (typeof threadTs !== 'string' || typeof responseUrl === 'string') return null;
    const toSomebody =
      typeof userId === 'string' && userId !== ''
        ? { recipient_user_id: userId, recipient_team_id: teamId }
        : {};
    return jsonCall(
      'POST',
      api(setup, 'chat.startStream'),
      { channel, thread_ts: threadTs, ...toSomebody, markdown_text: answer.text.slice(0, markdownChars) },
      bearer(setup.credentials['botToken']),
    );
  },
  append: (text, ts, answer, setup) =>
    jsonCall(
      'POST',
      api(setup, 'chat.appendStream'),
      { channel: answer.replyTo['channel'], ts, markdown_text: text.slice(0, markdownChars) },
      bearer(setup.credentials['botToken']),
    ),
  finish: (rest, ts, answer, setup) =>
    jsonCall(
      'POST',
      api(setup, 'chat.stopStream'),
      {
        channel: answer.replyTo['channel'],
        ts,
        ...(rest === '' ? {} : { markdown_text: rest.slice(0, markdownChars) }),
        metadata: metadata(`${answer.outboxId}:0`),
      },
      bearer(setup.credentials['botToken']),
    ),
};
