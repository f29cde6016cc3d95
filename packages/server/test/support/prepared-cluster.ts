import { spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import postgres from 'postgres';
import { prepareHarness } from '../../src/harness/launch.ts';
import { openDatabase } from '../../src/store/database.ts';
import { createCluster, USER } from '../../src/store/embedded/cluster.ts';
import { findEngines, makeRunnable, type Engine } from '../../src/store/embedded/engine.ts';
import { chooseIdentity, ensureFolder } from '../../src/store/embedded/identity.ts';
import { startEmbedded, type Connection } from '../../src/store/embedded/server.ts';
import { migrate } from '../../src/store/migrate.ts';
import { silentLog } from './log.ts';

/** For a server whose databases are made one after another, or for a service, which has one and never makes another. */
export type Purpose = 'server' | 'service';

/**
 * Puts a migrated database without a row where a server of the tests, or a service its embedded one, finds it: most tests
 * have no interest in how that is made, which takes longer than all the rest of a first start.
 */
export async function placeCluster(home: string, purpose: Purpose, engine = findEngines()[0]): Promise<void> {
  if (!engine) throw new Error('The tests need PostgreSQL: run npm install.');
  const name = `${purpose}-${createHash('sha256').update(engine.binDir).digest('hex').slice(0, 8)}`;
  await place(name, (folder) => prepareCluster(folder, purpose, engine), home);
}

/** Puts the harness where a service looks for the one that an earlier start has prepared. */
export async function placeHarness(runtimeDir: string): Promise<void> {
  const sourceDir = fileURLToPath(new URL('../../../harness/src', import.meta.url));
  const prepare = async (targetDir: string): Promise<void> => {
    await prepareHarness({ sourceDir, targetDir });
    // A copy of Node, where the users of sandboxes do not reach the one that runs: a service links or copies its own.
    for (const name of readdirSync(targetDir).filter((one) => one.startsWith('node-')))
      rmSync(join(targetDir, name), { recursive: true });
  };
  await place('harness', prepare, runtimeDir);
}

const prepared = new Map<string, Promise<string>>();

/** Makes `name` once for all processes of the run, and puts a copy of it at `target`. */
async function place(name: string, make: (folder: string) => Promise<void>, target: string): Promise<void> {
  const ready = prepared.get(name) ?? prepare(name, make);
  prepared.set(name, ready);
  const made = await ready;
  // Owners and modes stay: PostgreSQL takes no other.
  const copy = spawn('cp', ['-aT', made, target], { stdio: ['ignore', 'ignore', 'inherit'] });
  const [code] = (await once(copy, 'close')) as [number];
  if (code !== 0) throw new Error(`cp -aT ${made} ${target} ended with ${code}.`);
}

async function prepare(name: string, make: (folder: string) => Promise<void>): Promise<string> {
  const folder = sharedFolder();
  const made = join(folder, name);
  if (existsSync(made)) return made;
  // Renamed when complete: other test processes look for it at the same time.
  const partial = join(folder, `making-${randomBytes(6).toString('hex')}`);
  await make(partial);
  try {
    renameSync(partial, made);
  } catch (error) {
    if (!existsSync(made)) throw error;
    rmSync(partial, { recursive: true, force: true });
  }
  return made;
}

async function prepareCluster(home: string, purpose: Purpose, engine: Engine): Promise<void> {
  const clusterDir = join(home, 'data');
  const identity = chooseIdentity(clusterDir);
  ensureFolder(home, 0o711);
  const runnable = await makeRunnable(engine, home, identity);
  await createCluster(runnable, clusterDir, join(home, 'password'), identity, false);
  const server = await startEmbedded({
    home,
    socketDir: `${home}.run`,
    log: silentLog,
    engines: [engine],
  });
  try {
    const db = openDatabase({ connection: server.connection, pool: 1 });
    await migrate(db).finally(() => db.close());
    await trim(server.connection, purpose, runnable.major);
  } finally {
    await server.stop();
  }
}

/** A run makes hundreds of servers and thousands of connections: neither those nor their files shall cost what users pay. */
async function trim(connection: Connection, purpose: Purpose, major: number): Promise<void> {
  const sql = postgres({ ...connection, max: 1, onnotice: () => {} });
  try {
    if (major >= 16) {
      await sql`set scram_iterations = 1`;
      // No parameters in commands that define something; the password is of letters, digits, - and _.
      await sql.unsafe(`alter role ${USER} password '${String(connection.password)}'`);
    }
    if (purpose === 'server') return;
    await sql`update pg_database set datistemplate = false`;
    for (const name of ['postgres', 'template1', 'template0']) await sql`drop database ${sql(name)}`;
  } finally {
    await sql.end();
  }
}

let own: string | null = null;

/** Of the whole run, when the runner of the tests made one; else of this process. */
function sharedFolder(): string {
  const given = process.env['BERTH_TEST_SHARED_DIR'];
  if (given) {
    mkdirSync(given, { recursive: true });
    chmodSync(given, 0o711);
    return given;
  }
  if (own !== null) return own;
  const made = mkdtempSync(join(process.getuid?.() === 0 ? '/tmp' : tmpdir(), 'berth-c-'));
  chmodSync(made, 0o711);
  process.once('exit', () => rmSync(made, { recursive: true, force: true }));
  return (own = made);
}
