import { openDatabase, type Database, type DatabaseOptions } from './database.ts';

/** The database cannot be used as it was named. The message is one clear line for the operator. */
export class UnreachableError extends Error {}

/**
 * Opens a database and asks it one thing, so that whatever stands between (an address, a password, a certificate) is
 * told as that and not by what happens to be asked first. Throws UnreachableError.
 */
export async function openReached(options: DatabaseOptions): Promise<Database> {
  const db = opened(options);
  try {
    await db.sql`select 1`;
    return db;
  } catch (error) {
    await db.close();
    throw new UnreachableError(`The database cannot be used: ${reasonOf(error)}.${advice(options)}`, {
      cause: error,
    });
  }
}

function opened(options: DatabaseOptions): Database {
  try {
    return openDatabase(options);
  } catch (error) {
    // The driver takes the address apart, and says only that it is none; it may hold a password.
    if (!(error instanceof TypeError || error instanceof URIError)) throw error;
    throw new UnreachableError(
      'BERTH_DATABASE_URL cannot be read as an address (its value is not shown, since it may hold a password).',
    );
  }
}

/** Of a name with several addresses, each has a reason of its own, and the whole has none. */
function reasonOf(error: unknown): string {
  const first = error instanceof AggregateError ? (error.errors[0] as unknown) : error;
  const { message, code } = first as { message?: string; code?: string };
  return (message || code || String(first)).replace(/\.$/, '');
}

const advice = ({ connection }: DatabaseOptions): string =>
  typeof connection === 'string' ? ' Look at BERTH_DATABASE_URL.' : '';
