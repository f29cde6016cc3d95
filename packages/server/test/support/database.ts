import { randomBytes } from 'node:crypto';
import { accessSync, constants, mkdtempSync, readFileSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import postgres from 'postgres';
import { openDatabase } from '../../src/store/database.ts';
import type { Database } from '../../src/store/database.ts';
import { findEngines } from '../../src/store/embedded/engine.ts';
import type { Engine } from '../../src/store/embedded/engine.ts';
import { startEmbedded } from '../../src/store/embedded/server.ts';
import type { Connection } from '../../src/store/embedded/server.ts';
import { silentLog } from './log.ts';
import { placeCluster } from './prepared-cluster.ts';

export interface TestEngine {
  name: 'embedded' | 'system';
  engine: Engine | undefined;
  /** Options for `test`: skipped, with the reason, when this machine has not got the engine. */
  options: { skip: string | false };
}

export interface TestDatabase {
  db: Database;
  connection: Connection;
  /** Ends the connections and drops the database. */
  close(): Promise<void>;
}

interface TestServer {
  connection: Connection;
  admin: postgres.Sql;
}

/** The one that a prepared cluster has; nobody is ever connected to it. */
const TEMPLATE = 'berth';
const servers = new Map<string, Promise<TestServer>>();

/** The engines on which the store is tested: the npm package's and the newest of the distribution. */
export function engines(): TestEngine[] {
  const found = findEngines();
  const embedded = found.find((engine) => engine.kind === 'npm');
  const system = found.find((engine) => engine.kind === 'system');
  return [
    {
      name: 'embedded',
      engine: embedded,
      options: { skip: embedded ? false : 'the npm package has no PostgreSQL for this platform' },
    },
    {
      name: 'system',
      engine: system,
      options: { skip: system ? false : 'no PostgreSQL 15 or newer in /usr/lib/postgresql' },
    },
  ];
}

/**
 * A fresh, migrated database of its own. The first call starts one server for the whole test process in a
 * temporary folder; both are gone when the process has ended, even when it was killed.
 */
export async function testDatabase(
  options: { engine?: Engine | undefined; migrated?: boolean; pool?: number } = {},
): Promise<TestDatabase> {
  const engine = options.engine ?? findEngines()[0];
  if (!engine) throw new Error('The tests need PostgreSQL: run npm install.');
  const { admin, connection } = await serverFor(engine);
  const name = `test_${randomBytes(8).toString('hex')}`;
  await admin.unsafe(
    `create database ${name} template ${options.migrated === false ? 'template0' : TEMPLATE} strategy file_copy`,
  );
  const own = { ...connection, database: name };
  const db = openDatabase({ connection: own, pool: options.pool ?? 8 });
  return {
    db,
    connection: own,
    async close() {
      await db.close();
      await admin.unsafe(`drop database ${name} with (force)`);
    },
  };
}

function serverFor(engine: Engine): Promise<TestServer> {
  const running = servers.get(engine.binDir) ?? startServer(engine);
  servers.set(engine.binDir, running);
  return running;
}

const memory = '/dev/shm';
/** All databases of all processes of a run have far less at once. */
const enoughBytes = 2 * 1024 ** 3;

/**
 * A database is hundreds of files, and each test makes one and drops it: on a disk that is most of what a run costs (ext4
 * looks for inodes that were not freed lately), in memory it is nothing.
 */
export function folderForDatabases(): string {
  try {
    accessSync(memory, constants.W_OK | constants.X_OK);
    const { bavail, bsize } = statfsSync(memory);
    if (bavail * bsize >= enoughBytes && mayRunPrograms(memory)) return memory;
  } catch {
    // Where there is no such folder, or none to write to, it is the disk.
  }
  // As root PostgreSQL runs under another uid, which can enter /tmp but not every TMPDIR.
  return process.getuid?.() === 0 ? '/tmp' : tmpdir();
}

/** In containers nothing in it may be run, and an engine that PostgreSQL's uid cannot reach is copied beside its database. */
function mayRunPrograms(folder: string): boolean {
  const mount = readFileSync('/proc/mounts', 'utf8')
    .split('\n')
    .map((line) => line.split(' '))
    .findLast(([, path]) => path === folder);
  return mount?.[3]?.split(',').includes('noexec') !== true;
}

async function startServer(engine: Engine): Promise<TestServer> {
  const home = mkdtempSync(join(folderForDatabases(), 'berth-pg-'));
  await placeCluster(home, 'server', engine);
  const { connection } = await startEmbedded({
    home,
    socketDir: join(home, 'run'),
    log: silentLog,
    engines: [engine],
    maxConnections: 400,
    throwaway: true,
  });
  // A connection that keeps no event loop alive for long: the process must be able to end without being told to.
  const admin = postgres({
    ...connection,
    database: 'postgres',
    max: 2,
    idle_timeout: 1,
    onnotice: () => {},
  });
  return { connection, admin };
}
