import { statSync } from 'node:fs';
import { join } from 'node:path';
import type { Config } from '../config.ts';
import type { Database } from '../store/database.ts';
import { checkCurrent, schemaVersion } from '../store/migrate.ts';
import { withDatabase } from './with-database.ts';

/** There is no installation to work on. The message is one clear line for the operator. */
export class InstallationError extends Error {}

/**
 * Does `work` on the installation of the configuration, beside its service or without. Where there is none, it is refused
 * before anything is made: run in a wrong folder, a command must not leave a second installation behind. `current`: the
 * work knows the tables of this version alone. Throws InstallationError.
 */
export async function withInstallation<T>(
  config: Config,
  needs: 'any version' | 'current',
  work: (db: Database) => Promise<T>,
): Promise<T> {
  refuseMissing(config);
  return withDatabase(config, 'shared', async (db) => {
    if ((await schemaVersion(db.sql)) === 0) throw new InstallationError(emptyText(config));
    if (needs === 'current') await checkCurrent(db.sql);
    return work(db);
  });
}

/** Makes nothing. What another user's folders hide is taken to be there: that they are closed is told later. */
function refuseMissing({ dataDir, databaseUrl, paths }: Config): void {
  const hasDatabase = isThere(join(paths.postgres, 'data', 'PG_VERSION'));
  // Of a service with a database elsewhere, these are here: the first since its start, the second since a restore.
  const hasFiles = isThere(join(dataDir, 'node-id')) || isThere(paths.repos);
  if (databaseUrl === null ? hasDatabase : hasFiles) return;
  throw new InstallationError(
    databaseUrl === null && hasFiles
      ? `${dataDir} has no database of its own: set BERTH_DATABASE_URL as its service has it.`
      : `There is no Berth installation in ${dataDir}: ${advice}.`,
  );
}

const advice = 'set BERTH_DATA_DIR to the data directory of the service, or run this where the service runs';

function emptyText({ dataDir, databaseUrl }: Config): string {
  return databaseUrl === null
    ? `There is no Berth installation in ${dataDir}, its database is empty: ${advice}.`
    : `There is no Berth installation in the database of BERTH_DATABASE_URL: set it as the service has it, or run this where the service runs (data directory ${dataDir}).`;
}

function isThere(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ENOTDIR';
  }
}
