import { spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openDatabase } from '../../src/store/database.ts';
import { findEngines, type Engine } from '../../src/store/embedded/engine.ts';
import { startEmbedded } from '../../src/store/embedded/server.ts';
import { migrate } from '../../src/store/migrate.ts';
import { silentLog } from './log.ts';

/**
 * Puts a migrated database without a row where a service finds its embedded one: most tests have no interest in how
 * that is made, which takes longer than all the rest of a first start.
 */
export async function placeCluster(home: string, engine = findEngines()[0]): Promise<void> {
  if (!engine) throw new Error('The tests need PostgreSQL: run npm install.');
  const ready = prepared.get(engine.binDir) ?? prepare(engine);
  prepared.set(engine.binDir, ready);
  const made = await ready;
  // Owners and modes stay: PostgreSQL takes no other.
  const copy = spawn('cp', ['-aT', made, home], { stdio: ['ignore', 'ignore', 'inherit'] });
  const [code] = (await once(copy, 'close')) as [number];
  if (code !== 0) throw new Error(`cp -aT ${made} ${home} ended with ${code}.`);
}

const prepared = new Map<string, Promise<string>>();

async function prepare(engine: Engine): Promise<string> {
  const folder = sharedFolder();
  const made = join(
    folder,
    `cluster-${createHash('sha256').update(engine.binDir).digest('hex').slice(0, 8)}`,
  );
  if (existsSync(made)) return made;
  // Renamed when complete: other test processes look for it at the same time.
  const partial = join(folder, `making-${randomBytes(6).toString('hex')}`);
  const server = await startEmbedded({
    home: partial,
    socketDir: `${partial}.run`,
    log: silentLog,
    engines: [engine],
  });
  try {
    const db = openDatabase({ connection: server.connection, pool: 1 });
    await migrate(db).finally(() => db.close());
  } finally {
    await server.stop();
  }
  try {
    renameSync(partial, made);
  } catch (error) {
    if (!existsSync(made)) throw error;
    rmSync(partial, { recursive: true, force: true });
  }
  return made;
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
