import type { Config } from './config.ts';
import type { Log } from './domain/log.ts';
import { openDatabase, type Database } from './store/database.ts';
import { startEmbedded, type EmbeddedServer } from './store/embedded/server.ts';
import { migrate } from './store/migrate.ts';

export interface OpenStore {
  db: Database;
  /** Where a connection apart from the pool (LISTEN) goes. */
  connection: Parameters<typeof openDatabase>[0]['connection'];
  /** Null with a database of the operator's own. */
  embedded: EmbeddedServer | null;
  close(): Promise<void>;
}

/** Connects to the database that the configuration names, starting the embedded one when it names none; migrates. */
export async function openStore(config: Config, log: Log): Promise<OpenStore> {
  const embedded =
    config.databaseUrl === null
      ? await startEmbedded({
          home: config.paths.postgres,
          socketDir: `${config.paths.run}/pg`,
          log: log.child({ part: 'postgres' }),
        })
      : null;
  const connection = embedded?.connection ?? config.databaseUrl!;
  const db = openDatabase({ connection, pool: config.databasePool });
  const close = async (): Promise<void> => {
    await db.close();
    await embedded?.stop();
  };
  try {
    const applied = await migrate(db);
    if (applied.length > 0) log.info('The database schema was brought up to date.', { migrations: applied });
  } catch (error) {
    await close();
    throw error;
  }
  return { db, connection, embedded, close };
}
