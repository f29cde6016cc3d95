import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ConversationEvent } from '../../src/domain/events.ts';
import { newId } from '../../src/domain/ids.ts';
import { defaultManifest, type Manifest } from '../../src/domain/manifest.ts';
import type { Principal } from '../../src/domain/nouns.ts';
import { createCursors } from '../../src/domain/paging.ts';
import type { ModelGateway } from '../../src/domain/ports/model-gateway.ts';
import { createRuntime, type RuntimeDependencies } from '../../src/runtime/runtime.ts';
import type { SendInput } from '../../src/services/api.ts';
import { createCancel } from '../../src/services/cancel.ts';
import { createConversations } from '../../src/services/conversations.ts';
import { createEvents } from '../../src/services/events.ts';
import { createHub } from '../../src/services/hub.ts';
import { createOutcomes } from '../../src/services/outcomes.ts';
import { createRunLife, type RunLife } from '../../src/services/run-life.ts';
import { createRuns } from '../../src/services/runs.ts';
import { createSandboxRecords } from '../../src/services/sandbox-records.ts';
import { createTurnHistory } from '../../src/services/turn-history.ts';
import { createAgentStore } from '../../src/store/agents.ts';
import { openDatabase, type Database } from '../../src/store/database.ts';
import { createDeploymentStore } from '../../src/store/deployments.ts';
import { openDoorbell } from '../../src/store/doorbell.ts';
import { createOrgStore } from '../../src/store/orgs.ts';
import { testDatabase } from './database.ts';
import { fakeDriver, fakeLinks, type FakeDriver, type Script } from './fake-sandbox.ts';
import { silentLog } from './log.ts';

/** Says the words of the message back, one delta each. */
export const echo: Script = async (turn) => {
  for (const word of turn.content.split(/(?<= )/)) turn.onUpdate({ kind: 'text', text: word });
  return { outcome: 'completed' };
};

export interface ReplicaOptions {
  /** What the runtime has in place of it. */
  lifeOf?: (life: RunLife) => RunLife;
  nodeId?: string;
  script?: Script;
  leaseMs?: number;
  start?: boolean;
  driver?: FakeDriver;
  overrides?: Partial<RuntimeDependencies>;
  maxActiveAgents?: number;
  runTimeoutMs?: number;
}

export type Replica = Awaited<ReturnType<typeof openReplica>>;

/** One process of the service, as compose.ts wires it, with a scripted harness in sandboxes without a process. */
async function openReplica(
  connection: Parameters<typeof openDatabase>[0]['connection'],
  root: string,
  options: ReplicaOptions,
) {
  const db = openDatabase({ connection, pool: 8 });
  const nodeId = options.nodeId ?? newId();
  const leaseMs = options.leaseMs ?? 10_000;
  const doorbell = await openDoorbell(db, silentLog);
  const hub = createHub();
  const outcomes = createOutcomes();
  const cursors = createCursors(randomBytes(32));
  const agents = createAgentStore(db);
  const runTimeoutMs = options.runTimeoutMs ?? 60_000;
  const life = createRunLife({ db, hub, outcomes, doorbell, nodeId, leaseMs, runTimeoutMs, log: silentLog });
  const cancel = createCancel({ db, life, log: silentLog });
  const maxActiveAgents = options.maxActiveAgents ?? 1_000;
  const runs = createRuns({ db, agents, cursors, hub, outcomes, doorbell, life, cancel, maxActiveAgents });
  const events = createEvents({ db, hub, outcomes, cursors, log: silentLog });
  const conversations = createConversations({ db, agents, cursors, life });
  const driver = options.driver ?? fakeDriver();
  const gateway = { providers: () => [], handle() {}, defaultModel: () => 'demo/guide', close() {} };
  const runtime = createRuntime({
    life: options.lifeOf?.(life) ?? life,
    cancel,
    history: createTurnHistory(db),
    waitForActive: (agentId) => createDeploymentStore(db).activeOf(agentId),
    maxConcurrentRuns: 1_000,
    runMaxAttempts: 3,
    leaseMs,
    nodeId,
    driver,
    openLink: fakeLinks(options.script ?? echo),
    isDetached: false,
    canFreeze: true,
    freezeAfterMs: null,
    replacedCommandMs: 10_000,
    pool: null,
    launch: () => ({ command: ['none'], env: {}, binds: [] }),
    gateway: () => gateway as ModelGateway,
    repos: { writeArchive: async () => {} },
    secrets: { valuesForSandbox: async () => ({}), modelKeys: async () => ({}) },
    records: createSandboxRecords(db),
    egress: { open: async () => ({ transparent: false, env: {}, close() {} }) },
    limits: { memoryMb: 512, cpus: 1, pids: 64, diskMb: 512 },
    paths: { volumes: join(root, 'volumes'), run: join(root, nodeId.slice(-6)) },
    maxSandboxes: 64,
    maxModelConnections: 1_000,
    idleMs: 300_000,
    stopGraceMs: 150,
    log: silentLog,
    ...options.overrides,
  });
  if (options.start !== false) await runtime.start();
  return {
    db,
    nodeId,
    hub,
    life,
    runs,
    events,
    conversations,
    cancel,
    runtime,
    driver,
    outcomes,
    doorbell,
    /** As if the process were gone: it writes nothing more and tells nobody. */
    async crash(): Promise<void> {
      await db.close();
      await runtime.drain(0, false).catch(() => undefined);
    },
    async close(): Promise<void> {
      await runtime.drain(0, false);
      await doorbell.close();
      await db.close();
    },
  };
}

