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

/** The way out of this node's sandboxes, with what is recorded of it and the service that changes its policies. */
export function openEgress(deps: {
  config: Config;
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
  let possible: Promise<boolean> | null = null;
  const transparentPossible = (): Promise<boolean> =>
    (possible ??= driver.capabilities().then(
      (found) => found.transparentEgress,
      () => false,
    ));
  const service = createEgress({
    db,
    agents: deps.agents,
    cursors: deps.cursors,
    defaultPolicy: config.defaultEgress,
    async changed(agentId) {
      await proxy.policyChanged(agentId);
      doorbell.ring('egress', agentId);
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
  const hear = (agentId: string | null) =>
    proxy.policyChanged(agentId).catch((error: unknown) => {
      log.warn('A changed egress policy could not be read.', { agentId, error: String(error) });
    });
  doorbell.on('egress', (agentIds) => agentIds.forEach((agentId) => void hear(agentId)));
  doorbell.onReconnect(() => void hear(null));

  return {
    service,
    proxy: withBroker(proxy, deps.broker),
    async close(): Promise<void> {
      proxy.close();
      deps.broker.closeAll();
      await records.close().catch((error: unknown) => {
        log.warn('What went out of sandboxes could not be recorded.', { error: String(error) });
      });
    },
  };
}
