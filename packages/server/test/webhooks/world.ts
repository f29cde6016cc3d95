import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createBox } from '../../src/domain/box.ts';
import { createCursors } from '../../src/domain/paging.ts';
import { openWebhookEndpoints } from '../../src/open-webhook-endpoints.ts';
import type { Log } from '../../src/domain/log.ts';
import { createUrlGuard } from '../../src/services/url-guard.ts';
import { createAgentStore } from '../../src/store/agents.ts';
import { silentLog } from '../support/log.ts';
import type { Replica } from '../support/run-world.ts';

const encryptionKey = randomBytes(32);
const cursorKey = randomBytes(32);

/** All that tells other systems, over one replica of the run world; 127.0.0.0/8 is opened for it. */
export function webhookParts({ db }: Replica, log: Log = silentLog) {
  return openWebhookEndpoints({
    db,
    agents: createAgentStore(db),
    box: createBox([encryptionKey]),
    holdEncryptionKey: async () => {},
    cursors: createCursors(cursorKey),
    guard: createUrlGuard(['127.0.0.0/8']),
    log,
  });
}

export interface Received {
  path: string;
  headers: IncomingHttpHeaders;
  body: string;
  // oxlint-disable-next-line no-explicit-any -- tests read into bodies of all events
  event: any;
}

export type Answer = number | { status: number; headers?: Record<string, string>; body?: string } | 'silence';

/** A system that is told of events. By default it takes all of them. */
export async function receiver(answer: (request: Received) => Answer = () => 200) {
  const received: Received[] = [];
  let open = 0;
  let mostOpen = 0;
  const server = createServer((request, response) => {
    open += 1;
    mostOpen = Math.max(mostOpen, open);
    response.on('close', () => (open -= 1));
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body = Buffer.concat(chunks).toString();
      const one = { path: request.url!, headers: request.headers, body, event: JSON.parse(body) };
      received.push(one);
      const given = answer(one);
      if (given === 'silence') return;
      const { status, headers = {}, body: text = '' } = typeof given === 'number' ? { status: given } : given;
      response.writeHead(status, headers).end(text);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/hook`,
    received,
    mostOpen: () => mostOpen,
    open: () => open,
    of: (type: string) => received.filter(({ event }) => event.type === type),
    async close(): Promise<void> {
      server.close();
      server.closeAllConnections();
    },
  };
}
