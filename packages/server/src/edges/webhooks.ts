import type { IncomingMessage, ServerResponse } from 'node:http';
import { DomainError, notFound } from '../domain/errors.ts';
import type { Inbox } from '../services/inbox.ts';

export interface WebhookEdgeOptions {
  inbox: Inbox;
  /** As senders see the service: some sign the URL. */
  baseUrl: string;
}

const path = /^\/api\/webhooks\/([a-z]{1,20})\/([0-9a-f-]{36})(\?.*)?$/;
const bodyMs = 10_000;
/** Of all bodies that are being read or worked on: nobody has been verified yet. */
const memoryBytes = 192 * 1024 * 1024;

/** Serves `/api/webhooks/{kind}/{channelId}`: raw bytes in, the answer of the inbox out. Mounted before the app. */
export function createWebhookEdge({ inbox, baseUrl }: WebhookEdgeOptions) {
  const memory = { used: 0 };
  return {
    prefix: '/api/webhooks/',
    async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
      const match = path.exec(request.url ?? '');
      if (!match) throw notFound();
      const [, kind, channelId] = match as unknown as [string, string, string];
      const { bodyBytes, methods } = await inbox.admit(kind, channelId);
      if (!methods.includes(request.method ?? '')) {
        response.setHeader('Allow', methods.join(', '));
        throw new DomainError('method_not_allowed', `This address takes ${methods.join(' and ')} only.`);
      }
      if (memory.used > memoryBytes) {
        throw new DomainError('unavailable', 'Too much comes in at once; send it again.', {
          retryAfterSeconds: 5,
        });
      }
      const held = { bytes: 0 };
      try {
        const body = await readBytes(request, bodyBytes, (bytes) => {
          held.bytes += bytes;
          memory.used += bytes;
        });
        const answer = await inbox.receive(kind, channelId, {
          method: request.method ?? '',
          url: baseUrl + (request.url ?? ''),
          headers: headersOf(request),
          body,
        });
        response.writeHead(answer.status, {
          ...answer.headers,
          'Content-Length': Buffer.byteLength(answer.body),
        });
        response.end(answer.body);
      } finally {
        memory.used -= held.bytes;
      }
    },
  };
}

function headersOf(request: IncomingMessage): Map<string, string> {
  const headers = new Map<string, string>();
  for (const [name, value] of Object.entries(request.headers)) {
    if (value !== undefined) headers.set(name, Array.isArray(value) ? value.join(', ') : value);
  }
  return headers;
}

/** The whole body. What is too large is refused before it is read to its end. */
async function readBytes(
  request: IncomingMessage,
  maxBytes: number,
  onBytes: (bytes: number) => void,
): Promise<Buffer> {
  const tooLarge = () => new DomainError('body_too_large', `The body may have at most ${maxBytes} bytes.`);
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) throw tooLarge();
  const timer = setTimeout(() => request.destroy(), bodyMs);
  try {
    const chunks: Buffer[] = [];
    let size = 0;
    // A refusal has to reach the sender, so the connection outlives the loop.
    for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      size += chunk.length;
      onBytes(chunk.length);
      if (size > maxBytes) throw tooLarge();
      chunks.push(chunk);
    }
    return Buffer.concat(chunks);
  } finally {
    clearTimeout(timer);
  }
}
