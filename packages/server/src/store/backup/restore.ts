import { once } from 'node:events';
import type { Readable, Writable } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Database, Sql } from '../database.ts';
import { migrate, readMigrations } from '../migrate.ts';
import type { Migration } from '../migrate.ts';
import { BackupError, FORMAT, FORMAT_VERSION } from './format.ts';
import type { BackupEnd, BackupHeader, BackupSummary, TableEnd, TableStart } from './format.ts';
import { BackupReader } from './reader.ts';
import { dropEverything, readTables, tablesWithRows } from './tables.ts';
import type { TableShape } from './tables.ts';

export interface RestoreOptions {
  /** Replace what the database holds. Without it only a database without rows is taken. */
  force?: boolean;
  /** For tests; default: the migrations of this version. */
  migrations?: Migration[];
}

/**
 * Puts a backup into the database, in one transaction: all of it, or nothing changes. The schema is made by the
 * migrations up to the version of the backup, filled, and then brought up to this version, so that a newer Berth
 * takes an older one's backup. Throws BackupError.
 */
export async function restore(
  db: Database,
  input: Readable,
  options: RestoreOptions = {},
): Promise<BackupSummary> {
  const migrations = options.migrations ?? readMigrations();
  const reader = new BackupReader(input);
  try {
    return await db.tx(async () => {
      const known = await readHeader(reader, migrations);
      await clear(db.sql, options.force ?? false);
      await migrate(db, migrations.slice(0, known));
      const end = await readTablesInto(db.sql, reader);
      await migrate(db, migrations);
      return { schemaVersion: migrations.length, ...end };
    });
  } finally {
    input.destroy();
  }
}

/** Returns how many of our migrations the backup has seen. */
async function readHeader(reader: BackupReader, migrations: Migration[]): Promise<number> {
  const header = (await reader.json()).line as unknown as BackupHeader;
  if (header.format !== FORMAT || !Array.isArray(header.migrations)) {
    throw new BackupError('This is no backup of a Berth database.');
  }
  if (header.formatVersion !== FORMAT_VERSION) {
    throw new BackupError(
      `The backup has format version ${header.formatVersion}; this Berth reads version ${FORMAT_VERSION}.`,
    );
  }
  if (header.migrations.length > migrations.length) {
    throw new BackupError(
      `The backup has schema version ${header.migrations.length}, this Berth knows versions up to ${migrations.length}: restore it with the newer version.`,
    );
  }
  for (const [index, { name, checksum }] of header.migrations.entries()) {
    if (migrations[index]?.checksum !== checksum) {
      throw new BackupError(
        `The backup comes from another build of Berth: its migration ${index + 1} (${name}) is a different one.`,
      );
    }
  }
  return header.migrations.length;
}

async function clear(sql: Sql, force: boolean): Promise<void> {
  const filled = await tablesWithRows(sql);
  if (filled.length > 0 && !force) {
    throw new BackupError(
      `The database is not empty (${filled.slice(0, 5).join(', ')}): restore into a new one, or pass --force to replace what it holds.`,
    );
  }
  await dropEverything(sql);
}

async function readTablesInto(sql: Sql, reader: BackupReader): Promise<{ tables: number; rows: number }> {
  const wanted = new Map((await readTables(sql)).map((table) => [table.name, table]));
  const done = { tables: 0, rows: 0 };
  for (;;) {
    const { line, sha256Before } = await reader.json();
    if (line.end === true) {
      checkEnd(line as unknown as BackupEnd, done, sha256Before, wanted);
      await reader.end();
      return done;
    }
    const start = line as unknown as TableStart;
    const table = wanted.get(start.table);
    if (!table || !sameColumns(table, start.columns)) {
      throw new BackupError(
        `The backup does not fit its own schema version: table ${String(start.table)} differs.`,
      );
    }
    wanted.delete(table.name);
    done.rows += await readTable(sql, reader, { ...table, columns: start.columns });
    done.tables += 1;
  }
}

function sameColumns(table: TableShape, columns: unknown): boolean {
  return Array.isArray(columns) && [...columns].sort().join() === [...table.columns].sort().join();
}

function checkEnd(
  end: BackupEnd,
  done: { tables: number; rows: number },
  sha256: string,
  missing: Map<string, unknown>,
): void {
  if (end.sha256 !== sha256 || end.rows !== done.rows || end.tables !== done.tables) {
    throw new BackupError('The backup is damaged: its checksum or its counts do not fit.');
  }
  if (missing.size > 0) throw new BackupError(`The backup lacks tables: ${[...missing.keys()].join(', ')}.`);
}

async function readTable(sql: Sql, reader: BackupReader, table: TableShape): Promise<number> {
  const counter = { rows: 0 };
  await copyIn(sql, table, reader.rows(counter));
  const end = (await reader.json()).line as unknown as TableEnd;
  if (end.rows !== counter.rows)
    throw new BackupError(`The backup is damaged: table ${table.name} lacks rows.`);
  for (const column of table.identityColumns) {
    const last = end.identities?.[column];
    if (!/^\d{1,19}$/.test(last ?? '')) continue;
    await sql`select setval(pg_get_serial_sequence(quote_ident(${table.name}), ${column}), ${last!}::bigint)`;
  }
  return counter.rows;
}

async function copyIn(sql: Sql, table: TableShape, rows: AsyncGenerator<Buffer>): Promise<void> {
  // What happened before the backup was told of then.
  await sql`select set_config('berth.outbox', 'off', true)`;
  const target = await sql`copy ${sql(table.name)} (${sql(table.columns)}) from stdin`.writable();
  let failure: Error | undefined;
  target.on('error', (error: Error) => (failure ??= error));
  try {
    for await (const lines of rows) {
      if (failure) throw failure;
      if (!target.write(lines)) await once(target, 'drain');
    }
    await finishCopy(sql, target);
  } catch (error) {
    if (!target.destroyed) target.destroy(error as Error);
    if (error instanceof BackupError) throw error;
    throw new BackupError(
      `The backup is damaged: table ${table.name} cannot be read back (${(failure ?? (error as Error)).message}).`,
    );
  }
}

/**
 * Ends the COPY and learns whether the server took it. postgres.js tells of success only: after a late error its
 * stream would wait for ever. A statement that follows in the same transaction fails when the COPY has failed.
 */
async function finishCopy(sql: Sql, target: Writable): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    target.write(Buffer.alloc(0), (error) => (error ? reject(error) : resolve()));
  });
  target.end();
  // The end of the stream must be on the wire before the statement.
  await nextTurn();
  await sql`select 1`.simple();
}
