import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import type { Agent, IncomingMessage, RequestOptions } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { count, ModelError } from './wire.ts';

// An `import` of node:http evaluates every export of it, WebSocket and its parts among them: 14 MB and 40 ms more.
const http = process.getBuiltinModule('node:http');

/** About as long as the gateway is shut at least. */
const lookMs = 100;
const maxErrorBytes = 64 * 1024;
/** Longer than any provider thinks before its first byte; without it a lost peer would hold a turn for ever. */
const silenceMs = 600_000;

export interface ModelRequest {
  path: string;
  headers: Record<string, string>;
  body: string;
  signal: AbortSignal;
  onData: (chunk: Buffer) => void;
}

/** HTTP to the model gateway over its Unix socket, connections kept. */
export class GatewayClient {
  readonly #socketPath: string;
  readonly #agent: Agent;
  #look: Promise<boolean> | null = null;

  /** The gateway cuts off whoever opens more than `connections`; calls beyond that wait here for their turn. */
  constructor(socketPath: string, connections: number) {
    this.#socketPath = socketPath;
    this.#agent = new http.Agent({ keepAlive: true, maxFreeSockets: 64, maxSockets: connections });
  }

  /** After a moment, whether the socket lets somebody in now. One looks for all who wait. */
  letsIn(): Promise<boolean> {
    this.#look ??= delay(lookMs)
      .then(() => access(this.#socketPath, constants.W_OK))
      .then(
        () => true,
        () => false,
      )
      .finally(() => (this.#look = null));
    return this.#look;
  }

  /** Resolves when a streamed answer has ended whole. Rejects with ModelError, or with the signal's reason. */
  post(request: ModelRequest): Promise<void> {
    return new Promise((resolve, reject) => {
      if (request.signal.aborted) return reject(request.signal.reason);
      const options: RequestOptions = {
        socketPath: this.#socketPath,
        method: 'POST',
        path: request.path,
        agent: this.#agent,
        timeout: silenceMs,
        headers: {
          ...request.headers,
          'content-type': 'application/json',
          accept: 'text/event-stream',
          'content-length': Buffer.byteLength(request.body),
        },
      };
      const outgoing = http.request(options);
      const abort = () => outgoing.destroy();
      const settle = (error?: unknown) => {
        request.signal.removeEventListener('abort', abort);
        if (request.signal.aborted) reject(request.signal.reason);
        else if (error === undefined) resolve();
        else reject(error);
      };
      request.signal.addEventListener('abort', abort);
      outgoing.on('timeout', () => outgoing.destroy(new Error('no byte for ten minutes')));
      outgoing.on('error', (error: NodeJS.ErrnoException) =>
        settle(shutCodes.has(error.code ?? '') ? shut(error) : lost(error)),
      );
      outgoing.on('response', (response) => {
        if (response.statusCode === 200) return stream(response, request.onData, outgoing, settle);
        void readError(response).then(settle);
      });
      outgoing.end(request.body);
    });
  }

  close(): void {
    this.#agent.destroy();
  }
}

function stream(
  response: IncomingMessage,
  onData: (chunk: Buffer) => void,
  outgoing: { destroy: () => void },
  settle: (error?: unknown) => void,
): void {
  response.on('data', (chunk: Buffer) => {
    try {
      onData(chunk);
    } catch (error) {
      settle(error);
      outgoing.destroy();
    }
  });
  response.on('end', () => settle());
  response.on('error', (error) => settle(lost(error)));
}

/**
 * Nobody may connect to a socket whose mode is 0 (docs/sandbox.md, connections to the service), also when a service that was
 * killed left it so; nor to one whose queue is full (unix(7)).
 */
const shutCodes = new Set(['EACCES', 'EAGAIN']);

function shut(error: Error): ModelError {
  return new ModelError('model_error', `The model gateway lets nobody in (${error.message}).`, {
    retryable: true,
    isLost: true,
    isShut: true,
  });
}

function lost(error: Error): ModelError {
  return new ModelError('model_error', `The connection to the model was lost (${error.message}).`, {
    retryable: true,
    isLost: true,
  });
}

async function readError(response: IncomingMessage): Promise<ModelError> {
  const status = response.statusCode ?? 0;
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of response) {
      bytes += (chunk as Buffer).length;
      if (bytes <= maxErrorBytes) chunks.push(chunk as Buffer);
    }
  } catch {
    // What came until then is enough for a message.
  }
  const { message, code } = errorText(Buffer.concat(chunks).toString('utf8'));
  if (status === 402)
    return new ModelError('budget_exceeded', message || 'The budget for model calls is used up.');
  if (isContextFull(status, code, message)) return new ModelError('context_full', message);
  // The gateway's own word (docs/models.md): there was nobody who could have answered.
  if (status === 502 && code === 'provider_unreachable')
    return new ModelError('model_error', message, { retryable: true, isUnreachable: true });
  const said = message === '' ? '' : `: ${message}`;
  return new ModelError('model_error', `The model provider answered ${status}${said}`, {
    retryable: status === 408 || status === 425 || status === 429 || status >= 500,
    retryAfterMs: retryAfterMs(response.headers),
  });
}

/** `{error: {message, code|type}}` on both wires. */
function errorText(body: string): { message: string; code: string } {
  try {
    const { error } = JSON.parse(body) as {
      error?: { message?: unknown; code?: unknown; type?: unknown } | string;
    };
    if (typeof error === 'string') return { message: error.slice(0, 500), code: '' };
    return { message: `${error?.message ?? ''}`.slice(0, 500), code: `${error?.code ?? error?.type ?? ''}` };
  } catch {
    return { message: body.replace(/\s+/g, ' ').trim().slice(0, 200), code: '' };
  }
}

function isContextFull(status: number, code: string, message: string): boolean {
  if (code === 'context_length_exceeded') return true;
  if (status !== 400 && status !== 413) return false;
  return /prompt is too long|context (length|window)|too many (input )?tokens|maximum context/i.test(message);
}

/** RFC 9110, section 10.2.3, and the finer `retry-after-ms` that some providers send. At most a minute. */
function retryAfterMs(headers: IncomingMessage['headers']): number | null {
  const fine = headers['retry-after-ms'];
  const text = headers['retry-after'];
  let ms: number;
  if (fine !== undefined) ms = Number(fine);
  else if (text === undefined) return null;
  else ms = /^\d+(\.\d+)?$/.test(text) ? Number(text) * 1000 : Date.parse(text) - Date.now();
  return Number.isFinite(ms) ? Math.min(count(ms), 60_000) : null;
}
