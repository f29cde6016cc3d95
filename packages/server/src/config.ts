import { readA2aCapabilities, readA2aGrpc, type A2aGrpcConfig } from './config-a2a.ts';
import { readSmtp, type SmtpConfig } from './config-smtp.ts';
import { createHash } from 'node:crypto';
import { join, resolve } from 'node:path';
import type { A2aCapability } from './domain/a2a-capabilities.ts';
import { parseNetwork, type Network } from './domain/address-ranges.ts';
import type { EgressPolicy } from './domain/egress-policy.ts';
import { isolationGrades, type Isolation } from './domain/ports/sandbox.ts';
import {
  ConfigError,
  number,
  oneOf,
  reachable,
  readBaseUrl,
  readDefaultEgress,
  readFileName,
  readNetworks,
  readRateLimit,
} from './config-values.ts';
import { vars, type Env } from './config-variables.ts';

const sandboxDrivers = ['auto', 'bubblewrap', 'docker', 'process'] as const;

export interface Config {
  host: string;
  port: number;
  baseUrl: string;
  appDomain: string;
  /** Proxies whose X-Forwarded-Host and X-Forwarded-For are believed. */
  trustedProxies: Network[];
  dataDir: string;
  /** Null = the embedded PostgreSQL. */
  databaseUrl: string | null;
  databasePool: number;
  sandboxDriver: 'bubblewrap' | 'docker' | 'process';
  /** A driver that isolates less is refused at the start. */
  minIsolation: Isolation;
  /** Lets agents run as plain processes of this machine, for development alone. */
  allowsProcessSandbox: boolean;
  docker: {
    socket: string;
    /** Null = the engine's default. */
    runtime: string | null;
    image: string | null;
  };
  /** Requests allowed in a window, per key. */
  rateLimit: { quota: number; windowSeconds: number };
  encryptionKeyFile: string;
  /** The key-encryption key itself (32 bytes as 64 hex digits), when it comes by variable. */
  encryptionKey: string | null;
  allowPrivateNetworks: string[];
  /** Null: mail is not taken over SMTP. */
  smtp: SmtpConfig | null;
  /** Null: A2A is not served over gRPC. */
  a2aGrpc: A2aGrpcConfig | null;
  /** What agent cards declare for A2A. */
  a2aCapabilities: readonly A2aCapability[];
  /** Of agents whose owner has set none. */
  defaultEgress: EgressPolicy;
  defaultModel: string | null;
  modelProvidersFile: string | null;
  sandbox: {
    memoryMb: number;
    cpus: number;
    pids: number;
    diskMb: number;
    diskMode: 'auto' | 'image' | 'watch';
    /** MiB a second; 0 for as much as the disk takes. */
    diskWriteMb: number;
    idleSeconds: number;
    /** After so long without use a sandbox is frozen; 0 = never. */
    freezeAfterSeconds: number;
    /** Sandboxes that are kept ready for agents that have none. */
    warm: number;
    /** Sandboxes that this node keeps at once, running turns or warm. */
    max: number;
  };
  /** Snapshots leave so much of the disk free. */
  snapshotMinFreeMb: number;
  /** Agents of one organisation with accepted and unfinished work, beyond which a send is refused. */
  maxActiveAgents: number;
  maxConcurrentRuns: number;
  runTimeoutSeconds: number;
  runMaxAttempts: number;
  leaseSeconds: number;
  drainSeconds: number;
  /** Whether sandboxes live on when the service ends: `auto` = unless it was started from a terminal. */
  detach: 'auto' | 'always' | 'never';
  logLevel: 'debug' | 'info' | 'warn' | 'error' | 'silent';
  paths: {
    bootstrapKey: string;
    repos: string;
    /** Reachable for other uids, since sandboxes and, as root, PostgreSQL run under their own. */
    postgres: string;
    volumes: string;
    /** Stored volumes, a folder for each organisation. */
    snapshots: string;
    runtime: string;
    /** Images of volumes, one for each agent that has one. */
    disks: string;
    /** Sockets; short, since a Unix socket's path has at most 107 bytes. */
    run: string;
  };
}

/** An image is mounted by one service, and replicas share volumes: `auto` makes none where there may be several. */
function diskMode(env: Env, driver: string, databaseUrl: string): Config['sandbox']['diskMode'] {
  const mode = oneOf('BERTH_DISK_MODE', vars.diskMode(env), 'auto', ['auto', 'image', 'watch']);
  if (mode === 'image' && (driver === 'docker' || driver === 'process'))
    throw new ConfigError(`BERTH_DISK_MODE: image is not for BERTH_SANDBOX=${driver}; use watch or auto.`);
  return mode === 'auto' && databaseUrl !== '' ? 'watch' : mode;
}

