import type { ServerResponse } from 'node:http';
import type { Call } from '../call.ts';
import { tokensOfBytes } from '../prices.ts';
import type { Tokens } from '../prices.ts';
import type { Route } from '../routes.ts';
import { WireError } from '../wires.ts';
import { readConversation } from './conversation.ts';
import { guide } from './guide.ts';
import type { GuideReply } from './guide.ts';

/** Fixed, since a demonstration is not made at any time: the same request gives the same bytes. */
const head = { id: 'chatcmpl-demo', created: 0, model: 'guide' };

/**
 * Answers as a Chat Completions provider (platform.openai.com, "Chat Completions"), streamed or not. Tokens are counted as a quarter of
 * the bytes: the prompt's text is not split by any model's vocabulary here.
 */
export async function answerDemo(
  route: Route,
  call: Call,
  response: ServerResponse,
  report: (tokens: Tokens) => void,
): Promise<void> {
  if (route.operation !== 'chat/completions') {
    throw new WireError('not_found', 'The demonstration provider has the path chat/completions only.');
  }
  const body = call.body.length === 1 ? (call.body[0] as Buffer) : Buffer.concat(call.body);
  const reply = guide(readConversation(body));
  const promptTokens = tokensOfBytes(body.length);
  let sentTokens = 0;
  try {
    if (call.isStream) {
      sentTokens = await stream(reply, promptTokens, response);
      return;
    }
    sentTokens = outputTokens(reply, reply.tokens.length);
    const answer = Buffer.from(JSON.stringify(completion(reply, promptTokens)));
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': answer.length });
    response.end(answer);
  } finally {
    report({
      input: promptTokens,
      cachedInput: 0,
      cacheWrite: 0,
      cacheWriteLong: 0,
      output: sentTokens,
      isEstimated: false,
    });
  }
}

function outputTokens(reply: GuideReply, sent: number): number {
  const text = reply.tokens.slice(0, sent).join('') + (reply.call ? JSON.stringify(reply.call.input) : '');
  return tokensOfBytes(Buffer.byteLength(text));
}

function usage(promptTokens: number, completionTokens: number): object {
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
  };
}

function toolCalls(reply: GuideReply): object[] {
  if (!reply.call) return [];
  const { id, name, input } = reply.call;
  return [{ index: 0, id, type: 'function', function: { name, arguments: JSON.stringify(input) } }];
}

const finishReason = (reply: GuideReply): string => (reply.call ? 'tool_calls' : 'stop');

function completion(reply: GuideReply, promptTokens: number): object {
  const content = reply.tokens.join('');
  const message = reply.call
    ? { role: 'assistant', content: null, tool_calls: toolCalls(reply) }
    : { role: 'assistant', content };
  return {
    ...head,
    object: 'chat.completion',
    choices: [{ index: 0, message, finish_reason: finishReason(reply) }],
    usage: usage(promptTokens, outputTokens(reply, reply.tokens.length)),
  };
}

/** Returns how many tokens were sent, which are fewer than all when the client left. */
async function stream(reply: GuideReply, promptTokens: number, response: ServerResponse): Promise<number> {
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
  let sent = 0;
  if (reply.gapMs === 0) {
    // Nothing is waited for, so everything leaves in one write.
    const events = [
      event({ role: 'assistant', content: '' }),
      ...reply.tokens.map((content) => event({ content })),
    ];
    response.end(events.join('') + ending(reply, promptTokens));
    return outputTokens(reply, reply.tokens.length);
  }
  response.write(event({ role: 'assistant', content: '' }));
  for (const content of reply.tokens) {
    if (sent > 0) await gap(response, reply.gapMs);
    if (response.destroyed) return outputTokens(reply, sent);
    response.write(event({ content }));
    sent += 1;
  }
  response.end(ending(reply, promptTokens));
  return outputTokens(reply, sent);
}

const eventStart = JSON.stringify({ ...head, object: 'chat.completion.chunk' }).slice(0, -1);

function event(delta: object, finish: string | null = null): string {
  return `data: ${eventStart},"choices":[{"index":0,"delta":${JSON.stringify(delta)},"finish_reason":${JSON.stringify(finish)}}]}\n\n`;
}

function ending(reply: GuideReply, promptTokens: number): string {
  const counted = usage(promptTokens, outputTokens(reply, reply.tokens.length));
  const call = reply.call ? event({ tool_calls: toolCalls(reply) }) : '';
  const last = `data: ${eventStart},"choices":[],"usage":${JSON.stringify(counted)}}\n\n`;
  return `${call}${event({}, finishReason(reply))}${last}data: [DONE]\n\n`;
}

/** Ends early when the client leaves. */
function gap(response: ServerResponse, ms: number): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      response.off('close', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    response.on('close', done);
  });
}
