import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { bootstrapKeyFile } from './admin/bootstrap-key-file.ts';
import { ConfigError } from './config-values.ts';
import { type Config } from './config.ts';
import { endInSteps, type EndStep } from './end-steps.ts';
import { createCursors } from './domain/paging.ts';
import { limits } from './domain/limits.ts';
import type { Log } from './domain/log.ts';
import { defaultManifest } from './domain/manifest.ts';
import type { ModelGateway, ModelGatewayHooks } from './domain/ports/model-gateway.ts';
import type { SandboxDriver } from './domain/ports/sandbox.ts';
import { createApp, type App } from './edges/app.ts';
import { createGitEdge } from './edges/git.ts';
import { createTerminalEdge } from './edges/terminal/edge.ts';
import { createListener, type Listener } from './edges/listener.ts';
import { extraCaFiles, isDetached, makeEnterable, roomProblems } from './host-checks.ts';
import { openOutside } from './open-outside.ts';
import { openRemovals } from './open-removals.ts';
import { openFilesLimit } from './open-files.ts';
import { createSecretBroker } from './egress/broker/secret-broker.ts';
import { createModelGateway } from './gateway/gateway.ts';
import { readProviders } from './gateway/providers.ts';
import { harnessLinks } from './harness/link.ts';
import { openA2a } from './open-a2a.ts';
import { openA2aGrpc } from './open-a2a-grpc.ts';
import { harnessLaunch, harnessWait, prepareHarness } from './harness/launch.ts';
import { egressGauges, openEgress } from './open-egress.ts';
import { openSandboxDriver } from './open-sandbox-driver.ts';
import { readAuthorities } from './repos/ca-bundle.ts';
import { openRepos } from './repos/open-repos.ts';
import { createRuntime, type Runtime } from './runtime/runtime.ts';
import { sandboxLimits } from './runtime/sandbox-start.ts';
import { WarmPool } from './runtime/warm-pool.ts';
import { isolationProblem } from './sandbox/minimum.ts';
import { volumeSwap } from './sandbox/volume-swap.ts';
import { createAcpSessions } from './services/acp-sessions.ts';
import { createAgentWeb } from './services/agent-web.ts';
import { createAgents } from './services/agents.ts';
import { createApiKeys } from './services/api-keys.ts';
import { createAuth } from './services/auth.ts';
import { createBrokerRecords } from './services/broker-records.ts';
import { bootstrap, type BootstrapResult } from './services/bootstrap.ts';
import { createBudgetGuard } from './services/budget-guard.ts';
import { createBudgets } from './services/budgets.ts';
import { createCancel } from './services/cancel.ts';
import { createConversations } from './services/conversations.ts';
import { createDeployWork } from './services/deploy-work.ts';
import { createDeployments } from './services/deployments.ts';
import { createEvents } from './services/events.ts';
import { createForks } from './services/forks.ts';
import { createHub } from './services/hub.ts';
import { createIdempotency } from './services/idempotency.ts';
import { createOutcomes } from './services/outcomes.ts';
import { createRateLimit } from './services/rate-limit.ts';
import { createRunLife } from './services/run-life.ts';
import { createRuns } from './services/runs.ts';
import { createOpenFollows } from './services/open-follows.ts';
import { createSandboxExec } from './services/sandbox-exec.ts';
import { createSandboxFiles } from './services/sandbox-files.ts';
import { createSandboxes } from './services/sandboxes.ts';
import { createSandboxRecords } from './services/sandbox-records.ts';
import { createSecrets } from './services/secrets.ts';
import { createSnapshots } from './services/snapshots.ts';
import { createTerminals } from './services/terminals.ts';
import { createTurnHistory } from './services/turn-history.ts';
import { createUrlGuard } from './services/url-guard.ts';
import { createAcpSessionStore } from './store/acp-sessions.ts';
import type { Database } from './store/database.ts';
import { createSnapshotStore } from './volumes/snapshot.ts';
import { createVolumes } from './volumes/volumes.ts';
import { openDoorbell } from './store/doorbell.ts';
import { createIdempotencyStore } from './store/idempotency.ts';
import { createRateUsageStore } from './store/rate-usage.ts';
import { createStores, openEncryptionKeys } from './stores.ts';
import { createSnapshotRows } from './store/snapshots.ts';