/**
 * Reads the environment (API contract, section 1, "Start-up contract"). Throws ConfigError on the first bad value.
 * `boundPort` replaces a port of 0 in the derived addresses.
 */
export function readConfig(env: Env): Config {
  const port = number('BERTH_PORT', vars.port(env), 8080, 0, 65535);
  const dataDir = resolve(vars.dataDir(env) || './data');
  const isRoot = process.getuid?.() === 0;
  const hash = createHash('sha256').update(dataDir).digest('hex').slice(0, 12);
  // A root service whose data lies below a closed folder (such as /root) keeps what other uids must reach elsewhere.
  const elsewhere = join('/var/lib', `berth-${hash}`);
  const shared = !isRoot || reachable(dataDir) ? dataDir : elsewhere;
  // 107 bytes less "/<uuid>/<name>.sock".
  const isShort = Buffer.byteLength(join(shared, 'run')) <= 50;
  // Never /tmp as root: the folder above is opened for other users to pass through.
  const farRun = isRoot ? join(elsewhere, 'run') : join('/tmp', `berth-${hash}`);

  const baseUrl = readBaseUrl(vars.baseUrl(env) || `http://localhost:${port}`);
  const appDomain = vars.appDomain(env) || `localhost:${port}`;
  if (!/^[a-z0-9.-]+(:\d{1,5})?$/i.test(appDomain)) {
    throw new ConfigError(
      `BERTH_APP_DOMAIN must be a host name with an optional port; it is "${appDomain}".`,
    );
  }
  const databaseUrl = vars.databaseUrl(env);
  if (databaseUrl !== '' && !/^postgres(ql)?:\/\//.test(databaseUrl)) {
    throw new ConfigError(
      'BERTH_DATABASE_URL must begin with postgres:// (its value is not shown, since it may hold a password).',
    );
  }
  const encryptionKey = vars.encryptionKey(env);
  if (encryptionKey !== '' && !/^[0-9a-f]{64}$/i.test(encryptionKey)) {
    throw new ConfigError('BERTH_ENCRYPTION_KEY must be 64 hex digits (its value is not shown).');
  }
  const driver = oneOf('BERTH_SANDBOX', vars.sandbox(env), 'auto', sandboxDrivers);
  const defaultModel = vars.defaultModel(env);
  if (defaultModel !== '' && !/^[a-z0-9][a-z0-9_-]*\/\S+$/.test(defaultModel)) {
    throw new ConfigError(`BERTH_DEFAULT_MODEL must be <provider>/<model_name>; it is "${defaultModel}".`);
  }
  return Object.freeze({
    host: vars.host(env) || '127.0.0.1',
    port,
    baseUrl,
    appDomain,
    trustedProxies: readNetworks('BERTH_TRUSTED_PROXIES', vars.trustedProxies(env)).map((range) =>
      parseNetwork(range)!,
    ),
    dataDir,
    databaseUrl: databaseUrl || null,
    databasePool: number('BERTH_DATABASE_POOL', vars.databasePool(env), 8, 2, 100),
    sandboxDriver: driver === 'auto' ? 'bubblewrap' : driver,
    minIsolation: oneOf('BERTH_MIN_ISOLATION', vars.minIsolation(env), 'kernel', isolationGrades),
    allowsProcessSandbox:
      oneOf('BERTH_UNSAFE_PROCESS_SANDBOX', vars.processSandbox(env), '0', ['0', '1']) === '1',
    docker: readDocker(env, driver),
    rateLimit: readRateLimit(vars.rateLimit(env) || '600/60'),
    encryptionKeyFile: vars.encryptionKeyFile(env) || join(dataDir, 'encryption-key'),
    encryptionKey: encryptionKey || null,
    allowPrivateNetworks: readNetworks('BERTH_ALLOW_PRIVATE_NETWORKS', vars.allowPrivateNetworks(env)),
    smtp: readSmtp(env, baseUrl),
    a2aGrpc: readA2aGrpc(env, port),
    a2aCapabilities: readA2aCapabilities(env),
    defaultEgress: readDefaultEgress(vars.egressDefault(env) || 'npm,pypi,debian'),
    defaultModel: defaultModel || null,
    modelProvidersFile: readFileName('BERTH_MODEL_PROVIDERS', vars.modelProviders(env)),
    sandbox: {
      memoryMb: number('BERTH_SANDBOX_MEMORY_MB', vars.sandboxMemory(env), 1024, 64, 1_048_576),
      cpus: number('BERTH_SANDBOX_CPUS', vars.sandboxCpus(env), 1, 0.1, 256, false),
      pids: number('BERTH_SANDBOX_PIDS', vars.sandboxPids(env), 256, 32, 32_768),
      diskMb: number('BERTH_SANDBOX_DISK_MB', vars.sandboxDisk(env), 2048, 16, 1_048_576),
      diskMode: diskMode(env, driver, databaseUrl),
      diskWriteMb: number('BERTH_SANDBOX_DISK_WRITE_MB', vars.sandboxDiskWrites(env), 64, 0, 65_536),
      freezeAfterSeconds: number('BERTH_FREEZE_AFTER_SECONDS', vars.freezeAfter(env), 30, 0, 86_400),
      idleSeconds: number('BERTH_SANDBOX_IDLE_SECONDS', vars.sandboxIdle(env), 300, 1, 86_400),
      warm: number('BERTH_WARM_SANDBOXES', vars.sandboxWarm(env), 1, 0, 1_000),
      max: number('BERTH_MAX_SANDBOXES', vars.sandboxMax(env), 64, 1, 10_000),
    },
    snapshotMinFreeMb: number('BERTH_SNAPSHOT_MIN_FREE_MB', vars.snapshotFree(env), 1024, 0, 1_048_576),
    maxActiveAgents: number('BERTH_MAX_ACTIVE_AGENTS', vars.maxActiveAgents(env), 1000, 1, 100_000),
    maxConcurrentRuns: number('BERTH_MAX_CONCURRENT_RUNS', vars.maxConcurrentRuns(env), 1000, 1, 100_000),
    runTimeoutSeconds: number('BERTH_RUN_TIMEOUT_SECONDS', vars.runTimeout(env), 3600, 1, 86_400),
    runMaxAttempts: number('BERTH_RUN_MAX_ATTEMPTS', vars.runAttempts(env), 3, 1, 10),
    leaseSeconds: number('BERTH_LEASE_SECONDS', vars.lease(env), 10, 2, 300),
    detach: oneOf('BERTH_DETACH', vars.detach(env), 'auto', ['auto', 'always', 'never']),
    drainSeconds: number('BERTH_DRAIN_SECONDS', vars.drain(env), 30, 0, 3600),
    logLevel: oneOf('BERTH_LOG_LEVEL', vars.logLevel(env), 'info', [
      'debug',
      'info',
      'warn',
      'error',
      'silent',
    ] as const),
    paths: {
      bootstrapKey: join(dataDir, 'bootstrap-key'),
      repos: join(dataDir, 'repos'),
      postgres: join(shared, 'postgres'),
      volumes: join(shared, 'volumes'),
      snapshots: join(dataDir, 'snapshots'),
      runtime: join(shared, 'runtime'),
      disks: join(dataDir, 'disks'),
      run: isShort ? join(shared, 'run') : farRun,
    },
  });
}

