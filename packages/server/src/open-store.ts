import type { Config } from './config.ts';
import type { Log } from './domain/log.ts';
import { openDatabase, type Database } from './store/database.ts';
import { checkDriver } from './store/driver.ts';
import { startEmbedded, type EmbeddedServer } from './store/embedded/server.ts';
import { migrate } from './store/migrate.ts';
import { openReached } from './store/reach.ts';

/** No statement of the service takes so long, not even one that waits for a lock. */
const ANSWER_SECONDS = 60;

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
  checkDriver();
  const embedded =
    config.databaseUrl === null
      ? await startEmbedded({
          home: config.paths.postgres,
          socketDir: `${config.paths.run}/pg`,
          log: log.child({ part: 'postgres' }),
        })
      : null;
  const connection = embedded?.connection ?? config.databaseUrl!;
  try {
    const applied = await migrateApart(connection);
    if (applied.length > 0) log.info('The database schema was brought up to date.', { migrations: applied });
    const db = openDatabase({ connection, pool: config.databasePool, answerSeconds: ANSWER_SECONDS });
    const close = async (): Promise<void> => {
      await db.close();
      await embedded?.stop();
    };
    return { db, connection, embedded, close };
  } catch (error) {
    await embedded?.stop();
    throw error;
  }
}

/** By a connection of its own: a migration may take long, and waits for another replica's for as long as that takes. */
async function migrateApart(connection: OpenStore['connection']): Promise<number[]> {
  const db = await openReached({ connection, pool: 1 });
  try {
    return await migrate(db);
  } finally {
    await db.close();
  }
}
