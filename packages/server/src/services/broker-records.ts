import type { Box } from '../domain/box.ts';
import type { BrokerRecords } from '../domain/ports/secret-broker.ts';
import { brokerContext } from '../domain/seal-context.ts';
import type { Database } from '../store/database.ts';
import type { SandboxBrokerStore } from '../store/sandbox-brokers.ts';

export interface BrokerRecordsDependencies {
  db: Database;
  sandboxBrokers: SandboxBrokerStore;
  box: Box;
  holdEncryptionKey: () => Promise<void>;
}

export function createBrokerRecords(deps: BrokerRecordsDependencies): BrokerRecords {
  const { db, sandboxBrokers, box } = deps;
  return {
    async save({ sandboxId, agentId }, state) {
      await db.tx(async () => {
        await deps.holdEncryptionKey();
        await sandboxBrokers.put(sandboxId, agentId, box.seal(state, brokerContext(sandboxId)));
      });
    },

    async load(sandboxId) {
      const { hasStarted, row } = await sandboxBrokers.get(sandboxId);
      return { hasStarted, state: row && box.open(row, brokerContext(sandboxId)) };
    },
  };
}
