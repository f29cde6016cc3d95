import type { ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Context } from 'hono';
import { DomainError } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';
import type { Log } from '../../domain/log.ts';
import { whenStill } from '../../domain/still-reader.ts';
import type { Head } from './answer.ts';
import type { Env } from './request.ts';

/** A client that sends nothing for so long is let go. */
const SILENCE_MS = 60_000;

/** The body as it comes, held back while it is not taken. Ends with an error when the client goes away within. */
export async function* uploadOf(c: Context<Env>): AsyncGenerator<Buffer> {
  const incoming = c.env?.incoming;
  if (!incoming) {
    for await (const piece of c.req.raw.body ?? []) yield Buffer.from(piece);
    return;
  }
  const lost = () => new DomainError('invalid_request', 'The body ended before it was complete.');
  incoming.setTimeout(SILENCE_MS, () => incoming.destroy());
  try {
    // Refused in its middle, the connection must live on for the answer.
    for await (const piece of incoming.iterator({ destroyOnReturn: false })) yield piece as Buffer;
  } catch (error) {
    throw incoming.complete ? error : lost();
  } finally {
    incoming.setTimeout(0);
  }
  if (!incoming.complete) throw lost();
}

/**
 * Straight to the Node response. Rejects with what went wrong before there is a first piece: until then the head is held
 * back, and an answer can say it. A client that takes nothing for `stillMs` is cut off. Once the head is out, a failure can only be told by cutting the connection, and in the log.
 */
export async function sendBytes(
  c: Context<Env>,
  head: Head,
  log: Log,
  status: number,
  headers: Record<string, string>,
  content: Readable | null,
  stillMs: number = limits.stillReaderMs,
): Promise<Response> {
  if (content !== null) await firstPiece(content);
  Object.assign(head, headers);
  const outgoing = c.env?.outgoing;
  if (!outgoing || content === null) {
    const body = content === null ? null : (Readable.toWeb(content) as ReadableStream<Uint8Array>);
    return new Response(body, { status, headers: head });
  }
  const allSent = whenStill(outgoing, stillMs, () => cut(outgoing));
  outgoing.writeHead(status, head);
  await pipeline(content, outgoing).catch((error: unknown) => {
    const fields = { requestId: head['X-Request-Id'], path: c.req.path, error: String(error) };
    if (isGone(error)) log.debug('A client went away before it had all of a body.', fields);
    else log.info('A body was cut off, since it could not be read to its end.', fields);
    cut(outgoing);
  });
  allSent();
  return RESPONSE_ALREADY_SENT;
}

/** Resolves when there is something to read, or nothing will come. */
function firstPiece(content: Readable): Promise<void> {
  // Until somebody else listens, a failure that follows at once would be nobody's, and end the process.
  content.on('error', () => undefined);
  return new Promise((resolve, reject) => {
    const settle = (error?: Error | null): void => {
      content.off('readable', settle).off('end', settle).off('error', settle).off('close', settle);
      const failure = error ?? content.errored;
      if (failure) reject(failure);
      else resolve();
    };
    content.on('readable', settle).on('end', settle).on('error', settle).on('close', settle);
  });
}

/** Whether it was the connection that ended early, and not what was to be sent over it. */
function isGone(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException | null)?.code ?? '';
  return ['ERR_STREAM_PREMATURE_CLOSE', 'ERR_STREAM_UNABLE_TO_PIPE', 'ECONNRESET', 'EPIPE'].includes(code);
}

function cut(outgoing: ServerResponse): void {
  outgoing.destroy();
}
