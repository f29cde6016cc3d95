import type { ServerResponse } from 'node:http';
import { bySize, oneStep } from '../../domain/slices.ts';
import type { Call } from '../call.ts';
import type { Exchange } from '../metered-call.ts';
import { tokensOfBytes } from '../prices.ts';
import type { Tokens } from '../prices.ts';
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
  { caller, route, call, response }: Exchange,
  report: (tokens: Tokens) => void,
): Promise<void> {
  if (route.operation !== 'chat/completions') {
    throw new WireError('not_found', 'The demonstration provider has the path chat/completions only.');
  }
  checkSize(call);
  const bytes = call.body.reduce((sum, piece) => sum + piece.length, 0);
  const read = oneStep(() =>
    guide(readConversation(call.body.length === 1 ? (call.body[0] as Buffer) : Buffer.concat(call.body))),
  );
  const reply = await bySize({ orgId: caller.orgId, id: caller.sandboxId }, bytes, read);
  const promptTokens = tokensOfBytes(bytes);
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

/** What a harness keeps of a conversation, with images, is far less. */
const maxBodyBytes = 8 * 1024 * 1024;
/** The body is built whole, which takes long by the number of what is in it, and not by its bytes. */
const maxBodyValues = 50_000;

function checkSize(call: Call): void {
  const bytes = call.body.reduce((sum, piece) => sum + piece.length, 0);
  if (bytes <= maxBodyBytes && call.bodyValues <= maxBodyValues) return;
  const most = bytes > maxBodyBytes ? `${maxBodyBytes} bytes` : `${maxBodyValues} names and values`;
  throw new WireError(
    'too_large',
    `The demonstration provider takes requests of at most ${most}: begin a new conversation, or use a real provider.`,
  );
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

/** Written at once; the next is written when the system has taken it. */
const maxHeldChars = 16 * 1024;

/**
 * Returns how many tokens were sent, which are fewer than all when the client left. Of what a client does not read, or of
 * an answer that waits behind another on its connection, no more than one piece is held.
 */
async function stream(reply: GuideReply, promptTokens: number, response: ServerResponse): Promise<number> {
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
  let sent = 0;
  let piece = event({ role: 'assistant', content: '' });
  for (const content of reply.tokens) {
    if (sent > 0 && reply.gapMs > 0) await gap(response, reply.gapMs);
    if (response.destroyed) return outputTokens(reply, sent);
    piece += event({ content });
    sent += 1;
    // Without a gap nothing is waited for, so a short answer leaves in one write, with its end.
    if (reply.gapMs === 0 && piece.length < maxHeldChars) continue;
    await taken(response, piece);
    piece = '';
  }
  if (response.destroyed) return outputTokens(reply, sent);
  response.end(piece + ending(reply, promptTokens));
  return outputTokens(reply, sent);
}

function taken(response: ServerResponse, piece: string): Promise<void> {
  return untilGone(response, (done) => void response.write(piece, done));
}

function gap(response: ServerResponse, ms: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  return untilGone(response, (done) => (timer = setTimeout(done, ms))).finally(() => clearTimeout(timer));
}

/** Waits until `begin` says that it is done, or the client has left, also one whose answer waits behind another. */
function untilGone(response: ServerResponse, begin: (done: () => void) => void): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      response.off('close', done);
      resolve();
    };
    response.on('close', done);
    begin(done);
  });
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
