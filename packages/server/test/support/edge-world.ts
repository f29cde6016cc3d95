import { openChannels } from '../../src/open-channels.ts';
import { openSchedules } from '../../src/open-schedules.ts';
import { openWebhookEndpoints } from '../../src/open-webhook-endpoints.ts';
import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { AddressInfo } from 'node:net';
import { createCursors } from '../../src/domain/paging.ts';
import { createBox } from '../../src/domain/box.ts';
import { newId } from '../../src/domain/ids.ts';
import type { Log, LogFields } from '../../src/domain/log.ts';
import type { Agent, Binding, Scope } from '../../src/domain/nouns.ts';
import type { App, AppOptions } from '../../src/edges/app.ts';
import { createApp } from '../../src/edges/app.ts';
import type { Listener, Mount } from '../../src/edges/listener.ts';
import { createListener } from '../../src/edges/listener.ts';
import { createAcpSessions } from '../../src/services/acp-sessions.ts';
import type { Services } from '../../src/services/api.ts';
import { createAcpSessionStore } from '../../src/store/acp-sessions.ts';
import type { RateLimit } from '../../src/services/gcra.ts';
import type { Idempotency } from '../../src/services/idempotency.ts';
import { createUrlGuard } from '../../src/services/url-guard.ts';
import { openA2a } from '../../src/open-a2a.ts';
import { createForks } from '../../src/services/forks.ts';
import { createOpenFollows } from '../../src/services/open-follows.ts';
import { createSnapshots } from '../../src/services/snapshots.ts';
import { createSnapshotRows } from '../../src/store/snapshots.ts';
import { createSnapshotStore } from '../../src/volumes/snapshot.ts';
import { volumeSwap } from '../../src/sandbox/volume-swap.ts';
import { createTerminals } from '../../src/services/terminals.ts';
import { createTerminalEdge } from '../../src/edges/terminal/edge.ts';
import { createAgentWeb } from '../../src/services/agent-web.ts';
import { createSandboxExec } from '../../src/services/sandbox-exec.ts';
import { createSandboxFiles } from '../../src/services/sandbox-files.ts';
import { createSandboxes } from '../../src/services/sandboxes.ts';
import { createVolumes } from '../../src/volumes/volumes.ts';
import { createIdempotency } from '../../src/services/idempotency.ts';
import { createRateLimit } from '../../src/services/rate-limit.ts';
import { createIdempotencyStore } from '../../src/store/idempotency.ts';
import { createRateUsageStore } from '../../src/store/rate-usage.ts';
import type { FakeSandboxHost } from './fake-sandbox-host.ts';
import { fakeSandboxHost, fakeVolumeDriver } from './fake-sandbox-host.ts';
import { silentLog } from './log.ts';
import type { MemoryCore } from './memory-core.ts';
import { memoryCore } from './memory-core.ts';
import type { World } from './resources.ts';
import { resourceWorld } from './resources.ts';

export interface EdgeWorld {
  resources: World;
  core: MemoryCore;
  sandboxHost: FakeSandboxHost;
  /** Where agents have their files; each has `workspace` and `home` in a folder of its id. */
  volumesDir: string;
  services: Services;
  idempotency: Idempotency;
  app: App;
  /** The organisation's first agent. */
  agent: Agent;
  /** Values of keys: the owner's (edit, org-bound), and others of `agent`. */
  keys: { owner: string; use: string; edit: string; orgUse: string; foreign: string };
  logLines: { level: string; message: string; fields: LogFields | undefined }[];
  call(method: string, path: string, options?: CallOptions): Promise<Reply>;
  /** Begins to listen; the address's origin. */
  listen(mounts?: Mount[]): Promise<string>;
  listener(): Listener;
  close(): Promise<void>;
}

export interface CallOptions {
  key?: string | null;
  /** Made JSON of, unless it is text or bytes. */
  body?: unknown;
  headers?: Record<string, string>;
}

