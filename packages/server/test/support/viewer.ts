import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import type { LoggedEvent } from './scenario.ts';
import type { Service } from './service.ts';
import { openSse, type SseClient } from './sse.ts';

export interface Viewer {
  conversationId: string;
  /** What it was shown, over all its connections, in order. */
  seen: LoggedEvent[];
  reconnects: number;
  stop(): Promise<void>;
}

/** Follows a conversation as a browser does: whenever the stream breaks it comes back with the last id that it saw. */
export function view(service: Service, conversationId: string): Viewer {
  let client: SseClient | null = null;
  let isStopped = false;
  const viewer: Viewer = {
    conversationId,
    seen: [],
    reconnects: -1,
    async stop() {
      isStopped = true;
      client?.close();
      await following;
    },
  };

  async function connection(): Promise<void> {
    const last = viewer.seen.at(-1)?.seq;
    client = await openSse(`${service.url}/v1/conversations/${conversationId}/events`, {
      key: service.key,
      headers: last === undefined ? {} : { 'last-event-id': String(last) },
    });
    if (client.status !== 200) return client.close();
    viewer.reconnects += 1;
    let read = 0;
    while (!client.ended && !isStopped) {
      for (; read < client.frames.length; read += 1)
        viewer.seen.push(JSON.parse(client.frames[read]!.data!) as LoggedEvent);
      await delay(5);
    }
    for (; read < client.frames.length; read += 1)
      viewer.seen.push(JSON.parse(client.frames[read]!.data!) as LoggedEvent);
  }

  const following = (async () => {
    while (!isStopped) {
      await connection().catch(() => undefined);
      await delay(20);
    }
  })();
  return viewer;
}

/** What a viewer was shown is the log from its beginning: the same events, none missing and none twice. */
export function checkSeen(viewer: Viewer, log: LoggedEvent[]): void {
  assert.deepEqual(
    viewer.seen.map(({ seq, type, data }) => ({ seq, type, data })),
    log.slice(0, viewer.seen.length).map(({ seq, type, data }) => ({ seq, type, data })),
    `what a viewer of ${viewer.conversationId} saw is in the log, as it was seen`,
  );
}
