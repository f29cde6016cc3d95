import { BerthError, errorOf } from './errors.ts';

export interface ClientOptions {
  /** Base address of the service, e.g. `http://localhost:8080`. */
  baseUrl: string;
  apiKey: string;
  /** Tries of one request in all; only what is safe to repeat is repeated. Default 4. */
  maxAttempts?: number;
  fetch?: typeof fetch;
}

export interface RequestOptions {
  query?: Record<string, string | number | undefined>;
  body?: unknown;
  /** A body that is bytes, instead of `body`. A stream can be sent only once, so that its request is not repeated. */
  bytes?: Uint8Array | ReadableStream<Uint8Array>;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** Sends one request. Resolves with the answer when it is 2xx, else throws BerthError. */
export type Send = (method: string, path: string, options?: RequestOptions) => Promise<Response>;

const RETRIED = new Set([429, 502, 503, 504]);

/**
 * Retries on 429, 502, 503, 504 and lost connections, honouring Retry-After. A POST is repeated as well, since each
 * carries an Idempotency-Key: the service does it once and gives the first answer again.
 */
export function createSend(options: ClientOptions): Send {
  const base = options.baseUrl.replace(/\/+$/, '');
  const maxAttempts = options.maxAttempts ?? 4;
  const doFetch = options.fetch ?? fetch;

  return async (method, path, request = {}) => {
    const url = new URL(base + path);
    for (const [name, value] of Object.entries(request.query ?? {})) {
      if (value !== undefined) url.searchParams.set(name, String(value));
    }
    const headers: Record<string, string> = {
      accept: 'application/json',
      authorization: `Bearer ${options.apiKey}`,
      ...request.headers,
    };
    if (method === 'POST') headers['idempotency-key'] ??= crypto.randomUUID();
    const init: RequestInit = { method, headers, redirect: 'error' };
    if (request.body !== undefined) {
      headers['content-type'] = 'application/json';
      init.body = JSON.stringify(request.body);
    }
    if (request.bytes !== undefined) {
      init.body = request.bytes as NonNullable<RequestInit['body']>;
      if (request.bytes instanceof ReadableStream) Object.assign(init, { duplex: 'half' });
    }
    const tries = request.bytes instanceof ReadableStream ? 1 : maxAttempts;
    if (request.signal) init.signal = request.signal;

    for (let attempt = 1; ; attempt += 1) {
      const failure = await attemptOnce(doFetch, url, init);
      if (failure instanceof Response) return failure;
      const aborted = request.signal?.aborted === true;
      const retried = failure.status === 0 || RETRIED.has(failure.status) || isStillRunning(failure);
      if (aborted || !retried || attempt >= tries) throw failure;
      await pause(delayMs(attempt, failure.retryAfterSeconds), request.signal);
    }
  };
}

/** The first try of this very request is still at work: its answer will be there soon. */
function isStillRunning(failure: BerthError): boolean {
  return failure.code === 'idempotency_in_progress';
}

async function attemptOnce(
  doFetch: typeof fetch,
  url: URL,
  init: RequestInit,
): Promise<Response | BerthError> {
  let response: Response;
  try {
    response = await doFetch(url, init);
  } catch (cause) {
    return new BerthError(`No connection to ${url.origin}.`, { status: 0, cause });
  }
  return response.ok ? response : errorOf(response);
}

function delayMs(attempt: number, retryAfterSeconds: number | undefined): number {
  if (retryAfterSeconds !== undefined) return Math.min(retryAfterSeconds, 60) * 1000;
  return Math.min(200 * 2 ** (attempt - 1), 5_000) * (0.5 + Math.random() / 2);
}

export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(done, ms);
    function done(): void {
      signal?.removeEventListener('abort', stop);
      resolve();
    }
    function stop(): void {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    }
    if (signal?.aborted) stop();
    else signal?.addEventListener('abort', stop, { once: true });
  });
}
