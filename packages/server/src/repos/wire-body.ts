import type { IncomingMessage } from 'node:http';
import type { Readable, Writable } from 'node:stream';
import { createGunzip } from 'node:zlib';

/** The client sent what cannot be taken; `status` and `message` are the answer. */
export class WireError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.name = 'WireError';
    this.status = status;
  }
}

/** The request's body as git wants it. Clients compress long negotiations (gitprotocol-http, "Content-Encoding"). */
export function openBody(request: IncomingMessage): Readable {
  const encoding = request.headers['content-encoding'] ?? 'identity';
  if (encoding === 'identity') return request;
  if (encoding !== 'gzip' && encoding !== 'x-gzip') {
    throw new WireError(415, `The content encoding ${JSON.stringify(encoding)} is not supported; use gzip.`);
  }
  const gunzip = createGunzip();
  request.on('error', (error) => gunzip.destroy(error));
  request.on('aborted', () => gunzip.destroy(new WireError(400, 'The request was cut off.')));
  return request.pipe(gunzip);
}

/** Yields the body's chunks; gives up on a client that is silent for `idleMs`. Can be left and taken up again. */
export async function* chunksOf(body: Readable, idleMs: number): AsyncGenerator<Buffer> {
  const idle = setTimeout(() => body.destroy(new WireError(408, 'The client fell silent.')), idleMs);
  try {
    for await (const chunk of body.iterator({ destroyOnReturn: false })) {
      idle.refresh();
      yield chunk as Buffer;
    }
  } catch (error) {
    throw isBadGzip(error) ? new WireError(400, 'The body is not the gzip that its header says.') : error;
  } finally {
    clearTimeout(idle);
  }
}

/** Codes of zlib errors begin with `Z_` (Node.js, "Zlib constants"). */
function isBadGzip(error: unknown): boolean {
  return String((error as NodeJS.ErrnoException).code).startsWith('Z_');
}

/**
 * Copies the body into a git process with back-pressure, up to `maxBytes` after decompression. What git no longer reads
 * is taken and dropped, so that the client gets to read git's answer.
 */
export async function pumpBody(
  body: Readable,
  target: Writable,
  limits: { maxBytes: number; idleMs: number },
): Promise<void> {
  let bytes = 0;
  for await (const chunk of chunksOf(body, limits.idleMs)) {
    bytes += chunk.length;
    if (bytes > limits.maxBytes)
      throw new WireError(413, `The request is larger than ${formatMiB(limits.maxBytes)}.`);
    if (target.destroyed || !target.writable) continue;
    if (!target.write(chunk)) await drained(target);
  }
  target.end();
}

function drained(target: Writable): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      target.off('drain', done);
      target.off('close', done);
      target.off('error', done);
      resolve();
    };
    target.on('drain', done);
    target.on('close', done);
    target.on('error', done);
  });
}

export function formatMiB(bytes: number): string {
  return `${Math.floor(bytes / (1024 * 1024))} MiB`;
}
