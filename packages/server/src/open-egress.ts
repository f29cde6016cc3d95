import type { Config } from './config.ts';
import { parseNetwork } from './domain/address-ranges.ts';
import type { Log } from './domain/log.ts';
import type { Cursors } from './domain/paging.ts';
import type { Doorbell } from './domain/ports/doorbell.ts';
import type { Egress } from './domain/ports/egress.ts';
import type { SandboxDriver } from './domain/ports/sandbox.ts';
import { withBroker } from './egress/broker/brokered-egress.ts';
import type { OpenSecretBroker } from './egress/broker/secret-broker.ts';
import { createEgressProxy } from './egress/proxy.ts';
import { openFilesLimit } from './open-files.ts';
import { createEgressRecords } from './services/egress-records.ts';
import { createEgress } from './services/egress.ts';
import type { AgentStore } from './store/agents.ts';
import type { Database } from './store/database.ts';

const RETRY_MS = 1_000;

/** The way out of this node's sandboxes, with what is recorded of it and the service that changes its policies. */
export function openEgress(deps: {
  config: Pick<Config, 'defaultEgress' | 'allowPrivateNetworks'>;
  db: Database;
  agents: AgentStore;
  cursors: Cursors;
  doorbell: Doorbell;
  driver: SandboxDriver;
  broker: OpenSecretBroker;
  log: Log;
}) {
  const { config, db, doorbell, driver } = deps;
  const log = deps.log.child({ part: 'egress' });
  const records = createEgressRecords({ db, log });
  let isClosed = false;
  let possible: Promise<boolean> | null = null;
  /** Found by a trial, so it is asked once; a trial that failed altogether tells nothing. */
  async function transparentPossible(): Promise<boolean> {
    possible ??= driver.capabilities().then(({ usable, transparentEgress }) => {
      if (!usable) possible = null;
      return transparentEgress;
    });
    return possible.catch(() => false);
  }
  const service = createEgress({
    db,
    agents: deps.agents,
    cursors: deps.cursors,
    defaultPolicy: config.defaultEgress,
    async changed(agentId) {
      doorbell.ring('egress', agentId);
      await hear(agentId);
    },
    transparentPossible,
  });
  const proxy: Egress = createEgressProxy({
    readPolicy: (agentId) => db.outside(() => service.policyOf(agentId)),
    recorder: records,
    allowPrivateNetworks: config.allowPrivateNetworks.map((text) => parseNetwork(text)!),
    // Each takes two descriptors, one for either end.
    maxConnections: Math.floor(openFilesLimit() / 8),
    interceptor: ({ sandboxId }) => deps.broker.interceptorOf(sandboxId),
    transparentPossible,
  });
  /** A sandbox must not go on with a policy that its owner has taken back, so what could not be read is read again. */
  async function hear(agentId: string | null): Promise<void> {
    await proxy.policyChanged(agentId).catch((error: unknown) => {
      log.warn('A changed egress policy could not be read; it is tried again.', {
        agentId,
        error: String(error),
      });
      if (!isClosed) setTimeout(() => void hear(agentId), RETRY_MS).unref();
    });
  }
  doorbell.on('egress', (agentIds) => agentIds.forEach((agentId) => void hear(agentId)));
  doorbell.onReconnect(() => void hear(null));

  return {
    service,
    proxy: withBroker(proxy, deps.broker),
    async close(): Promise<void> {
      isClosed = true;
      proxy.close();
      deps.broker.closeAll();
      await records.close().catch((error: unknown) => {
        log.warn('What went out of sandboxes could not be recorded.', { error: String(error) });
      });
    },
  };
}

/** What `GET /metrics` shows of it. */
export function egressGauges(proxy: Egress): Record<string, number> {
  const { connections, refusals, sentBytes, receivedBytes } = proxy.stats();
  return {
    berth_egress_connections_open: connections,
    berth_egress_refused_total: refusals,
    berth_egress_sent_bytes_total: sentBytes,
    berth_egress_received_bytes_total: receivedBytes,
  };
}
