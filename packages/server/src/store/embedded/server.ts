import { readFileSync, renameSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import postgres from 'postgres';
import type { Log } from '../../domain/log.ts';
import { clusterMajor, createCluster, USER } from './cluster.ts';
import { findEngines, makeRunnable } from './engine.ts';
import type { Engine, RunnableEngine } from './engine.ts';
import { EmbeddedError } from './errors.ts';
import { chooseIdentity, ensureFolder } from './identity.ts';
import type { Identity } from './identity.ts';
import { settingsFor } from './settings.ts';
import { clearStale, readPid, signal } from './stale.ts';
import { supervise } from './supervisor.ts';
import type { Supervised } from './supervisor.ts';

export type Connection = postgres.Options<Record<string, never>>;

export interface EmbeddedOptions {
  /** Folder for the data directory, the password and the log. Other uids must be able to pass through its parents. */
  home: string;
  /** Folder of the socket, PostgreSQL's own; its path must have at most 90 bytes. */
  socketDir: string;
  log: Log;
  /** Default 40. */
  maxConnections?: number;
  /** Candidates, best first; default: the npm package's binaries, then the distribution's. */
  engines?: Engine[];
  /** For tests: no fsync, and `home` is removed once the server has ended, however the process ended. */
  throwaway?: boolean;
}

export interface EmbeddedServer {
  engine: RunnableEngine;
  clusterDir: string;
  /** Connection options of postgres.js for the database `berth`. */
  connection: Connection;
  /** Process id of PostgreSQL; null while it is being restarted. */
  pid(): number | null;
  /** Fast shutdown; resolves once every process of it has ended. */
  stop(): Promise<void>;
}

const DATABASE = 'berth';
const PASSWORD_FILE = 'password';
const STOP_MS = 30_000;
const START_MS = 300_000;
const LOG_LIMIT_BYTES = 8 * 1024 * 1024;

interface Server {
  engine: RunnableEngine;
  identity: Identity;
  clusterDir: string;
  logFile: string;
  settings: Record<string, string>;
  connection: Connection;
  options: EmbeddedOptions;
}

/** Starts PostgreSQL on a Unix socket, making its data directory at the first start. Resolves when it answers. */
export async function startEmbedded(options: EmbeddedOptions): Promise<EmbeddedServer> {
  const server = await prepare(options);
  const stopping = new AbortController();
  let current = await start(server, stopping.signal);

  // PostgreSQL restarts its own processes; the service restarts PostgreSQL when it is killed as a whole.
  async function keepRunning(): Promise<void> {
    for (let failures = 0; ;) {
      const code = await current.ended;
      if (stopping.signal.aborted) return;
      options.log.error('PostgreSQL ended by itself and is started again', {
        exitCode: code,
        logFile: server.logFile,
      });
      await pause(Math.min(100 * 2 ** failures, 10_000), stopping.signal);
      if (stopping.signal.aborted) return;
      try {
        current = await start(server, stopping.signal);
        failures = 0;
      } catch (error) {
        if (stopping.signal.aborted) return;
        options.log.error('PostgreSQL did not start', { error: String(error) });
        failures += 1;
      }
      // A stop that came meanwhile has ended only the one before this one.
      if (stopping.signal.aborted) await end(current, server);
    }
  }
  const keeper = keepRunning();

  return {
    engine: server.engine,
    clusterDir: server.clusterDir,
    connection: server.connection,
    pid: () => readPid(join(server.clusterDir, 'postmaster.pid')),
    async stop() {
      stopping.abort();
      await end(current, server);
      await keeper;
      // Of one that was killed, the children end by themselves, a moment later.
      await clearStale(server.clusterDir, server.options.socketDir);
    },
  };
}

/** How to reach a server that some process of this installation has started, or will. */
export function readConnection({ home, socketDir }: Pick<EmbeddedOptions, 'home' | 'socketDir'>): Connection {
  const password = readFileSync(join(home, PASSWORD_FILE), 'utf8');
  return { host: socketDir, user: USER, password, database: DATABASE };
}

async function prepare(options: EmbeddedOptions): Promise<Server> {
  const { home, socketDir } = options;
  const durable = !options.throwaway;
  const clusterDir = join(home, 'data');
  const passwordFile = join(home, PASSWORD_FILE);
  const identity = chooseIdentity(clusterDir);
  if (Buffer.byteLength(socketDir) > 90)
    throw new EmbeddedError(`${socketDir} is too long for a socket's folder.`);
  ensureFolder(home, 0o711, options.throwaway ? identity : undefined);
  ensureFolder(socketDir, 0o700, identity);
  const engine = await chooseEngine(options.engines ?? findEngines(), clusterDir, home, identity);
  if (clusterMajor(clusterDir) === null)
    await createCluster(engine, clusterDir, passwordFile, identity, durable);
  const maxConnections = options.maxConnections ?? 40;
  return {
    engine,
    identity,
    clusterDir,
    logFile: join(home, 'postgres.log'),
    settings: settingsFor(engine.major, { socketDir, durable, maxConnections }),
    connection: readConnection(options),
    options,
  };
}

/** The first candidate that runs and can read the data directory that is there. */
async function chooseEngine(
  candidates: Engine[],
  clusterDir: string,
  home: string,
  identity: Identity,
): Promise<RunnableEngine> {
  const wanted = clusterMajor(clusterDir);
  const refused: string[] = [];
  for (const candidate of candidates) {
    try {
      const engine = await makeRunnable(candidate, home, identity);
      if (wanted === null || engine.major === wanted) return engine;
      refused.push(`${candidate.binDir} is of version ${engine.major}`);
    } catch (error) {
      refused.push((error as Error).message);
    }
  }
  const reasons = refused.length > 0 ? ` (${refused.join('; ')})` : '';
  if (wanted !== null) {
    throw new EmbeddedError(
      `${clusterDir} was made by PostgreSQL ${wanted}, which is not here${reasons}. Restore a backup into a new data directory.`,
    );
  }
  throw new EmbeddedError(
    `No PostgreSQL is here${reasons}: run npm install, install the package postgresql, or set BERTH_DATABASE_URL.`,
  );
}

/** Rejects when it does not start, or once `stopping` is aborted; nothing of it is left then. */
async function start(server: Server, stopping: AbortSignal): Promise<Supervised> {
  await clearStale(server.clusterDir, server.options.socketDir);
  const logStart = rotateLog(server.logFile);
  const supervised = supervise(server.engine, {
    clusterDir: server.clusterDir,
    settings: server.settings,
    logFile: server.logFile,
    identity: server.identity,
    ...(server.options.throwaway ? { removeAfterwards: server.options.home } : {}),
  });
  try {
    await untilReady(server, supervised, logStart, stopping);
  } catch (error) {
    await end(supervised, server);
    throw error;
  }
  return supervised;
}

/** Keeps one older log; returns where the new lines will begin. */
function rotateLog(file: string): number {
  const size = statSync(file, { throwIfNoEntry: false })?.size ?? 0;
  if (size < LOG_LIMIT_BYTES) return size;
  renameSync(file, `${file}.1`);
  return 0;
}

/** Connects until it succeeds. Recovery after a crash may take its time; a server that ended will never answer. */
async function untilReady(
  server: Server,
  supervised: Supervised,
  logStart: number,
  stopping: AbortSignal,
): Promise<void> {
  let endedWith: number | null = null;
  void supervised.ended.then((code) => (endedWith = code));
  const deadline = Date.now() + START_MS;
  for (;;) {
    const error = await tryToConnect(server.connection);
    if (!error) return;
    stopping.throwIfAborted();
    if (endedWith !== null || Date.now() > deadline) {
      const lines = readFileSync(server.logFile).subarray(logStart).toString('utf8').trim().split('\n');
      throw new EmbeddedError(
        `PostgreSQL did not start: ${lines.slice(-4).join(' | ') || error.message} (see ${server.logFile})`,
      );
    }
    await delay(10);
  }
}

/** Ends early with `stopping`: a stop that waits for the keeper waits for no timer. */
async function pause(ms: number, stopping: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal: stopping, ref: false }).catch(() => undefined);
}

