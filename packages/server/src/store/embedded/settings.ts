export interface ServerSettings {
  socketDir: string;
  /** False only for tests: data may be lost when the machine stops. */
  durable: boolean;
  maxConnections: number;
}

/**
 * A small durable server for one service on the same machine. Nothing listens on the network; background processes
 * that only replication needs are off; statements and values never reach the log, since they may hold secrets.
 */
export function settingsFor(major: number, server: ServerSettings): Record<string, string> {
  return {
    listen_addresses: '',
    unix_socket_directories: server.socketDir,
    unix_socket_permissions: '0700',
    max_connections: String(server.maxConnections),
    superuser_reserved_connections: '2',
    ...memory,
    ...writing,
    ...background,
    ...logging,
    // PostgreSQL 18 starts three processes for asynchronous reads; a database that fits in memory has no use for them.
    ...(major >= 18 ? { io_method: 'sync' } : {}),
    ...(server.durable ? {} : { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' }),
  };
}

const memory = {
  shared_buffers: '48MB',
  huge_pages: 'off',
  work_mem: '4MB',
  maintenance_work_mem: '32MB',
  effective_cache_size: '512MB',
  max_parallel_workers_per_gather: '0',
  max_parallel_maintenance_workers: '0',
  max_worker_processes: '2',
  jit: 'off',
  random_page_cost: '1.1',
  // The statistics of wide columns (requests, histories) are most of what the automatic ANALYZE of a growing table takes:
  // up to two seconds of a processor with 100, in which deliveries wait (docs/decisions/0225).
  default_statistics_target: '25',
};

const writing = {
  fsync: 'on',
  synchronous_commit: 'on',
  full_page_writes: 'on',
  // Backups are logical: nothing reads the log but crash recovery.
  wal_level: 'minimal',
  max_wal_senders: '0',
  wal_compression: 'on',
  min_wal_size: '64MB',
  max_wal_size: '512MB',
  checkpoint_timeout: '15min',
};

const background = {
  max_logical_replication_workers: '0',
  max_replication_slots: '0',
  autovacuum: 'on',
  autovacuum_max_workers: '2',
  autovacuum_naptime: '60s',
  autovacuum_vacuum_scale_factor: '0.1',
  autovacuum_analyze_scale_factor: '0.05',
};

const logging = {
  log_destination: 'stderr',
  logging_collector: 'off',
  log_timezone: 'UTC',
  timezone: 'UTC',
  log_min_messages: 'log',
  log_min_error_statement: 'panic',
  log_error_verbosity: 'terse',
  log_checkpoints: 'off',
  log_line_prefix: '%m [%p] ',
};
