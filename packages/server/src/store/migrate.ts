import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Database, Sql } from './database.ts';

/** The database cannot be used by this version of the service. The message says why and what to do. */
export class SchemaError extends Error {}

export interface Migration {
  /** Counts from 1 without gaps. */
  version: number;
  name: string;
  sql: string;
  /** SHA-256 of the file, in hex. */
  checksum: string;
}

/** Any number, as long as every Berth takes the same one. */
const ADVISORY_LOCK = 4_170_712_001;
const OLDEST_SERVER = 150_000;
const DIRECTORY = fileURLToPath(new URL('./migrations', import.meta.url));

/** The migrations of this version, in order; each file is `<number>_<name>.sql`. */
export function readMigrations(directory: string = DIRECTORY): Migration[] {
  const files = readdirSync(directory).filter((file) => file.endsWith('.sql'));
  return files.sort().map((file, index) => {
    const match = /^(\d{4})_([a-z0-9_]+)\.sql$/.exec(file);
    if (!match?.[2] || Number(match[1]) !== index + 1) {
      throw new SchemaError(
        `Migration file ${file} must be named ${String(index + 1).padStart(4, '0')}_<name>.sql.`,
      );
    }
    const sql = readFileSync(join(directory, file), 'utf8');
    const checksum = createHash('sha256').update(sql).digest('hex');
    return { version: index + 1, name: match[2], sql, checksum };
  });
}

/**
 * Brings the schema up to this version and returns the versions it applied. Each migration is one transaction that
 * holds an advisory lock and looks again at what is there, so that replicas that start together do not collide, and
 * none is left half done. Throws SchemaError when the database is newer, altered, too old or in another encoding.
 */
export async function migrate(db: Database, migrations: Migration[] = readMigrations()): Promise<number[]> {
  await checkServer(db.sql);
  const applied: number[] = [];
  for (;;) {
    const version = await db.tx(() => applyNext(db.sql, migrations));
    if (version === null) return applied;
    applied.push(version);
  }
}

/** Whether this version of the service could bring a database up to date, without changing it. Throws SchemaError. */
export async function checkUsable(sql: Sql, migrations: Migration[] = readMigrations()): Promise<void> {
  await checkServer(sql);
  if ((await schemaVersion(sql)) === 0) return;
  for (const row of await readApplied(sql)) checkApplied(row, migrations);
}

/** The version of the schema in a database; 0 = none. */
export async function schemaVersion(sql: Sql): Promise<number> {
  const [table] = await sql<
    { found: boolean }[]
  >`select to_regclass('schema_migrations') is not null as found`;
  if (!table?.found) return 0;
  const [row] = await sql<
    { version: number }[]
  >`select coalesce(max(version), 0) as version from schema_migrations`;
  return row?.version ?? 0;
}

/** For work that knows the tables of this version alone, and must not bring them up to it. Throws SchemaError. */
export async function checkCurrent(sql: Sql, migrations: Migration[] = readMigrations()): Promise<void> {
  const done = await readApplied(sql);
  for (const row of done) checkApplied(row, migrations);
  if (done.length < migrations.length)
    throw new SchemaError(
      `The database has schema version ${done.length}, this Berth has version ${migrations.length}: start the service ` +
        'once, which brings it up to date.',
    );
}

interface Applied {
  version: number;
  name: string;
  checksum: string;
}

function readApplied(sql: Sql): Promise<Applied[]> {
  return sql<Applied[]>`select version, name, checksum from schema_migrations order by version`;
}

async function applyNext(sql: Sql, migrations: Migration[]): Promise<number | null> {
  await sql`select pg_advisory_xact_lock(${ADVISORY_LOCK})`;
  if ((await schemaVersion(sql)) === 0) await createLedger(sql);
  const done = await readApplied(sql);
  for (const row of done) checkApplied(row, migrations);

  const next = migrations[done.length];
  if (!next) return null;
  await sql.unsafe(next.sql);
  await sql`insert into schema_migrations (version, name, checksum)
    values (${next.version}, ${next.name}, ${next.checksum})`;
  return next.version;
}

async function createLedger(sql: Sql): Promise<void> {
  await sql`create table if not exists schema_migrations (
    version integer primary key,
    name text not null,
    checksum text not null,
    applied_at timestamptz not null default now()
  )`;
}

function checkApplied(row: Applied, migrations: Migration[]): void {
  const known = migrations[row.version - 1];
  if (!known) {
    throw new SchemaError(
      `The database has schema version ${row.version} (${row.name}), this Berth knows versions up to ` +
        `${migrations.length}: a newer Berth has used it. Start the newer version, or restore a backup made before the upgrade.`,
    );
  }
  if (known.checksum !== row.checksum) {
    throw new SchemaError(
      `Migration ${row.version} (${row.name}) of the database is not the one in this Berth (checksums differ): ` +
        'the database was made by another build. Start that build, or use a fresh database.',
    );
  }
}

async function checkServer(sql: Sql): Promise<void> {
  const [server] = await sql<{ number: number; text: string; encoding: string }[]>`
    select current_setting('server_version_num')::int as number, current_setting('server_version') as text,
      current_setting('server_encoding') as encoding`;
  if (!server) throw new SchemaError('The database did not tell its version.');
  if (server.number < OLDEST_SERVER) {
    throw new SchemaError(`PostgreSQL 15 or newer is needed; the database server is ${server.text}.`);
  }
  if (server.encoding !== 'UTF8') {
    throw new SchemaError(
      `The database must have the encoding UTF8; it has ${server.encoding}. Create one with "encoding 'UTF8' template template0".`,
    );
  }
}