export interface Service {
  bootstrap: BootstrapResult;
  listener: Listener;
  app: App;
  runtime: Runtime;
  gateway: ModelGateway;
  sandboxDriver: SandboxDriver;
  /** Takes up what an earlier process left, and begins to work. */
  start(): Promise<void>;
  /**
   * Lets requests and turns end, at most `graceMs`, and closes everything but the database. `mayLeave`: turns that have
   * not ended go on in detached sandboxes. Resolves, however that went, with what did not end in order.
   */
  stop(graceMs: number, mayLeave?: boolean): Promise<string[]>;
}

const HOUR_MS = 3_600_000;
const TERMINAL_GRACE_MS = 60_000;
/** For each part of the service when it ends. */
const END_MS = 3_000;

/** The only place that knows every part: plain constructor calls, from top to bottom. */
export async function compose(
  config: Config,
  env: NodeJS.ProcessEnv,
  nodeId: string,
  db: Database,
  log: Log,
  processGauges: () => Record<string, number>,
): Promise<Service> {
  for (const path of [config.paths.volumes, config.paths.runtime, config.paths.run]) makeEnterable(path);
  const stores = createStores(db);
  const sandboxDriver = openSandboxDriver(config, log);
  const problem = await isolationProblem(sandboxDriver, {
    minimum: config.minIsolation,
    allowsProcesses: config.allowsProcessSandbox,
    organisations: await stores.orgs.count(),
  });
  if (problem !== null) throw new ConfigError(problem);
  const encryptionKeys = openEncryptionKeys(config, db, stores);
  await encryptionKeys.prepare();
  const { box } = encryptionKeys;
  const doorbell = await openDoorbell(db, log);

  const providers = readProviders(
    env,
    config.modelProvidersFile === null ? null : readFileSync(config.modelProvidersFile, 'utf8'),
  );
  const budgetGuard = createBudgetGuard({ db, doorbell, nodeId, log });
  // The runtime counts what the gateway reports, and the gateway must be there before the runtime: bound below.
  const hooks: ModelGatewayHooks = {
    onCall: (caller, sessionId) => runtime.hooks.onCall(caller, sessionId),
    onUsage: (caller, usage) => runtime.hooks.onUsage(caller, usage),
    reserve: budgetGuard.reserve,
  };
  const gateway = await createModelGateway({
    providers,
    hooks,
    readPolicy: (agentId) => db.outside(() => egress.service.policyOf(agentId)),
    log,
    defaultModel: config.defaultModel,
  });
  const modelKeyNames = (): string[] =>
    gateway
      .providers()
      .map((provider) => provider.keyVariable)
      .filter(Boolean);

  const guard = createUrlGuard(config.allowPrivateNetworks);
  const git = await openRepos({ root: config.paths.repos, log, guard, extraCaFiles: extraCaFiles(env) });
  const { repos } = git;
  const boot = await bootstrap({
    db,
    ...stores,
    repos,
    defaultModel: () => gateway.defaultModel(),
    keyFile: bootstrapKeyFile(config.paths.bootstrapKey),
  });
  const cursors = createCursors(boot.cursorSecret);

  const auth = createAuth({ ...stores, outside: db.outside, doorbell, rateLimit: config.rateLimit, log });
  const rateLimit = createRateLimit({
    usage: createRateUsageStore(db),
    nodeId,
    log,
    authFailures: { quota: 300, windowSeconds: 60 },
  });
  const idempotency = createIdempotency({
    db,
    store: createIdempotencyStore(db, 30),
    box,
    holdEncryptionKey: encryptionKeys.hold,
    renewMs: 10_000,
  });
  const secrets = createSecrets({
    db,
    ...stores,
    box,
    holdEncryptionKey: encryptionKeys.hold,
    cursors,
    modelKeyNames,
    hostRules: { allowLocal: config.allowPrivateNetworks.length > 0 },
    log,
  });
  const work = createDeployWork({
    db,
    ...stores,
    repos,
    gitToken: secrets.gitToken,
    checkTree: git.checkTree,
    log,
  });
  const deployments = createDeployments({ db, ...stores, work, cursors });

  const hub = createHub();
  const outcomes = createOutcomes();
  const life = createRunLife({
    db,
    hub,
    outcomes,
    doorbell,
    nodeId,
    leaseMs: config.leaseSeconds * 1000,
    runTimeoutMs: config.runTimeoutSeconds * 1000,
    log,
  });
  const cancel = createCancel({ db, life, log });

  const egress = openEgress({
    config,
    db,
    agents: stores.agents,
    cursors,
    doorbell,
    driver: sandboxDriver,
    broker: createSecretBroker({
      secrets,
      records: createBrokerRecords({ db, ...stores, box, holdEncryptionKey: encryptionKeys.hold }),
      authorities: await readAuthorities(extraCaFiles(env)),
      log,
    }),
    log,
  });
  const prepared = await prepareHarness({
    sourceDir: fileURLToPath(new URL('../../harness/src', import.meta.url)),
    targetDir: config.paths.runtime,
  });
  const abilities = await sandboxDriver.capabilities();
  const { freezeAfterSeconds } = config.sandbox;
  const blankLimits = sandboxLimits(config.sandbox, defaultManifest);
  const runtime = createRuntime({
    life,
    cancel,
    history: createTurnHistory(db),
    waitForActive: work.waitForActive,
    nodeId,
    driver: sandboxDriver,
    openLink: harnessLinks({ log }),
    isDetached: isDetached(config, abilities),
    replacedCommandMs: limits.replacedCommandSeconds * 1000,
    canFreeze: abilities.freeze,
    freezeAfterMs: abilities.freeze && freezeAfterSeconds > 0 ? freezeAfterSeconds * 1000 : null,
    launch: (input) => harnessLaunch(prepared, input),
    pool: abilities.warmPool
      ? new WarmPool({
          driver: sandboxDriver,
          size: config.sandbox.warm,
          launch: harnessWait(prepared, blankLimits.memoryBytes),
          limits: blankLimits,
          isDetached: isDetached(config, abilities),
          paths: config.paths,
          log,
        })
      : null,
    gateway: () => gateway,
    repos,
    secrets,
    records: createSandboxRecords(db),
    egress: egress.proxy,
    limits: config.sandbox,
    paths: config.paths,
    maxSandboxes: config.sandbox.max,
    maxModelConnections: Math.floor(openFilesLimit() / 4),
    idleMs: config.sandbox.idleSeconds * 1000,
    maxConcurrentRuns: config.maxConcurrentRuns,
    runMaxAttempts: config.runMaxAttempts,
    leaseMs: config.leaseSeconds * 1000,
    log,
  });
  const agents = createAgents({
    db,
    ...stores,
    repos,
    work,
    auth,
    doorbell,
    cursors,
    defaultModel: () => gateway.defaultModel(),
    checkUrl: git.checkUrl,
    hostedGitUrl: (agentId) => `${config.baseUrl}/git/${agentId}.git`,
    wakeRemovals: () => removals.worker.wake(),
  });
  const openFollows = createOpenFollows(db, log);
  const terminals = createTerminals({
    ...stores,
    host: runtime.host,
    openFollows,
    graceMs: TERMINAL_GRACE_MS,
  });
  const volumes = createVolumes(volumeSwap);
  const snapshots = createSnapshots({
    ...stores,
    snapshots: createSnapshotRows(db),
    store: createSnapshotStore(volumeSwap, { minFreeBytes: config.snapshotMinFreeMb * 1024 * 1024 }),
    cursors,
    host: runtime.host,
    driver: sandboxDriver,
    volumesDir: config.paths.volumes,
    removeAgent: runtime.removeAgent,
    snapshotsDir: config.paths.snapshots,
    diskBytes: config.sandbox.diskMb * 1024 * 1024,
  });
  const removals = openRemovals({
    agents: stores.agents,
    nodeId,
    doorbell,
    async remove(agentId) {
      await runtime.removeAgent(agentId);
      await repos.remove(agentId);
      await snapshots.removeAll(agentId);
    },
    log,
  });
  const conversations = createConversations({ db, ...stores, cursors, life });
  const acpSessions = createAcpSessions({
    ...stores,
    acpSessions: createAcpSessionStore(db),
    conversations,
    cursors,
  });
  const runs = createRuns({
    db,
    ...stores,
    cursors,
    hub,
    outcomes,
    doorbell,
    life,
    cancel,
    maxActiveAgents: config.maxActiveAgents,
  });
  const shared = { db, ...stores, box, holdEncryptionKey: encryptionKeys.hold, cursors, guard, log };
  const a2a = openA2a({ ...shared, nodeId });
  const sandboxFiles = createSandboxFiles({
    ...stores,
    cursors,
    driver: sandboxDriver,
    volumes,
    volumesDir: config.paths.volumes,
    removeAgent: runtime.removeAgent,
    diskBytes: config.sandbox.diskMb * 1024 * 1024,
  });
  const events = createEvents({ db, hub, outcomes, cursors, log });
  const outside = openOutside({
    ...shared,
    nodeId,
    runs,
    runEvents: events,
    files: sandboxFiles,
    baseUrl: config.baseUrl,
    smtp: config.smtp,
  });
  const services = {
    auth,
    agents,
    apiKeys: createApiKeys({ db, ...stores, auth, cursors }),
    secrets,
    deployments,
    egress: egress.service,
    ...outside.services,
    budgets: createBudgets({ db, ...stores, changed: budgetGuard.changed }),
    sandboxes: createSandboxes({ db, ...stores, cursors, host: runtime.host, nodeId }),
    sandboxFiles,
    sandboxExec: createSandboxExec({
      ...stores,
      host: runtime.host,
      openFollows,
    }),
    terminals,
    snapshots,
    conversations,
    forks: createForks({ db, ...stores, snapshots }),
    runs,
    events,
    rateLimit,
    idempotency,
    acpSessions,
    a2a: a2a.service,
    agentWeb: createAgentWeb({ ...stores, host: runtime.host, openFollows }),
  };

  const app = createApp(services, {
    addresses: {
      baseUrl: config.baseUrl,
      appDomain: config.appDomain,
      a2aCapabilities: config.a2aCapabilities,
    },
    trustedProxies: config.trustedProxies,
    log,
    probe: async () => {
      await db.sql`select 1`;
      return roomProblems(config.dataDir);
    },
    gauges: () => ({ ...runtime.stats(), ...egressGauges(egress.proxy), ...processGauges() }),
  });
  const { clientAddress } = app.edge.proxies;
  const listener = createListener(
    app,
    [createGitEdge({ services, wire: git.wire(deployments.deployPushed), clientAddress, log }), outside.edge],
    Math.floor(openFilesLimit() / 2),
    [createTerminalEdge({ services, baseUrl: config.baseUrl, clientAddress, log })],
  );
  const grpc = openA2aGrpc(config, app.edge, Math.floor(openFilesLimit() / 4));
  let purge: NodeJS.Timeout | undefined;

  /** Who waits for an answer gets what there is by now, as streams get their end: what is cut off says nothing. */
  function closeListener(): Promise<void> {
    const closed = listener.close(2_000);
    hub.drain();
    outcomes.drain();
    return closed;
  }

  return {
    bootstrap: boot,
    listener,
    app,
    runtime,
    gateway,
    sandboxDriver,
    async start() {
      await volumes.clearInterrupted(config.paths.volumes);
      await budgetGuard.begin();
      await runtime.start();
      await work.resume();
      removals.worker.start();
      await outside.start();
      rateLimit.start(500);
      if (config.a2aCapabilities.includes('pushNotifications')) a2a.delivery.start();
      await grpc.start();
      purge = setInterval(() => {
        idempotency
          .purge()
          .then(() => acpSessions.purge())
          .then(() => secrets.purgeEarlier())
          .then(() => outside.purge())
          .catch((error: unknown) =>
            log.warn('Old answers, sessions and values could not be purged.', { error }),
          );
      }, HOUR_MS).unref();
    },
    stop(graceMs, mayLeave = false) {
      clearInterval(purge);
      // No new work first; the streams of running turns stay until those have ended.
      const steps: EndStep[] = [
        ['turns and sandboxes', () => runtime.drain(graceMs, mayLeave), graceMs + 10_000],
        ['removals of agents', () => removals.close(), END_MS],
        ['sandbox driver', () => sandboxDriver.close(), END_MS],
        ['terminals', async () => terminals.close(), END_MS],
        ['listener', () => closeListener(), END_MS],
        ['gRPC', () => grpc.close(2_000), END_MS],
        ...outside.endSteps,
        ['events', () => hub.drain(), END_MS],
        ['deployments', () => work.idle(), END_MS],
        ['git', () => git.idle(), END_MS],
        ['push notifications', () => a2a.delivery.close(), END_MS],
        ['rate limit', () => rateLimit.close(), END_MS],
        ['keys', () => auth.close(), END_MS],
        ['egress', () => egress.close(), END_MS],
        ['budgets', () => budgetGuard.close(), END_MS],
        ['model gateway', () => gateway.close(), END_MS],
        ['doorbell', () => doorbell.close(), END_MS],
      ];
      return endInSteps(steps, log);
    },
  };
}
