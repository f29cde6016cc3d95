import type {
  Answer,
  AnswerStream,
  ChannelSetup,
  HttpCall,
  HttpReply,
  ReplyStep,
  SendOutcome,
} from '../../domain/ports/channel.ts';
import { retryAfterMs } from '../../domain/retry-after.ts';
import { at, isObject, listAt, textAt } from '../body.ts';
import { bearer, getCall, jsonCall, readJson, readStatus, withQuery } from '../call.ts';
import { splitText } from '../split.ts';
import { apiOf, isOn } from '../specs.ts';

/** Of `markdown_text` in chat.postMessage and chat.update. */
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
  return {
    call: postCall(answer, setup, text, metadata(mark)),
    repeat: 'again',
    lookup: lookup(answer, setup),
    mark,
    change: (ts) => changeCall(answer, setup, text, ts, metadata(mark)),
  };
}

function postCall(answer: Answer, setup: ChannelSetup, text: string, marked: object): HttpCall {
  const { channel, threadTs } = answer.replyTo;
  return jsonCall(
    'POST',
    api(setup, 'chat.postMessage'),
    {
      channel,
      markdown_text: text,
      ...(threadTs === null ? {} : { thread_ts: threadTs }),
      unfurl_links: false,
      metadata: marked,
    },
    bearer(setup.credentials['botToken']),
  );
}

/** Slack keeps it with the message and shows it to nobody but us. */
const metadata = (mark: string, growing = false) => ({
  event_type: 'berth_answer',
  event_payload: growing ? { mark, growing } : { mark },
});

function lookup(answer: Answer, setup: ChannelSetup): HttpCall {
  const { channel, threadTs, messageTs } = answer.replyTo;
  const query = new URLSearchParams({ channel: String(channel), include_all_metadata: 'true', limit: '200' });
  if (typeof messageTs === 'string') query.set('oldest', messageTs);
  if (typeof threadTs === 'string') query.set('ts', threadTs);
  const method = typeof threadTs === 'string' ? 'conversations.replies' : 'conversations.history';
  return getCall(`${api(setup, method)}?${query}`, bearer(setup.credentials['botToken']));
}

/** docs.slack.dev, "Pagination". */
export function nextLookup(asked: HttpCall, reply: HttpReply): HttpCall | null {
  const cursor = textAt(readJson(reply), 'response_metadata', 'next_cursor') ?? '';
  return cursor === '' ? null : withQuery(asked, 'cursor', cursor);
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
    ? { outcome: 'retry', afterMs: retryAfterMs(reply.headers), reason, isTooMany: error === 'ratelimited' }
    : { outcome: 'failed', reason, isGone: error === 'message_not_found' };
}

/**
 * By chat.postMessage and chat.update, not by chat.startStream: that takes no metadata, so that nobody could find its
 * message after a crash, and it works in threads alone.
 */
export const answerStream: AnswerStream = {
  // chat.update may be called about fifty times in a minute (docs.slack.dev, "Rate limits", tier 3).
  intervalMs: 1_500,
  isOn: (setup) => isOn(setup.settings, 'streaming'),
  start(answer, setup) {
    const text = firstOf(answer.text);
    if (text === '' || typeof answer.replyTo['responseUrl'] === 'string') return null;
    return postCall(answer, setup, text, metadata(`${answer.outboxId}:0`, true));
  },
  update: (answer, ts, setup) =>
    changeCall(answer, setup, firstOf(answer.text), ts, metadata(`${answer.outboxId}:0`, true)),
  breakOff(answer, ts, setup) {
    const said = splitText(answer.text, markdownChars - unfinished.length - 2)[0] ?? '';
    const text = [said, unfinished].filter((part) => part !== '').join('\n\n');
    return changeCall(answer, setup, text, ts, metadata(`${answer.outboxId}:0`));
  },
  lookup,
  find(reply, answer) {
    const mark = `${answer.outboxId}:0`;
    for (const message of listAt(readJson(reply), 'messages')) {
      const payload = at(message, 'metadata', 'event_payload');
      const ts = textAt(message, 'ts');
      if (ts !== null && textAt(payload, 'mark') === mark)
        return { externalId: ts, isGrowing: at(payload, 'growing') === true };
    }
    return null;
  },
};

/** Ends an answer that had begun to grow when its run did not complete (docs/channels.md). */
const unfinished = '_The agent could not finish this answer._';

const firstOf = (text: string): string => splitText(text, markdownChars)[0] ?? '';

function changeCall(answer: Answer, setup: ChannelSetup, text: string, ts: string, marked: object) {
  const { channel } = answer.replyTo;
  return jsonCall(
    'POST',
    api(setup, 'chat.update'),
    { channel, ts, markdown_text: text, metadata: marked },
    bearer(setup.credentials['botToken']),
  );
}