export interface RunWorld {
  db: Database;
  agentId: string;
  owner: Principal;
  /** Another agent of the organisation, ready to run. */
  addAgent(manifest?: Partial<Manifest>): Promise<string>;
  deploy(agentId: string, manifest?: Partial<Manifest>): Promise<string>;
  replica(options?: ReplicaOptions): Promise<Replica>;
  /** The whole log, oldest first. */
  log(conversationId: string): Promise<ConversationEvent[]>;
  close(): Promise<void>;
}

export function send(content: string, rest: Partial<SendInput> & { agentId: string }): SendInput {
  return { conversationId: null, content, onBusy: 'enqueue', source: 'api', idempotency: null, ...rest };
}

export async function runWorld(): Promise<RunWorld> {
  const { db, connection, close } = await testDatabase();
  const root = await mkdtemp(join(tmpdir(), 'br-'));
  const orgId = newId();
  await createOrgStore(db).insert({ id: orgId, name: 'Ours' });
  const owner: Principal = { keyId: newId(), orgId, scope: 'edit', binding: 'org-bound', agentId: null };
  const replicas: Replica[] = [];
  const agents = createAgentStore(db);
  const deployments = createDeploymentStore(db);

  async function deploy(agentId: string, manifest: Partial<Manifest> = {}): Promise<string> {
    const id = newId();
    await deployments.insert({ id, orgId, agentId, commit: '0'.repeat(40), ref: 'main', source: 'push' });
    await deployments.markReady(id, { ...defaultManifest, ...manifest });
    await deployments.activate(agentId, id);
    return id;
  }

  async function addAgent(manifest: Partial<Manifest> = {}): Promise<string> {
    const id = newId();
    await agents.insert({ id, orgId, name: 'A', description: '', model: 'demo/guide', externalGitUrl: null });
    await deploy(id, manifest);
    return id;
  }

  return {
    db,
    agentId: await addAgent(),
    owner,
    addAgent,
    deploy,
    async replica(options = {}) {
      const replica = await openReplica(connection, root, options);
      replicas.push(replica);
      return replica;
    },
    async log(conversationId) {
      const { eventsAfter } = await import('../../src/store/events.ts');
      return eventsAfter(db, { conversationId }, 0, 100_000);
    },
    async close() {
      for (const replica of replicas) await replica.close().catch(() => undefined);
      await close();
      await rm(root, { recursive: true, force: true });
    },
  };
}