async function tryToConnect(connection: Connection): Promise<Error | null> {
  const error = await query(connection, 'select 1');
  if ((error as { code?: string } | null)?.code !== '3D000') return error;
  // The database itself is made when the first connection finds it missing.
  return query({ ...connection, database: 'postgres' }, `create database ${DATABASE}`);
}

async function query(connection: Connection, text: string): Promise<Error | null> {
  const sql = postgres({
    ...connection,
    max: 1,
    connect_timeout: 10,
    onnotice: () => {},
    // Its own question about types has nobody who handles its failure: that would end the process.
    fetch_types: false,
  });
  try {
    await sql.unsafe(text);
    return null;
  } catch (error) {
    return error as Error;
  } finally {
    await sql.end({ timeout: 1 });
  }
}

async function end(supervised: Supervised, server: Server): Promise<void> {
  supervised.stop();
  const late = delay(STOP_MS, 'late' as const, { ref: false });
  if ((await Promise.race([supervised.ended, late])) !== 'late') return;
  server.options.log.warn('PostgreSQL did not stop in time and is ended at once', {
    seconds: STOP_MS / 1000,
  });
  const pid = readPid(join(server.clusterDir, 'postmaster.pid'));
  if (pid) signal(pid, 'SIGQUIT');
  await Promise.race([supervised.ended, delay(5000, undefined, { ref: false })]);
  supervised.kill();
  await clearStale(server.clusterDir, server.options.socketDir);
}
