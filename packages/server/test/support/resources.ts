import { randomBytes } from 'node:crypto';
import { createBox } from '../../src/domain/box.ts';
import { newId } from '../../src/domain/ids.ts';
import type { Repos } from '../../src/domain/ports/repos.ts';
import type { Agent, Binding, Principal, Scope } from '../../src/domain/nouns.ts';
import { createCursors } from '../../src/domain/paging.ts';
import { createAgentRemovals } from '../../src/services/agent-removals.ts';
import { createAgents } from '../../src/services/agents.ts';
import { createApiKeys, mintKey } from '../../src/services/api-keys.ts';
import { createAuth } from '../../src/services/auth.ts';
import { createBudgets } from '../../src/services/budgets.ts';
import { createDeployWork } from '../../src/services/deploy-work.ts';
import { createDeployments } from '../../src/services/deployments.ts';
import { createEgress } from '../../src/services/egress.ts';
import { createSecrets } from '../../src/services/secrets.ts';
import { createAgentStore } from '../../src/store/agents.ts';
import { createChannelStore } from '../../src/store/channels.ts';
import { createApiKeyStore } from '../../src/store/api-keys.ts';
import { createDeploymentStore } from '../../src/store/deployments.ts';
import { createOrgStore } from '../../src/store/orgs.ts';
import { createScheduleStore } from '../../src/store/schedules.ts';
import { createSecretStore } from '../../src/store/secrets.ts';
import type { Database } from '../../src/store/database.ts';
import { testDatabase } from './database.ts';
import { silentLog } from './log.ts';
import { memoryBells } from './memory-doorbell.ts';
import type { Bells } from './memory-doorbell.ts';
import { memoryRepos } from './memory-repos.ts';
import type { MemoryRepos } from './memory-repos.ts';

export type Resources = ReturnType<typeof createResources<MemoryRepos>>;

/** The resource services as compose.ts wires them, on a real database. */
export function createResources<R extends Repos>(
  db: Database,
  bells: Bells,
  repos: R,
  now: () => number = Date.now,
) {
  const stores = {
    agents: createAgentStore(db),
    keys: createApiKeyStore(db),
    secrets: createSecretStore(db),
    deployments: createDeploymentStore(db),
    orgs: createOrgStore(db),
    channels: createChannelStore(db),
    schedules: createScheduleStore(db),
  };
  const cursors = createCursors(randomBytes(32));
  const removed: string[] = [];
  const budgetChanges: string[] = [];
  const egressChanges: string[] = [];
  const auth = createAuth({
    keys: stores.keys,
    outside: db.outside,
    doorbell: bells.join(),
    rateLimit: { quota: 600, windowSeconds: 60 },
    log: silentLog,
    now,
  });
  const secrets = createSecrets({
    db,
    ...stores,
    box: createBox([randomBytes(32)]),
    holdEncryptionKey: async () => {},
    cursors,
    modelKeyNames: () => ['ANTHROPIC_API_KEY', 'OPENAI_API_KEY'],
    hostRules: { allowLocal: false },
    log: silentLog,
  });
  const work = createDeployWork({
    db,
    ...stores,
    repos,
    gitToken: secrets.gitToken,
    checkTree: async () => {},
    log: silentLog,
  });
  const agents = createAgents({
    db,
    ...stores,
    repos,
    work,
    auth,
    doorbell: bells.join(),
    cursors,
    defaultModel: () => 'demo/guide',
    checkUrl: async () => {},
    hostedGitUrl: (id) => `http://localhost:8080/git/${id}.git`,
    wakeRemovals: () => void db.outside(() => removals.runDue()),
  });
  const removals = createAgentRemovals({
    agents: stores.agents,
    nodeId: newId(),
    remove: async (id) => void removed.push(id),
    wake: () => {},
    log: silentLog,
  });
  return {
    db,
    stores,
    repos,
    removed,
    removals,
    auth,
    secrets,
    work,
    agents,
    apiKeys: createApiKeys({ db, ...stores, auth, cursors }),
    budgets: createBudgets({ db, ...stores, changed: (ownerId) => void budgetChanges.push(ownerId) }),
    budgetChanges,
    egress: createEgress({
      db,
      ...stores,
      cursors,
      defaultPolicy: { mode: 'list', allow: [], deny: [], presets: ['npm'], transparent: false },
      changed: async (agentId) => void egressChanges.push(agentId),
      transparentPossible: async () => false,
    }),
    egressChanges,
    deployments: createDeployments({ db, ...stores, work, cursors }),
  };
}

export interface World extends Resources {
  bells: Bells;
  orgId: string;
  /** The edit, org-bound caller. */
  owner: Principal;
  /** A caller of the given rights with a real key in the database, bound to `agent` when agent-bound. */
  caller(
    scope: Scope,
    binding: Binding,
    agent?: Agent | null,
    orgId?: string,
  ): Promise<Principal & { value: string }>;
  /** Another organisation with an agent of its own. */
  foreign: { orgId: string; owner: Principal; agent: Agent };
  close(): Promise<void>;
}

export async function resourceWorld(options: { now?: () => number } = {}): Promise<World> {
  const { db, close } = await testDatabase();
  const bells = memoryBells();
  const resources = createResources(db, bells, memoryRepos(), options.now);
  const { stores, agents } = resources;

  async function caller(
    scope: Scope,
    binding: Binding,
    agent: Agent | null = null,
    org = agent?.orgId ?? orgId,
  ) {
    const agentId = binding === 'agent-bound' ? agent!.id : null;
    const minted = await mintKey(stores.keys, {
      orgId: org,
      name: `${scope} ${binding}`,
      scope,
      binding,
      agentId,
    });
    return { keyId: minted.key.id, orgId: org, scope, binding, agentId, value: minted.value };
  }

  const orgId = newId();
  await stores.orgs.insert({ id: orgId, name: 'Ours' });
  const foreignOrgId = newId();
  await stores.orgs.insert({ id: foreignOrgId, name: 'Theirs' });
  const owner = await caller('edit', 'org-bound');
  const foreignOwner = await caller('edit', 'org-bound', null, foreignOrgId);
  const foreignAgent = await agents.create(foreignOwner, { name: 'Theirs' });
  return {
    ...resources,
    bells,
    orgId,
    owner,
    caller,
    foreign: { orgId: foreignOrgId, owner: foreignOwner, agent: foreignAgent },
    async close() {
      await resources.work.idle();
      await resources.auth.close();
      await close();
    },
  };
}
