import type { ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Context } from 'hono';
import { DomainError } from '../../domain/errors.ts';
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

/** Straight to the Node response. Once the head is out, a failure can only be told by cutting the connection. */
export async function sendBytes(
  c: Context<Env>,
  head: Head,
  status: number,
  headers: Record<string, string>,
  content: Readable | null,
): Promise<Response> {
  Object.assign(head, headers);
  const outgoing = c.env?.outgoing;
  if (!outgoing || content === null) {
    const body = content === null ? null : (Readable.toWeb(content) as ReadableStream<Uint8Array>);
    return new Response(body, { status, headers: head });
  }
  outgoing.writeHead(status, head);
  await pipeline(content, outgoing).catch(() => cut(outgoing));
  return RESPONSE_ALREADY_SENT;
}

function cut(outgoing: ServerResponse): void {
  outgoing.destroy();
}
