import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Log } from '../../domain/log.ts';
import type { AuthorityVariable } from '../../domain/own-variables.ts';
import type {
  BrokeredName,
  BrokeredValues,
  BrokerOwner,
  BrokerRecords,
  SecretBroker,
} from '../../domain/ports/secret-broker.ts';
import type { Interceptor } from '../interceptor.ts';
import { createBroker } from './broker.ts';
import { BrokerSession } from './session.ts';

export interface SecretBrokerOptions {
  secrets: {
    brokeredNames(agentId: string): Promise<BrokeredName[]>;
    brokeredValues(agentId: string): Promise<BrokeredValues>;
    earlierHosts(agentId: string): Promise<string[]>;
  };
  records: BrokerRecords;
  /** PEM: the authorities that the service believes, and that programs in a sandbox do besides its own. */
  authorities: string;
  log: Log;
}

export interface OpenSecretBroker extends SecretBroker {
  /** For the proxy; null for a sandbox without brokered secrets. */
  interceptorOf(sandboxId: string): Interceptor | null;
  closeAll(): void;
}

/** Where `runDir` is seen inside (docs/design/sandbox-launch.md). */
const INSIDE = '/run/berth';
const CA_FILE = 'ca.pem';
const BUNDLE_FILE = 'ca-bundle.pem';

/** Programs agree on no variable. Node adds a file to what it believes; for the others the file is all that they believe. */
const caVariables: Record<AuthorityVariable, string> = {
  NODE_EXTRA_CA_CERTS: CA_FILE,
  DENO_CERT: CA_FILE,
  SSL_CERT_FILE: BUNDLE_FILE,
  REQUESTS_CA_BUNDLE: BUNDLE_FILE,
  GIT_SSL_CAINFO: BUNDLE_FILE,
  CURL_CA_BUNDLE: BUNDLE_FILE,
  PIP_CERT: BUNDLE_FILE,
  AWS_CA_BUNDLE: BUNDLE_FILE,
  CARGO_HTTP_CAINFO: BUNDLE_FILE,
};

interface State {
  /** base64 */
  seed: string;
  secrets: BrokeredName[];
  /** Missing in what earlier versions stored. */
  earlierHosts?: string[];
}

/** The brokered secrets of all sandboxes of this node. */
export function createSecretBroker(options: SecretBrokerOptions): OpenSecretBroker {
  const { secrets, records, authorities, log } = options;
  const broker = createBroker({ trusted: authorities });
  const interceptors = new Map<string, Interceptor>();

  function begin({ sandboxId, agentId }: BrokerOwner, state: State): BrokerSession {
    const session = new BrokerSession({
      seed: Buffer.from(state.seed, 'base64'),
      secrets: state.secrets,
      earlierHosts: state.earlierHosts ?? [],
      read: () =>
        secrets.brokeredValues(agentId).catch((error: unknown) => {
          log.error('Brokered secrets could not be read.', { agentId, sandboxId, error: String(error) });
          throw error;
        }),
    });
    interceptors.set(sandboxId, broker.interceptor(session));
    return session;
  }

  return {
    async open(owner, runDir) {
      const { hasStarted, state: before } = await records.load(owner.sandboxId);
      if (before) begin(owner, JSON.parse(before.toString()) as State);
      // Without a state it was started without an authority, and would believe none by now.
      if (before || hasStarted) return {};
      const names = await secrets.brokeredNames(owner.agentId);
      const earlierHosts = await secrets.earlierHosts(owner.agentId);
      if (names.length === 0 && earlierHosts.length === 0) return {};
      const state: State = { seed: randomBytes(32).toString('base64'), secrets: names, earlierHosts };
      await records.save(owner, Buffer.from(JSON.stringify(state)));
      const { authority, placeholders } = begin(owner, state);
      await writeFile(join(runDir, CA_FILE), authority.certificate, { mode: 0o644 });
      await writeFile(join(runDir, BUNDLE_FILE), authorities + authority.certificate, { mode: 0o644 });
      const variables = Object.entries(caVariables).map(([name, file]) => [name, join(INSIDE, file)]);
      const held = names.map(({ key }) => [key, placeholders.textOf(key)]);
      return Object.fromEntries([...held, ...variables]);
    },

    close: (sandboxId) => void interceptors.delete(sandboxId),

    interceptorOf: (sandboxId) => interceptors.get(sandboxId) ?? null,

    closeAll: () => broker.close(),
  };
}