/** The same configuration with a port that was found free, in the derived addresses too. */
export function withPort(config: Config, port: number, env: Env): Config {
  return config.port === port ? config : readConfig({ ...env, BERTH_PORT: String(port) });
}

function readDocker(env: Env, driver: (typeof sandboxDrivers)[number]): Config['docker'] {
  const socket = vars.dockerSocket(env) || '/var/run/docker.sock';
  if (!socket.startsWith('/') || Buffer.byteLength(socket) > 107)
    throw new ConfigError(
      `BERTH_DOCKER_SOCKET must be the absolute path of a Unix socket, at most 107 bytes long; it is "${socket}".`,
    );
  const runtime = vars.dockerRuntime(env);
  if (runtime !== '' && !/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/.test(runtime))
    throw new ConfigError(
      `BERTH_DOCKER_RUNTIME must be the name of a runtime, such as runsc; it is "${runtime}".`,
    );
  const image = vars.dockerImage(env);
  if (/\s/.test(image))
    throw new ConfigError(`BERTH_DOCKER_IMAGE must be the name of an image; it is "${image}".`);
  if (driver === 'docker' && image === '')
    throw new ConfigError(
      'BERTH_DOCKER_IMAGE must name an image when BERTH_SANDBOX is docker (docs/sandbox.md).',
    );
  return { socket, runtime: runtime || null, image: image || null };
}
