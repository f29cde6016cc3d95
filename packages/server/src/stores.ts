import { keyFile, keyVariable } from './admin/encryption-key-file.ts';
import type { Config } from './config.ts';
import { createEncryptionKeys } from './services/encryption-keys.ts';
import { createAgentStore } from './store/agents.ts';
import { createApiKeyStore } from './store/api-keys.ts';
import { createChannelStore } from './store/channels.ts';
import type { Database } from './store/database.ts';
import { createDeploymentStore } from './store/deployments.ts';
import { createOrgStore } from './store/orgs.ts';
import { createSandboxBrokerStore } from './store/sandbox-brokers.ts';
import { createScheduleStore } from './store/schedules.ts';
import { createSealedRowStore } from './store/sealed-rows.ts';
import { createSecretStore } from './store/secrets.ts';
import { createSettingsStore } from './store/settings.ts';

/** The stores over one database. */
export function createStores(db: Database) {
  return {
    agents: createAgentStore(db),
    keys: createApiKeyStore(db),
    secrets: createSecretStore(db),
    deployments: createDeploymentStore(db),
    orgs: createOrgStore(db),
    settings: createSettingsStore(db),
    sandboxBrokers: createSandboxBrokerStore(db),
    sealedRows: createSealedRowStore(db),
    channels: createChannelStore(db),
    schedules: createScheduleStore(db),
  };
}

export function openEncryptionKeys(config: Config, db: Database, stores: ReturnType<typeof createStores>) {
  const file = keyFile(config.encryptionKeyFile);
  const source = config.encryptionKey === null ? file : keyVariable(config.encryptionKey, file);
  return createEncryptionKeys({ db, ...stores, source });
}