export interface Reply {
  status: number;
  headers: Headers;
  text: string;
  json: unknown;
}

export interface EdgeWorldOptions {
  authFailures?: RateLimit;
  app?: Partial<AppOptions>;
  services?: (services: Services) => Services;
  terminalGraceMs?: number;
  /** The clock of rate limits, by which they are refilled. */
  now?: () => number;
}

/** The edges over the real resource services on a database of their own; conversations and runs in memory. */
export async function edgeWorld(options: EdgeWorldOptions = {}): Promise<EdgeWorld> {
  const resources = await resourceWorld();
  const { db } = resources;
  const idempotency = createIdempotency({
    db,
    store: createIdempotencyStore(db, 30),
    box: createBox([randomBytes(32)]),
    holdEncryptionKey: async () => {},
    renewMs: 10_000,
  });
  const rateLimit = createRateLimit({
    usage: createRateUsageStore(db),
    nodeId: newId(),
    log: silentLog,
    authFailures: options.authFailures ?? { quota: 1000, windowSeconds: 60 },
    ...(options.now && { now: options.now }),
  });
  const core = memoryCore(resources.agents);
  const { auth, agents, apiKeys, secrets, deployments, budgets, egress, stores } = resources;
  const sandboxHost = fakeSandboxHost();
  const volumesDir = mkdtempSync('/tmp/berth-e-');
  const cursors = createCursors(randomBytes(32));
  const terminals = createTerminals({
    ...stores,
    host: sandboxHost,
    openFollows: createOpenFollows(db, silentLog),
    graceMs: options.terminalGraceMs ?? 60_000,
  });
  const removeAgent = async (agentId: string): Promise<void> =>
    rmSync(join(volumesDir, agentId), { recursive: true, force: true });
  const snapshots = createSnapshots({
    ...stores,
    snapshots: createSnapshotRows(db),
    store: createSnapshotStore(volumeSwap, { minFreeBytes: 0 }),
    cursors,
    host: sandboxHost,
    driver: fakeVolumeDriver,
    volumesDir,
    removeAgent,
    snapshotsDir: join(volumesDir, 'snapshots'),
    diskBytes: 50 * 1024 * 1024,
  });
  const sandboxFiles = createSandboxFiles({
    ...stores,
    cursors,
    driver: fakeVolumeDriver,
    volumes: createVolumes(volumeSwap),
    volumesDir,
    removeAgent,
    diskBytes: 50 * 1024 * 1024,
  });
  const channels = openChannels({
    files: sandboxFiles,
    nodeId: newId(),
    db,
    ...stores,
    runs: core.runs,
    runEvents: core.events,
    box: createBox([randomBytes(32)]),
    holdEncryptionKey: async () => {},
    cursors,
    guard: createUrlGuard([]),
    baseUrl: 'http://localhost:8080',
    log: silentLog,
  });
  const made: Services = {
    auth,
    agents,
    apiKeys,
    secrets,
    deployments,
    budgets,
    egress,
    channels: channels.service,
    inboundEvents: channels.inboundEvents,
    webhookEndpoints: openWebhookEndpoints({
      db,
      ...stores,
      box: createBox([randomBytes(32)]),
      holdEncryptionKey: async () => {},
      cursors,
      guard: createUrlGuard([]),
      log: silentLog,
    }).service,
    schedules: openSchedules({ db, ...stores, runs: core.runs, cursors, log: silentLog }).service,
    sandboxes: createSandboxes({ db, ...stores, cursors, host: sandboxHost, nodeId: newId() }),
    sandboxFiles,
    sandboxExec: createSandboxExec({
      ...stores,
      host: sandboxHost,
      openFollows: createOpenFollows(db, silentLog),
      killedMs: 1_000,
    }),
    terminals,
    snapshots,
    forks: createForks({ db, ...stores, snapshots }),
    ...core,
    rateLimit,
    idempotency,
    a2a: openA2a({
      nodeId: newId(),
      db,
      ...stores,
      box: createBox([randomBytes(32)]),
      holdEncryptionKey: async () => {},
      cursors,
      guard: createUrlGuard([]),
      log: silentLog,
    }).service,
    agentWeb: createAgentWeb({ ...stores, host: sandboxHost, openFollows: createOpenFollows(db, silentLog) }),
    acpSessions: createAcpSessions({
      ...stores,
      acpSessions: createAcpSessionStore(db),
      conversations: core.conversations,
      cursors,
    }),
  };
  const services = options.services?.(made) ?? made;
  const logLines: EdgeWorld['logLines'] = [];
  const app = createApp(services, {
    addresses: { baseUrl: 'http://localhost:8080', appDomain: 'agents.localhost:8080' },
    log: recordingLog(logLines),
    probe: async () => [],
    ...options.app,
  });
  const agent = await agents.create(resources.owner, { name: 'Ours' });
  const keyOf = async (scope: Scope, binding: Binding) =>
    (await resources.caller(scope, binding, agent)).value;
  const keys = {
    owner: await keyOf('edit', 'org-bound'),
    use: await keyOf('use', 'agent-bound'),
    edit: await keyOf('edit', 'agent-bound'),
    orgUse: await keyOf('use', 'org-bound'),
    foreign: (await resources.caller('edit', 'org-bound', null, resources.foreign.orgId)).value,
  };
  let listener: Listener | null = null;
  return {
    resources,
    core,
    sandboxHost,
    volumesDir,
    services,
    idempotency,
    app,
    agent,
    keys,
    logLines,
    async call(method, path, { key = keys.owner, body, headers = {} } = {}) {
      const all: Record<string, string> = { ...headers };
      if (key !== null) all['authorization'] ??= `Bearer ${key}`;
      const raw = typeof body === 'string' || body instanceof Uint8Array;
      if (body !== undefined) all['content-type'] ??= 'application/json';
      const init: RequestInit = { method, headers: all };
      if (body !== undefined) init.body = raw ? (body as string) : JSON.stringify(body);
      return readReply(await app.request(path, init));
    },
    async listen(mounts = []) {
      const upgrade = createTerminalEdge({
        services,
        baseUrl: 'http://localhost:8080',
        clientAddress: app.edge.proxies.clientAddress,
        log: silentLog,
      });
      listener = createListener(app, mounts, undefined, [upgrade]);
      const address: AddressInfo = await listener.listen(0, '127.0.0.1');
      return `http://127.0.0.1:${address.port}`;
    },
    listener: () => listener!,
    async close() {
      terminals.close();
      if (listener) await listener.close(0);
      else app.close();
      await resources.close();
      rmSync(volumesDir, { recursive: true, force: true });
    },
  };
}

export async function readReply(response: Response): Promise<Reply> {
  const text = await response.text();
  const isJson = response.headers.get('content-type')?.startsWith('application/json') && text !== '';
  return {
    status: response.status,
    headers: response.headers,
    text,
    json: isJson ? JSON.parse(text) : undefined,
  };
}

function recordingLog(lines: EdgeWorld['logLines']): Log {
  const put = (level: string) => (message: string, fields?: LogFields) =>
    void lines.push({ level, message, fields });
  const log: Log = {
    debug: put('debug'),
    info: put('info'),
    warn: put('warn'),
    error: put('error'),
    child: () => log,
  };
  return log;
}

/** One that listens, with the workspace of its agent as a folder of the host. */
export async function filesWorld(): Promise<{ world: EdgeWorld; origin: string; workspace: string }> {
  const world = await edgeWorld();
  const origin = await world.listen();
  const workspace = join(world.volumesDir, world.agent.id, 'workspace');
  mkdirSync(workspace, { recursive: true });
  return { world, origin, workspace };
}
