import type { IncomingMessage } from 'node:http';
import type { Readable, Writable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { PktLineError, PktLineReader } from './pkt-line.ts';

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

/** Runs what reads the client's packets: what is wrong with them is the client's fault. */
export function reading<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw error instanceof PktLineError
      ? new WireError(400, `The request is not what git sends: ${error.message}`)
      : error;
  }
}

/** Looks at a body that must be packets from its first byte to its last, and throws WireError for any other. */
export function packetCheck(): { take(chunk: Buffer): void; end(): void } {
  const reader = new PktLineReader();
  return {
    take: (chunk) =>
      reading(() => {
        reader.push(chunk);
        while (reader.next());
      }),
    end() {
      if (reader.rest().length > 0) throw new WireError(400, 'The request ends in the middle of a packet.');
    },
  };
}

interface Pumped {
  /** What was read of the body already. */
  head?: Buffer;
  check?: ReturnType<typeof packetCheck>;
  isPacked: boolean;
  /** After decompression. */
  maxBytes: number;
  idleMs: number;
}

/**
 * Copies the body into a git process with back-pressure. What git no longer reads is taken and dropped, so that the
 * client gets to read git's answer. Of a packed body the last piece is given only when it has ended well: git takes
 * nothing for whole whose packing was cut off or damaged.
 */
export async function pumpBody(body: Readable, target: Writable, how: Pumped): Promise<void> {
  const { isPacked } = how;
  let held = how.head ?? null;
  const give = async (piece: Buffer | null): Promise<void> => {
    if (piece === null || target.destroyed || !target.writable) return;
    if (!target.write(piece)) await drained(target);
  };
  let bytes = 0;
  if (!isPacked) {
    await give(held);
    held = null;
  }
  for await (const chunk of chunksOf(body, how.idleMs)) {
    bytes += chunk.length;
    if (bytes > how.maxBytes)
      throw new WireError(413, `The request is larger than ${formatMiB(how.maxBytes)}.`);
    how.check?.take(chunk);
    await give(isPacked ? held : chunk);
    if (isPacked) held = chunk;
  }
  how.check?.end();
  await give(held);
  target.end();
}

export function drained(target: Writable): Promise<void> {
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
