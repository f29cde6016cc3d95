import { Agent as HttpAgent, request as httpRequest } from 'node:http';
import type { ClientRequest, IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import type { Call } from './call.ts';
import { requestHeaders, responseHeaders } from './headers.ts';
import { PieceJoiner } from './piece-joiner.ts';
import type { Route } from './routes.ts';
import { WireError } from './wires.ts';

export interface Timeouts {
  connectMs: number;
  /** From the sent request to the first byte of the answer; models may think for long. */
  firstByteMs: number;
  /** Between two pieces of an answer. */
  idleMs: number;
}

export const defaultTimeouts: Timeouts = { connectMs: 10_000, firstByteMs: 600_000, idleMs: 300_000 };

/** Kept-alive connections to providers. */
export interface Connections {
  http: HttpAgent;
  https: HttpsAgent;
}

export function openConnections(): Connections {
  // The last used connection is taken first, so that the others grow old and close.
  const options = {
    keepAlive: true,
    keepAliveMsecs: 30_000,
    maxFreeSockets: 256,
    scheduling: 'lifo',
  } as const;
  return { http: new HttpAgent(options), https: new HttpsAgent(options) };
}

export function closeConnections(connections: Connections): void {
  connections.http.destroy();
  connections.https.destroy();
}

/** Joins the provider's address, its version and the operation; nothing of it but the model comes from the request. */
export function upstreamUrl(route: Route, call: Call): string {
  const { kind, baseUrl } = call.provider;
  const base = baseUrl ?? '';
  if (route.wire === 'gemini') {
    if (kind !== 'gemini') throw noSuchPath(call);
    return `${base}/v1beta/models/${encodeURIComponent(call.model)}:${route.operation}${route.query}`;
  }
  if (kind === 'openai') return `${base}/${route.operation}${route.query}`;
  if (kind === 'anthropic') return `${base}/v1/${route.operation}${route.query}`;
  if (route.wire !== 'openai-chat') throw noSuchPath(call);
  return `${base}/v1beta/openai/${route.operation}${route.query}`;
}

function noSuchPath(call: Call): WireError {
  return new WireError('not_found', `The model provider "${call.provider.name}" does not have this path.`);
}

function credentials(route: Route, call: Call): OutgoingHttpHeaders {
  if (call.key === null) return {};
  if (route.wire === 'anthropic' && call.provider.kind === 'anthropic') return { 'x-api-key': call.key };
  if (route.wire === 'gemini') return { 'x-goog-api-key': call.key };
  return { authorization: `Bearer ${call.key}` };
}

/** What became of a call at the provider. */
export interface Outcome {
  /** Null = there was no answer. */
  status: number | null;
  /** The answer came to its end. */
  isComplete: boolean;
  error: WireError | null;
}

export interface UpstreamOptions {
  connections: Connections;
  timeouts: Timeouts;
  incoming: IncomingMessage;
  response: ServerResponse;
  /** Sees each piece of a successful answer before it is passed on. */
  onStart: (upstream: IncomingMessage) => void;
  /** Returns whether the piece may wait a moment for those that follow. */
  onChunk: (chunk: Buffer) => boolean;
}

/**
 * Sends the call and passes the answer on, byte for byte and as it comes; only small pieces of a stream are joined for a
 * moment. Ends the upstream call as soon as the client is gone. Resolves once, whatever happens; when nothing was written
 * yet and there is an `error`, the caller answers it.
 */
export function sendUpstream(route: Route, call: Call, options: UpstreamOptions): Promise<Outcome> {
  const url = new URL(upstreamUrl(route, call));
  const length = call.body.reduce((sum, piece) => sum + piece.length, 0);
  const headers = {
    ...requestHeaders(options.incoming.headers),
    ...call.provider.headers,
    ...credentials(route, call),
    'content-length': length,
  };
  const isHttps = url.protocol === 'https:';
  const upstream = (isHttps ? httpsRequest : httpRequest)(url, {
    method: 'POST',
    headers,
    agent: isHttps ? options.connections.https : options.connections.http,
  });
  return new Promise((resolve) => {
    const settle = (outcome: Outcome): void => {
      options.response.off('close', onClientGone);
      resolve(outcome);
    };
    const onClientGone = (): void => {
      if (!options.response.writableFinished) upstream.destroy(new ClientGone());
    };
    options.response.on('close', onClientGone);
    watchTimes(upstream, isHttps, options.timeouts);
    upstream.on('error', (error) => settle({ status: null, isComplete: false, error: asWireError(error) }));
    upstream.on('response', (answer) => {
      answer.socket.setTimeout(options.timeouts.idleMs);
      forward(answer, call, options, settle);
    });
    // Head and body leave in one write.
    upstream.cork();
    for (const piece of call.body) upstream.write(piece);
    upstream.end();
  });
}

class ClientGone extends Error {}
class TooSlow extends Error {}
class NoConnection extends Error {}

function watchTimes(upstream: ClientRequest, isHttps: boolean, timeouts: Timeouts): void {
  const connecting = setTimeout(() => upstream.destroy(new NoConnection()), timeouts.connectMs);
  upstream.on('close', () => clearTimeout(connecting));
  upstream.on('socket', (socket) => {
    if (!socket.connecting) clearTimeout(connecting);
    else socket.once(isHttps ? 'secureConnect' : 'connect', () => clearTimeout(connecting));
  });
  upstream.setTimeout(timeouts.firstByteMs, () => upstream.destroy(new TooSlow()));
}

/** Says what happened without addresses: the sandbox has no business with where the operator's providers are. */
function asWireError(error: Error): WireError | null {
  if (error instanceof ClientGone) return null;
  if (error instanceof TooSlow)
    return new WireError('provider_timeout', 'The model provider did not answer in time.');
  if (error instanceof NoConnection)
    return new WireError(
      'provider_unreachable',
      'The model provider cannot be reached (no connection in time).',
    );
  const code = (error as NodeJS.ErrnoException).code;
  const reason = code && /^[A-Z_]{3,40}$/.test(code) ? ` (${code})` : '';
  return new WireError('provider_unreachable', `The model provider cannot be reached${reason}.`);
}

function forward(
  answer: IncomingMessage,
  call: Call,
  options: UpstreamOptions,
  settle: (outcome: Outcome) => void,
): void {
  const status = answer.statusCode ?? 502;
  if (status >= 300) {
    forwardRefusal(answer, status, call, options.response, settle);
    return;
  }
  const { response } = options;
  options.onStart(answer);
  const length = answer.headers['content-length'];
  response.writeHead(status, {
    ...responseHeaders(answer.headers),
    ...(length ? { 'content-length': length } : {}),
  });
  // Node would write each chunk as four pieces, which costs several times as much as one.
  const isChunked = response.chunkedEncoding;
  response.chunkedEncoding = false;
  // The head leaves with the first piece when that is there already, else alone. Once it has left, this would write nothing.
  let hasLeft = false;
  setImmediate(() => hasLeft || response.flushHeaders());
  const resume = (): void => void answer.resume();
  response.on('drain', resume);
  const joiner = new PieceJoiner((pieces) => {
    if (response.destroyed) return;
    hasLeft = true;
    if (!response.write(isChunked ? asChunk(pieces) : Buffer.concat(pieces))) answer.pause();
  });
  answer.on('data', (chunk: Buffer) => {
    joiner.push(chunk, options.onChunk(chunk));
  });
  answer.on('end', () => {
    hasLeft = true;
    const rest = joiner.take();
    if (rest.length === 0) response.end(isChunked ? lastChunk : undefined);
    else response.end(isChunked ? asChunk(rest, lastChunk) : Buffer.concat(rest));
  });
  answer.on('error', () => {
    // Handled in `close`, which follows.
  });
  answer.on('close', () => {
    response.off('drain', resume);
    joiner.close();
    // A cut stream must not look like one that ended. Node writes at the end of the tick, and what came is passed on.
    if (!answer.complete) setImmediate(() => response.destroy());
    settle({ status, isComplete: answer.complete, error: null });
  });
}

const lineEnd = Buffer.from('\r\n');
const lastChunk = Buffer.from('0\r\n\r\n');

/** Pieces as one of the chunked coding (RFC 9112, section 7.1). It is never empty, which would be the end. */
function asChunk(pieces: Buffer[], ...after: Buffer[]): Buffer {
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  return Buffer.concat([Buffer.from(`${length.toString(16)}\r\n`, 'latin1'), ...pieces, lineEnd, ...after]);
}

const refusalBytes = 64 * 1024;

/** Refusals are short; they are held back until it is sure that they do not quote the key. */
function forwardRefusal(
  answer: IncomingMessage,
  status: number,
  call: Call,
  response: ServerResponse,
  settle: (outcome: Outcome) => void,
): void {
  const chunks: Buffer[] = [];
  let bytes = 0;
  let isSettled = false;
  const refuse = (error: WireError): void => {
    if (isSettled) return;
    isSettled = true;
    settle({ status, isComplete: false, error });
    answer.destroy();
  };
  if (status < 400) {
    refuse(
      new WireError(
        'provider_unreachable',
        'The model provider answered with a redirect, which is not followed.',
      ),
    );
    return;
  }
  if (status === 401) {
    const source = call.provider.keyVariable || 'its configured key';
    refuse(
      new WireError(
        'provider_refused_key',
        `The model provider "${call.provider.name}" refused the key of ${source}.`,
      ),
    );
    return;
  }
  answer.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    chunks.push(chunk);
    if (bytes > refusalBytes) refuse(tooLong(status));
  });
  answer.on('error', () => {
    // Handled in `close`, which follows.
  });
  answer.on('close', () => {
    if (isSettled) return;
    const body = Buffer.concat(chunks);
    if (!answer.complete)
      return refuse(new WireError('provider_unreachable', 'The model provider cut its answer short.'));
    if (call.key !== null && body.includes(call.key)) return refuse(tooLong(status));
    isSettled = true;
    // 402 is this gateway's own word for the agent's budget; the provider's is about the operator's account.
    const told = status === 402 ? 403 : status;
    response.writeHead(told, { ...responseHeaders(answer.headers), 'content-length': body.length });
    response.end(body);
    settle({ status, isComplete: true, error: null });
  });
}

function tooLong(status: number): WireError {
  return new WireError(
    'provider_unreachable',
    `The model provider answered with status ${status}; its text is not shown.`,
  );
}
