import { accessSync, constants, statSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { isIP } from 'node:net';
import { dirname, join, resolve } from 'node:path';
import { parseNetwork, type Network } from './domain/address-ranges.ts';
import type { EgressPolicy } from './domain/egress-policy.ts';
import { egressPresets } from './domain/egress-presets.ts';
import { isolationGrades, type Isolation } from './domain/ports/sandbox.ts';

const sandboxDrivers = ['auto', 'bubblewrap', 'docker', 'process'] as const;

/** A bad variable: the message begins with its name and says what it may be. */
export class ConfigError extends Error {}

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

interface Variable {
  name: string;
  fallback: string;
  meaning: string;
}

/** Every variable with its default; `docs/configuration.md` is checked against this list. */
export const variables: Variable[] = [];

type Env = Record<string, string | undefined>;

function declare(name: string, fallback: string, meaning: string): (env: Env) => string {
  variables.push({ name, fallback, meaning });
  return (env) => env[name]?.trim() ?? '';
}

const vars = {
  host: declare('BERTH_HOST', '127.0.0.1', 'Address to listen on.'),
  port: declare('BERTH_PORT', '8080', 'Port to listen on, 0 to 65535; 0 takes a free one.'),
  baseUrl: declare(
    'BERTH_BASE_URL',
    'http://localhost:<port>',
    'Address that clients use; an http or https URL without a path.',
  ),
  appDomain: declare(
    'BERTH_APP_DOMAIN',
    'localhost:<port>',
    'Domain under which each agent has its address.',
  ),
  trustedProxies: declare(
    'BERTH_TRUSTED_PROXIES',
    '(none)',
    'Comma-separated address ranges in CIDR form of reverse proxies that are believed what they say of host and client.',
  ),
  dataDir: declare('BERTH_DATA_DIR', './data', 'Directory of everything that is kept.'),
  databaseUrl: declare(
    'BERTH_DATABASE_URL',
    '(embedded)',
    'postgres:// URL of a PostgreSQL 15 or newer; absent = an embedded one in the data directory.',
  ),
  databasePool: declare('BERTH_DATABASE_POOL', '8', 'Connections to the database, 2 to 100.'),
  sandbox: declare(
    'BERTH_SANDBOX',
    'auto',
    'Sandbox driver: bubblewrap, docker or process; auto is bubblewrap. There is no fallback from one to another.',
  ),
  minIsolation: declare(
    'BERTH_MIN_ISOLATION',
    'kernel',
    'Weakest isolation that the service starts with: none, kernel, user-kernel or vm.',
  ),
  processSandbox: declare(
    'BERTH_UNSAFE_PROCESS_SANDBOX',
    '0',
    '1 allows BERTH_SANDBOX=process, which isolates nothing. For development on a machine of your own.',
  ),
  dockerSocket: declare(
    'BERTH_DOCKER_SOCKET',
    '/var/run/docker.sock',
    'Unix socket of Docker or Podman, for BERTH_SANDBOX=docker.',
  ),
  dockerRuntime: declare(
    'BERTH_DOCKER_RUNTIME',
    "(the engine's)",
    'Name of the runtime as the engine knows it, such as runc, runsc or kata.',
  ),
  dockerImage: declare(
    'BERTH_DOCKER_IMAGE',
    '(none)',
    'Image of the sandboxes, which must be on the engine already; needed for BERTH_SANDBOX=docker.',
  ),
  rateLimit: declare(
    'BERTH_RATE_LIMIT',
    '600/60',
    'Requests per seconds that a key may make, as <requests>/<seconds>.',
  ),
  encryptionKeyFile: declare(
    'BERTH_ENCRYPTION_KEY_FILE',
    '<data dir>/encryption-key',
    'File of the key-encryption key; made when absent.',
  ),
  encryptionKey: declare(
    'BERTH_ENCRYPTION_KEY',
    '(file)',
    'The key-encryption key itself: 64 hex digits. Wins over the file.',
  ),
  allowPrivateNetworks: declare(
    'BERTH_ALLOW_PRIVATE_NETWORKS',
    '(none)',
    'Comma-separated address ranges in CIDR form that the SSRF guard lets through.',
  ),
  egressDefault: declare(
    'BERTH_EGRESS_DEFAULT',
    'npm,pypi,debian',
    'What agents reach whose owner has set nothing: none, open, or presets of registries, comma-separated.',
  ),
  defaultModel: declare(
    'BERTH_DEFAULT_MODEL',
    '(first configured provider)',
    'Model of agents that name none, as <provider>/<model_name>.',
  ),
  modelProviders: declare('BERTH_MODEL_PROVIDERS', '(none)', 'JSON file that names further model providers.'),
  sandboxMemory: declare('BERTH_SANDBOX_MEMORY_MB', '1024', 'Memory of a sandbox in MiB, 64 to 1048576.'),
  sandboxCpus: declare('BERTH_SANDBOX_CPUS', '1', 'Cores of a sandbox, 0.1 to 256.'),
  sandboxPids: declare('BERTH_SANDBOX_PIDS', '256', 'Processes and threads in a sandbox, 32 to 32768.'),
  sandboxDisk: declare(
    'BERTH_SANDBOX_DISK_MB',
    '2048',
    'Disk of an agent (workspace and home) in MiB, 16 to 1048576.',
  ),
  diskMode: declare(
    'BERTH_DISK_MODE',
    'watch',
    'How new agents are held to that: image (a file system of their own, needs root and loop devices; for bubblewrap), watch, or auto (image where it works).',
  ),
  snapshotFree: declare(
    'BERTH_SNAPSHOT_MIN_FREE_MB',
    '1024',
    'Free disk space in MiB that snapshots leave to all else, 0 to 1048576.',
  ),
  sandboxIdle: declare(
    'BERTH_SANDBOX_IDLE_SECONDS',
    '300',
    'Seconds without a turn after which a sandbox is stopped, 1 to 86400.',
  ),
  freezeAfter: declare(
    'BERTH_FREEZE_AFTER_SECONDS',
    '30',
    'Seconds without use after which the processes of a sandbox are frozen until the next use, 0 to 86400; 0 = never.',
  ),
  sandboxWarm: declare(
    'BERTH_WARM_SANDBOXES',
    '1',
    'Sandboxes kept ready for agents that have none, beside those, 0 to 1000; 0 = none.',
  ),
  sandboxMax: declare('BERTH_MAX_SANDBOXES', '64', 'Sandboxes kept at once on this node, 1 to 10000.'),
  maxActiveAgents: declare(
    'BERTH_MAX_ACTIVE_AGENTS',
    '1000',
    'Agents of an organisation with unfinished runs, beyond which a send gets too_many_sandboxes, 1 to 100000.',
  ),
  maxConcurrentRuns: declare(
    'BERTH_MAX_CONCURRENT_RUNS',
    '1000',
    'Turns that this node runs at once, 1 to 100000.',
  ),
  runTimeout: declare('BERTH_RUN_TIMEOUT_SECONDS', '3600', 'Seconds that a turn may take, 1 to 86400.'),
  runAttempts: declare(
    'BERTH_RUN_MAX_ATTEMPTS',
    '3',
    'Times that a turn is begun when its process was lost, 1 to 10.',
  ),
  lease: declare(
    'BERTH_LEASE_SECONDS',
    '10',
    'Seconds after which another node takes over the turns of a dead one, 2 to 300.',
  ),
  drain: declare('BERTH_DRAIN_SECONDS', '30', 'Seconds that running turns get to end on SIGTERM, 0 to 3600.'),
  detach: declare(
    'BERTH_DETACH',
    'auto',
    'Whether running turns go on while the service is restarted: always, never, or auto = unless it was started from a terminal.',
  ),
  logLevel: declare('BERTH_LOG_LEVEL', 'info', 'debug, info, warn, error or silent.'),
};

function number(
  name: string,
  text: string,
  fallback: number,
  min: number,
  max: number,
  whole = true,
): number {
  if (text === '') return fallback;
  // Number() alone would also take 0x1f and 1e3.
  const value = /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN;
  if (!Number.isFinite(value) || (whole && !Number.isInteger(value)) || value < min || value > max) {
    throw new ConfigError(
      `${name} must be a ${whole ? 'whole ' : ''}number from ${min} to ${max}; it is "${text}".`,
    );
  }
  return value;
}

function diskMode(env: Env, driver: string): Config['sandbox']['diskMode'] {
  const mode = oneOf('BERTH_DISK_MODE', vars.diskMode(env), 'watch', ['auto', 'image', 'watch']);
  if (mode === 'image' && (driver === 'docker' || driver === 'process'))
    throw new ConfigError(`BERTH_DISK_MODE: image is not for BERTH_SANDBOX=${driver}; use watch or auto.`);
  return mode;
}

function oneOf<T extends string>(name: string, text: string, fallback: T, allowed: readonly T[]): T {
  if (text === '') return fallback;
  const found = allowed.find((value) => value === text);
  if (!found) throw new ConfigError(`${name} must be one of ${allowed.join(', ')}; it is "${text}".`);
  return found;
}

/** Whether every folder above can be entered by any uid; matters only when the service is root. */
function reachable(path: string): boolean {
  for (let at = path; ; at = dirname(at)) {
    try {
      if ((statSync(at).mode & 0o001) === 0 && at !== path) return false;
    } catch {
      // What does not exist yet is made by us, enterable.
    }
    if (dirname(at) === at) return true;
  }
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
    defaultEgress: readDefaultEgress(vars.egressDefault(env) || 'npm,pypi,debian'),
    defaultModel: defaultModel || null,
    modelProvidersFile: readFileName('BERTH_MODEL_PROVIDERS', vars.modelProviders(env)),
    sandbox: {
      memoryMb: number('BERTH_SANDBOX_MEMORY_MB', vars.sandboxMemory(env), 1024, 64, 1_048_576),
      cpus: number('BERTH_SANDBOX_CPUS', vars.sandboxCpus(env), 1, 0.1, 256, false),
      pids: number('BERTH_SANDBOX_PIDS', vars.sandboxPids(env), 256, 32, 32_768),
      diskMb: number('BERTH_SANDBOX_DISK_MB', vars.sandboxDisk(env), 2048, 16, 1_048_576),
      diskMode: diskMode(env, driver),
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

function readBaseUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (
    !url ||
    !/^https?:$/.test(url.protocol) ||
    url.pathname !== '/' ||
    url.search ||
    url.hash ||
    url.username
  ) {
    throw new ConfigError(`BERTH_BASE_URL must be an http or https URL without a path; it is "${text}".`);
  }
  return url.origin;
}

function readRateLimit(text: string): { quota: number; windowSeconds: number } {
  const match = /^(\d{1,9})\/(\d{1,5})$/.exec(text);
  const quota = Number(match?.[1] ?? 0);
  const windowSeconds = Number(match?.[2] ?? 0);
  if (quota < 1 || windowSeconds < 1) {
    throw new ConfigError(`BERTH_RATE_LIMIT must be <requests>/<seconds>, such as 600/60; it is "${text}".`);
  }
  return { quota, windowSeconds };
}

function readNetworks(name: string, text: string): string[] {
  const ranges = text
    .split(',')
    .map((range) => range.trim())
    .filter(Boolean);
  for (const range of ranges) {
    const [address = '', bits = '', ...rest] = range.split('/');
    const maxBits = { 0: -1, 4: 32, 6: 128 }[isIP(address)] ?? -1;
    if (rest.length > 0 || !/^\d{1,3}$/.test(bits) || Number(bits) > maxBits) {
      throw new ConfigError(
        `${name} must be address ranges such as 127.0.0.0/8,::1/128; "${range}" is none.`,
      );
    }
  }
  return ranges;
}

function readDefaultEgress(text: string): EgressPolicy {
  const lists = { allow: [], deny: [], transparent: false };
  if (text === 'none' || text === 'open') return { mode: text, presets: [], ...lists };
  const presets = text.split(',').map((name) => name.trim());
  const unknown = presets.find((name) => !Object.hasOwn(egressPresets, name));
  if (unknown === undefined) return { mode: 'list', presets, ...lists };
  throw new ConfigError(
    `BERTH_EGRESS_DEFAULT must be none, open, or some of ${Object.keys(egressPresets).join(', ')}; "${unknown}" is none.`,
  );
}

function readFileName(name: string, text: string): string | null {
  if (text === '') return null;
  try {
    accessSync(text, constants.R_OK);
  } catch {
    throw new ConfigError(`${name} must name a readable file; "${text}" is none.`);
  }
  return resolve(text);
}
