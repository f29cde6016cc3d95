interface Variable {
  name: string;
  fallback: string;
  meaning: string;
}

/** Every variable with its default; `docs/configuration.md` is checked against this list. */
export const variables: Variable[] = [];

export type Env = Record<string, string | undefined>;

function declare(name: string, fallback: string, meaning: string): (env: Env) => string {
  variables.push({ name, fallback, meaning });
  return (env) => env[name]?.trim() ?? '';
}

export const vars = {
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
  smtpPort: declare(
    'BERTH_SMTP_PORT',
    '(off)',
    'Port on which mail to the addresses of channels is taken over SMTP, 0 to 65535; 0 takes a free one. Absent: none.',
  ),
  smtpHost: declare('BERTH_SMTP_HOST', '127.0.0.1', 'Address on which mail is taken.'),
  smtpName: declare(
    'BERTH_SMTP_NAME',
    '(host of BERTH_BASE_URL)',
    'Host name by which the service calls itself to mail servers.',
  ),
  smtpCert: declare(
    'BERTH_SMTP_TLS_CERT',
    '(none)',
    'File of the certificate for STARTTLS, in PEM form; together with its key.',
  ),
  smtpKey: declare('BERTH_SMTP_TLS_KEY', '(none)', 'File of its key, in PEM form.'),
  a2aGrpcPort: declare(
    'BERTH_A2A_GRPC_PORT',
    '(off)',
    'Port on which agents speak A2A over gRPC, on the address of BERTH_HOST, 0 to 65535; 0 takes a free one. Absent: they do not.',
  ),
  a2aGrpcPublicPort: declare(
    'BERTH_A2A_GRPC_PUBLIC_PORT',
    '(the same)',
    'Port of gRPC that agent cards tell, 1 to 65535, when a proxy takes it on another one.',
  ),
  a2aCapabilities: declare(
    'BERTH_A2A_CAPABILITIES',
    'streaming,pushNotifications,extendedAgentCard',
    'What agent cards declare for A2A, comma-separated, or none; what is left out is refused.',
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
  sandboxDiskWrites: declare(
    'BERTH_SANDBOX_DISK_WRITE_MB',
    '64',
    'MiB that an agent may write to a disk of its own in a second, 1 to 65536, or 0: as much as the disk of the host takes.',
  ),
  diskMode: declare(
    'BERTH_DISK_MODE',
    'auto',
    'How new agents are held to that: image (a file system of their own, needs root and loop devices; for bubblewrap), watch, or auto (image where it works, the disk has room, and the database is embedded).',
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
    'Turns that this node runs at once, 1 to 100000; at most half of them of one agent and nine tenths of one organisation, the others wait.',
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
