import { join } from 'node:path';
import type { Config } from '../config.ts';
import type { Log } from '../domain/log.ts';
import { createLogger } from '../logger.ts';
import { DataDirError, lockDataDir } from '../store/data-dir-lock.ts';
import type { DataDirLock } from '../store/data-dir-lock.ts';
import type { Database, DatabaseOptions } from '../store/database.ts';
import { readConnection, startEmbedded } from '../store/embedded/server.ts';
import type { EmbeddedServer } from '../store/embedded/server.ts';
import { openReached } from '../store/reach.ts';

/**
 * Opens the database of the configuration, and makes it where there is none. `alone` refuses when the service runs;
 * `shared` joins the running service's embedded PostgreSQL, or starts it for the time of `work`.
 */
export async function withDatabase<T>(
  config: Config,
  use: 'alone' | 'shared',
  work: (db: Database) => Promise<T>,
): Promise<T> {
  const lock = takeLock(config.dataDir, use);
  let server: EmbeddedServer | undefined;
  let db: Database | undefined;
  try {
    const places = { home: config.paths.postgres, socketDir: join(config.paths.run, 'pg') };
    let connection: DatabaseOptions['connection'];
    if (config.databaseUrl !== null) connection = config.databaseUrl;
    else if (lock === null) connection = readConnection(places);
    else connection = (server = await startEmbedded({ ...places, log: quietLog() })).connection;
    db = await openReached({ connection, pool: 1 });
    return await work(db);
  } finally {
    await db?.close();
    await server?.stop();
    lock?.release();
  }
}

/** Null = the service holds it. */
function takeLock(dataDir: string, use: 'alone' | 'shared'): DataDirLock | null {
  try {
    return lockDataDir(dataDir);
  } catch (error) {
    if (use === 'shared' && error instanceof DataDirError && error.isHeld) return null;
    throw error;
  }
}

/** Errors only, to standard error. */
function quietLog(): Log {
  return createLogger('error', (text) => process.stderr.write(text));
}
