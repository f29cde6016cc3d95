import type { IncomingMessage, ServerResponse } from 'node:http';
import { DomainError, notFound } from '../domain/errors.ts';
import { type BodyHold, Flight } from '../domain/flight.ts';
import { GrowingBytes } from '../domain/growing-bytes.ts';
import { limits } from '../domain/limits.ts';
import { asBusy, type Inbox } from '../services/inbox.ts';
import { abortWhenGone } from './http/gone.ts';
import { shared } from '../services/shared-slack.ts';

export interface WebhookEdgeOptions {
  inbox: Pick<Inbox, 'admit' | 'receive'>;
  /** As senders see the service: some sign the URL. */
  baseUrl: string;
  /** Of bodies that are read or worked on at once; default: `limits.webhookBodies`. */
  bodies?: Flight;
  /** The same for the address that channels share. */
  sharedBodies?: Flight;
}

const path = /^\/api\/webhooks\/([a-z]{1,20})(?:\/([0-9a-f-]{36}))?(\?.*)?$/;
const bodyMs = 10_000;
const noBytes = Buffer.alloc(0);

/** Serves `/api/webhooks/{kind}/{channelId}`, and `/api/webhooks/slack` for an app that several agents share: raw bytes in, the answer of the inbox out. Mounted before the app. */
export function createWebhookEdge({ inbox, baseUrl, ...options }: WebhookEdgeOptions) {
  const { bodies = new Flight(limits.webhookBodies), sharedBodies = new Flight(limits.sharedAppBodies) } =
    options;
  return {
    prefix: '/api/webhooks/',
    async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
      const match = path.exec(request.url ?? '');
      if (!match) throw notFound();
      const [, kind, channelId = shared] = match as unknown as [string, string, string | undefined];
      const channel = await inbox.admit(kind, channelId);
      const { bodyBytes, methods } = channel;
      if (!methods.includes(request.method ?? '')) {
        response.setHeader('Allow', methods.join(', '));
        throw new DomainError('method_not_allowed', `This address takes ${methods.join(' and ')} only.`);
      }
      const asked = {
        method: request.method ?? '',
        url: baseUrl + (request.url ?? ''),
        headers: headersOf(request),
      };
      const isReserved = channel.lane({ ...asked, body: noBytes }) === 'reserved';
      const flight = channelId === shared ? sharedBodies : bodies;
      const held = flight.open(channel.orgId, {
        partId: channelId,
        ofPartAtLeast: bodyBytes,
        // Those that never send again find room when others do not.
        tenthsOfAll: isReserved ? 10 : limits.webhookBodiesSentAgainTenths,
      });
      try {
        const most = { bytes: bodyBytes, hurriedBytes: channel.hurriedBytes ?? bodyBytes };
        const body = await readBytes(request, most, () => asBusy(channel, null), held);
        // Whoever does not send again is read to its end, also when it did not wait for the answer.
        const gone = isReserved ? undefined : abortWhenGone(response, new AbortController());
        const answer = await inbox.receive(kind, channelId, { ...asked, body }, gone);
        response.writeHead(answer.status, {
          ...answer.headers,
          'Content-Length': Buffer.byteLength(answer.body),
        });
        response.end(answer.body);
      } finally {
        held.drop();
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

/** Of the body. That a sender goes amid it, or takes too long, is its own doing, and no fault of the service. */
async function* chunksOf(request: IncomingMessage): AsyncGenerator<Buffer> {
  try {
    // A refusal has to reach the sender, so the connection outlives the loop.
    yield* request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
  } catch (error) {
    throw new DomainError('invalid_request', 'The body ended before it was complete.', { cause: error });
  }
}

/** The whole body. What is too large is refused before it is read to its end. */
async function readBytes(
  request: IncomingMessage,
  most: { bytes: number; hurriedBytes: number },
  busy: () => DomainError,
  hold: BodyHold,
): Promise<Buffer> {
  const check = (bytes: number) => {
    if (bytes > most.bytes)
      throw new DomainError('body_too_large', `The body may have at most ${most.bytes} bytes.`);
    if (bytes > most.hurriedBytes) throw busy();
  };
  check(Number(request.headers['content-length'] ?? 0));
  const timer = setTimeout(() => request.destroy(), bodyMs);
  try {
    const held = new GrowingBytes(most.bytes);
    for await (const chunk of chunksOf(request)) {
      check(held.length + chunk.length);
      try {
        hold.add(chunk.length);
      } catch {
        throw busy();
      }
      held.add(chunk);
    }
    return held.whole();
  } finally {
    clearTimeout(timer);
  }
}
