import type { Box } from './domain/box.ts';
import type { Log } from './domain/log.ts';
import type { Cursors } from './domain/paging.ts';
import type { UrlGuard } from './domain/url-guard.ts';
import { postTo } from './egress/post.ts';
import { createDueWorker } from './runtime/due-worker.ts';
import { createA2aDelivery, type A2aDelivery } from './services/a2a-delivery.ts';
import { createPushTargets } from './services/a2a-push-targets.ts';
import { createCardSigning } from './services/a2a-signing.ts';
import { createA2a } from './services/a2a.ts';
import type { A2aService } from './services/a2a-api.ts';
import { createA2aPushStore } from './store/a2a-push.ts';
import { createA2aSigningStore } from './store/a2a-signing.ts';
import { createA2aTaskStore } from './store/a2a-tasks.ts';
import type { AgentStore } from './store/agents.ts';
import type { Database } from './store/database.ts';

/** What A2A needs beside what every protocol has, and the sending of its push notifications. */
export function openA2a(options: {
  db: Database;
  agents: AgentStore;
  box: Box;
  holdEncryptionKey: () => Promise<void>;
  cursors: Cursors;
  guard: UrlGuard;
  nodeId: string;
  log: Log;
}): { service: A2aService; delivery: { start(): void; close(): Promise<void> } } {
  const { db, box, guard, nodeId, log } = options;
  const tasks = createA2aTaskStore(db);
  const pushes = createA2aPushStore(db);
  const targets = createPushTargets(guard);
  const delivery: A2aDelivery = createA2aDelivery({
    tasks,
    pushes,
    targets,
    box,
    nodeId,
    post: postTo,
    // With its SDK, which is loaded when something is to be told first.
    render: async (events, task) =>
      (await import('./edges/a2a/push-render.ts')).renderNotifications(events, task),
    log,
  });
  const worker = createDueWorker({ work: () => delivery, lookEveryMs: 300, log });
  return {
    service: {
      ...createA2a({ ...options, tasks, pushes, targets }),
      ...createCardSigning({ ...options, signingKeys: createA2aSigningStore(db) }),
    },
    delivery: {
      start: worker.start,
      async close() {
        await worker.stop();
        await delivery.stop();
      },
    },
  };
}
