import type { Box } from './domain/box.ts';
import { limits } from './domain/limits.ts';
import type { Log } from './domain/log.ts';
import type { Cursors } from './domain/paging.ts';
import type { UrlGuard } from './domain/url-guard.ts';
import { postTo } from './egress/post.ts';
import { createDueWorker } from './runtime/due-worker.ts';
import { createPushTargets } from './services/a2a-push-targets.ts';
import { createWebhookEndpoints } from './services/webhook-endpoints.ts';
import { createWebhookWork, type WebhookWork } from './services/webhook-work.ts';
import type { AgentStore } from './store/agents.ts';
import type { Database } from './store/database.ts';
import { createWebhookDeliveryStore } from './store/webhook-deliveries.ts';
import { createWebhookEndpointStore } from './store/webhook-endpoints.ts';

/** What other systems are told of: the resource, and the sending of what is in the outbox. */
export function openWebhookEndpoints(options: {
  db: Database;
  agents: AgentStore;
  box: Box;
  holdEncryptionKey: () => Promise<void>;
  cursors: Cursors;
  guard: UrlGuard;
  log: Log;
}) {
  const { db } = options;
  const log = options.log.child({ part: 'webhooks' });
  const deps = {
    ...options,
    endpoints: createWebhookEndpointStore(db),
    deliveries: createWebhookDeliveryStore(db),
    targets: createPushTargets(options.guard),
    log,
  };
  const worker = createDueWorker({ work: () => work, lookEveryMs: 250, log });
  const work: WebhookWork = createWebhookWork({ ...deps, post: postTo, wake: worker.wake });
  return {
    service: createWebhookEndpoints({ ...deps, wake: worker.wake }),
    work,
    worker,
    purge: () => deps.deliveries.purge(limits.webhookDeliveryDays),
    async close(): Promise<void> {
      await worker.stop();
      await work.stop();
    },
  };
}
