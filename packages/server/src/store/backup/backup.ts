import { createHash } from 'node:crypto';
import { once } from 'node:events';
import type { Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import type { Database, Sql } from '../database.ts';
import { schemaVersion } from '../migrate.ts';
import { BackupError, FORMAT, FORMAT_VERSION } from './format.ts';
import type { BackupEnd, BackupHeader, BackupSummary, TableEnd, TableStart } from './format.ts';
import { readTables } from './tables.ts';
import type { TableShape } from './tables.ts';

/**
 * Writes everything that the database holds, as it was at one moment, while others go on using it. The format is
 * described in `format.ts`. `output` is ended; it holds sealed secrets and hashes of keys, but no key-encryption key.
 */
export async function backup(db: Database, output: Writable): Promise<BackupSummary> {
  if ((await schemaVersion(db.sql)) === 0) throw new BackupError('The database holds nothing of Berth.');
  const gzip = createGzip();
  const done = pipeline(gzip, output);
  // Whoever fails first ends the other, and the failure of the output is the one that tells something.
  const writing = db
    .tx(() => writeAll(db.sql, gzip))
    .catch((error: unknown) => {
      gzip.destroy(error as Error);
      throw error;
    });
  const [summary] = await Promise.all([writing, done]);
  return summary;
}

async function writeAll(sql: Sql, out: Writable): Promise<BackupSummary> {
  await sql`set transaction isolation level repeatable read, read only`;
  await sql`set local datestyle = 'ISO, YMD'`;
  await sql`set local intervalstyle = 'postgres'`;
  await sql`set local bytea_output = 'hex'`;
  await sql`set local timezone = 'UTC'`;

  const hash = createHash('sha256');
  const write = async (bytes: Buffer): Promise<void> => {
    hash.update(bytes);
    if (!out.write(bytes)) await once(out, 'drain');
  };
  const writeLine = (line: BackupHeader | TableStart | TableEnd): Promise<void> =>
    write(Buffer.from(`${JSON.stringify(line)}\n`));

  const header = await readHeader(sql);
  await writeLine(header);
  const tables = await readTables(sql);
  let rows = 0;
  for (const table of tables) {
    await writeLine({ table: table.name, columns: table.columns });
    const written = await copyRows(sql, table, write);
    rows += written;
    await writeLine({ rows: written, identities: await readIdentities(sql, table) });
  }
  const end: BackupEnd = { end: true, tables: tables.length, rows, sha256: hash.digest('hex') };
  out.end(`${JSON.stringify(end)}\n`);
  return { schemaVersion: header.migrations.length, tables: tables.length, rows };
}

async function readHeader(sql: Sql): Promise<BackupHeader> {
  const migrations = await sql<{ version: number; name: string; checksum: string }[]>`
    select version, name, checksum from schema_migrations order by version`;
  const [server] = await sql<{ version: string; now: Date }[]>`
    select current_setting('server_version') as version, now() as now`;
  return {
    format: FORMAT,
    formatVersion: FORMAT_VERSION,
    createdAt: server!.now.toISOString(),
    serverVersion: server!.version,
    migrations: [...migrations],
  };
}

const LINE_FEED = 10;

async function copyRows(
  sql: Sql,
  table: TableShape,
  write: (bytes: Buffer) => Promise<void>,
): Promise<number> {
  const rows = await sql`copy ${sql(table.name)} (${sql(table.columns)}) to stdout`.readable();
  let count = 0;
  for await (const chunk of rows as AsyncIterable<Buffer>) {
    // In COPY's text format a line feed inside of a value is written as \n: each one here ends a row.
    for (const byte of chunk) if (byte === LINE_FEED) count += 1;
    await write(chunk);
  }
  // postgres.js leaves the connection paused when the last rows came faster than they were read; this lets it go on.
  rows._read(0);
  await write(Buffer.from('\\.\n'));
  return count;
}

/** What a deleted row once had is not given out again after a restore. */
async function readIdentities(sql: Sql, table: TableShape): Promise<Record<string, string>> {
  const identities: Record<string, string> = {};
  for (const column of table.identityColumns) {
    const [row] = await sql<{ last: string | null }[]>`
      select pg_sequence_last_value(pg_get_serial_sequence(quote_ident(${table.name}), ${column})::regclass)::text as last`;
    if (row?.last) identities[column] = row.last;
  }
  return identities;
}
