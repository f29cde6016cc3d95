import { createServer } from 'node:http';
import type { IncomingHttpHeaders, IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { errorBody, wholeAnswer, streamedAnswer, wireOfPath } from './scripted-wires.ts';
import type { ScriptedWire } from './scripted-wires.ts';

/** What the model says to one request. All fields are optional: `{}` is an empty answer. */
export interface ScriptedReply {
  /** The answer, token by token; a stream sends one event for each. */
  text?: string[];
  /** Reasoning, token by token, before the answer; on the wires that have it. */
  thought?: string[];
  toolCalls?: { id?: string; name: string; input: unknown }[];
  /** Null: the provider reports none. Absent: 10 in, as many out as there are tokens. `input` includes `cachedInput`. */
  usage?: { input: number; cachedInput?: number; output: number } | null;
  stopReason?: 'end' | 'length';
  /** Before the status line is sent. */
  firstDelayMs?: number;
  /** Between two streamed events. */
  gapMs?: number;
  /** A streamed event is sent when this has resolved. */
  hold?: (event: string) => Promise<unknown> | undefined;
  /** Answer with this status and an error in the wire's own shape. */
  error?: { status: number; message: string; type?: string };
  /** Further response headers, e.g. `retry-after`. */
  headers?: Record<string, string>;
  /** Destroy the connection after this many events of a stream (0: before the first byte of the body). */
  cutAfterEvents?: number;
  /** Send these bytes with status 200 as they are, in these pieces, in place of a rendered answer. */
  raw?: { contentType: string; chunks: (string | Buffer)[] };
}

export interface ScriptedRequest {
  method: string;
  /** Path and query. */
  path: string;
  wire: ScriptedWire;
  headers: IncomingHttpHeaders;
  rawHeaders: string[];
  bodyBytes: Buffer;
  /** The parsed body; undefined when it is no JSON. */
  // oxlint-disable-next-line no-explicit-any -- tests read into bodies of four wires
  body: any;
  /** All bytes that were written as the answer's body so far. */
  sent: () => Buffer;
  /** Resolves when the answer ended: `complete` is false when the client went away or the script cut the stream. */
  ended: Promise<{ complete: boolean }>;
}

export type Script = (request: ScriptedRequest, index: number) => ScriptedReply | Promise<ScriptedReply>;

export interface ScriptedModel {
  /** `http://127.0.0.1:<port>`: the base URL of Anthropic and Gemini; OpenAI's is this and `/v1`. */
  url: string;
  openaiUrl: string;
  /** Everything that was received, in order. */
  requests: ScriptedRequest[];
  close(): Promise<void>;
}

/**
 * A model provider on loopback that answers by a script. It speaks Anthropic Messages (`…/messages`), OpenAI Chat
 * Completions (`…/chat/completions`), OpenAI Responses (`…/responses`) and Gemini (`…:generateContent`,
 * `…:streamGenerateContent`), streamed when the request asks for it, and tells the wires apart by the path.
 */
export async function startScriptedModel(script: Script): Promise<ScriptedModel> {
  const requests: ScriptedRequest[] = [];
  const server = createServer((request, response) => {
    answer(request, response, requests, script).catch((error: unknown) => {
      // A script that throws is a broken test: the client sees it at once and in plain words.
      if (!response.headersSent) response.writeHead(599);
      response.end(`scripted model: ${String(error)}`);
    });
  });
  await listen(server);
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    url,
    openaiUrl: `${url}/v1`,
    requests,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function listen(server: Server): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => resolve());
  });
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  requests: ScriptedRequest[],
  script: Script,
): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const sent: Buffer[] = [];
  const recorded = record(request, response, Buffer.concat(chunks), sent);
  requests.push(recorded);
  const reply = await script(recorded, requests.length - 1);
  if (reply.firstDelayMs) await delay(reply.firstDelayMs);

  const write = (bytes: string | Buffer): void => {
    const buffer = typeof bytes === 'string' ? Buffer.from(bytes) : bytes;
    sent.push(buffer);
    response.write(buffer);
  };
  if (reply.error) {
    response.writeHead(reply.error.status, { 'content-type': 'application/json', ...reply.headers });
    write(errorBody(recorded.wire, reply.error));
    response.end();
    return;
  }
  const pieces = reply.raw?.chunks ?? render(recorded, reply);
  const contentType =
    reply.raw?.contentType ?? (wantsStream(recorded) ? 'text/event-stream' : 'application/json');
  response.writeHead(200, { 'content-type': contentType, ...reply.headers });
  response.flushHeaders();
  let count = 0;
  for (const piece of pieces) {
    if (count === reply.cutAfterEvents) {
      // Let the bytes before the cut leave first, or the reset would swallow them.
      await new Promise((resolve) => setImmediate(resolve));
      response.destroy();
      return;
    }
    if (count > 0 && reply.gapMs) await delay(reply.gapMs);
    await reply.hold?.(piece.toString());
    if (response.destroyed) return;
    write(piece);
    count += 1;
  }
  if (reply.cutAfterEvents !== undefined) response.destroy();
  else response.end();
}

function record(
  request: IncomingMessage,
  response: ServerResponse,
  bodyBytes: Buffer,
  sent: Buffer[],
): ScriptedRequest {
  let body: unknown;
  try {
    body = JSON.parse(bodyBytes.toString('utf8'));
  } catch {
    body = undefined;
  }
  const path = request.url ?? '';
  return {
    method: request.method ?? '',
    path,
    wire: wireOfPath(path),
    headers: request.headers,
    rawHeaders: request.rawHeaders,
    bodyBytes,
    body,
    sent: () => Buffer.concat(sent),
    ended: new Promise((resolve) => {
      response.once('close', () => resolve({ complete: response.writableFinished }));
    }),
  };
}

function wantsStream(request: ScriptedRequest): boolean {
  if (request.wire === 'gemini') return request.path.includes(':streamGenerateContent');
  return request.body?.stream === true;
}

function render(request: ScriptedRequest, reply: ScriptedReply): string[] {
  const usage = reply.usage === undefined ? { input: 10, output: (reply.text ?? []).length } : reply.usage;
  const context = { model: String(request.body?.model ?? 'scripted'), body: request.body, usage };
  return wantsStream(request)
    ? streamedAnswer(request.wire, reply, context)
    : [wholeAnswer(request.wire, reply, context)];
}
