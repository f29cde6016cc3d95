import assert from 'node:assert/strict';
import { PassThrough, Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { test } from 'node:test';
import { gunzipSync, gzipSync } from 'node:zlib';
import { backup } from '../../src/store/backup/backup.ts';
import { BackupError } from '../../src/store/backup/format.ts';
import { restore } from '../../src/store/backup/restore.ts';
import type { Database } from '../../src/store/database.ts';
import { readMigrations } from '../../src/store/migrate.ts';
import type { Migration } from '../../src/store/migrate.ts';
import { engines, testDatabase } from '../support/database.ts';

/** Beside the schema of today a table with every column type and every awkward value. */
const extra: Migration = {
  version: readMigrations().length + 1,
  name: 'for_this_test',
  checksum: 'f'.repeat(64),
  sql: `create table awkward (
      id uuid primary key, number bigint, small integer, slot integer generated always as identity, yes boolean,
      body text, raw bytea, list text[], kept json, parsed jsonb, at timestamptz, doubled bigint generated always as (number * 2) stored
    );
    create table a_child (awkward_id uuid references awkward (id), "order" text);`,
};
const migrations = [...readMigrations(), extra];

async function fill(db: Database): Promise<void> {
  await db.sql.unsafe(extra.sql);
  await db.sql`insert into schema_migrations (version, name, checksum) values (${extra.version}, ${extra.name}, ${extra.checksum})`;
  await db.sql`insert into orgs (id, name) values ('019aaaaa-0000-7000-8000-000000000001', 'Ünïcode "org" ✓')`;
  await db.sql.unsafe(String.raw`
    insert into awkward (id, number, small, yes, body, raw, list, kept, parsed, at)
      select ('019aaaaa-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, 9223372036854775807 / 2 - n, -n, n % 2 = 0,
        E'tab\t back\\slash \\N \\. line\nfeed\r ''quote'' ' || repeat('x', n % 300), decode('00ff0a5c2e0a', 'hex'),
        array['a,b', '', null, E'\\.', 'NULL', '{"x"}'], '{"nul":  "\u0000", "b":1, "a":1}', '{"deep": {"n": 12345678901234567890.5}}',
        '2026-11-28 01:02:03.456789+00'::timestamptz + n * interval '1 microsecond'
      from generate_series(1, 3000) n;
    insert into awkward (id) values ('019aaaaa-0000-7000-8000-ffffffffffff');
    insert into a_child values ('019aaaaa-0000-7000-8000-ffffffffffff', E'\\.'), (null, '\\N'), (null, null), (null, '');
    delete from awkward where slot = 3000;`);
}

async function contents(db: Database): Promise<Record<string, string>> {
  const tables = await db.sql<{ name: string }[]>`
    select relname as name from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r' and relpersistence = 'p'`;
  const all: Record<string, string> = {};
  for (const { name } of tables) {
    if (name === 'schema_migrations') continue;
    const [row] = await db.sql<
      { text: string }[]
    >`select string_agg(t::text, '|' order by t::text) as text from ${db.sql(name)} t`;
    all[name] = row?.text ?? '';
  }
  return all;
}

async function takeBackup(db: Database): Promise<Buffer> {
  const output = new PassThrough();
  const [bytes] = await Promise.all([buffer(output), backup(db, output)]);
  return bytes;
}

const from = (bytes: Buffer): Readable => Readable.from([bytes]);

for (const { name, engine, options } of engines()) {
  test(
    `a backup restored into an empty database gives the same rows of every type (${name})`,
    options,
    async () => {
      const source = await testDatabase({ engine });
      const target = await testDatabase({ engine, migrated: false });
      await fill(source.db);
      const bytes = await takeBackup(source.db);
      const summary = await restore(target.db, from(bytes), { migrations });
      assert.equal(summary.rows, 3000 + 4 + 1);
      assert.deepEqual(await contents(target.db), await contents(source.db));

      // The next of an identity column follows the last that was given out, even when that row is gone.
      const [row] = await target.db.sql<{ slot: number }[]>`
      insert into awkward (id) values ('019aaaaa-0000-7000-8000-eeeeeeeeeeee') returning slot`;
      assert.equal(row?.slot, 3002);
      await source.close();
      await target.close();
    },
  );
}

test(
  'engines of different versions read each other’s backup',
  { skip: engines().find((e) => e.options.skip)?.options.skip ?? false },
  async () => {
    const [one, other] = engines();
    const newer = await testDatabase({ engine: one!.engine });
    const older = await testDatabase({ engine: other!.engine });
    await fill(newer.db);
    await restore(older.db, from(await takeBackup(newer.db)), { migrations });
    const before = await contents(newer.db);
    assert.deepEqual(await contents(older.db), before);
    await restore(newer.db, from(await takeBackup(older.db)), { migrations, force: true });
    assert.deepEqual(await contents(newer.db), before);
    await newer.close();
    await older.close();
  },
);

test('a backup is one moment: rows that come while it is written are not half in it', async () => {
  const { db, close } = await testDatabase();
  await db.sql`insert into settings (name, value) select n::text, '0' from generate_series(1, 20000) n`;
  const output = new PassThrough({ highWaterMark: 1 });
  const writing = backup(db, output);
  const first = await new Promise<Buffer>((resolve) => output.once('data', resolve));
  output.pause();
  await db.sql`update settings set value = '1'`;
  await db.sql`insert into settings (name, value) values ('late', '1')`;
  const rest = buffer(output);
  await writing;
  const text = gunzipSync(Buffer.concat([first, await rest])).toString();
  assert.equal(text.match(/^\d+\t0$/gm)?.length, 20_000);
  assert.ok(!/^(late|\d+)\t1$/m.test(text));
  await close();
});

test('a damaged, cut or foreign file is refused and the database stays as it was', async () => {
  const source = await testDatabase();
  const target = await testDatabase({ migrated: false });
  await fill(source.db);
  const good = await takeBackup(source.db);
  const text = gunzipSync(good).toString('latin1');
  const pack = (changed: string): Buffer => gzipSync(Buffer.from(changed, 'latin1'));
  const flipped = Buffer.from(good);
  flipped[good.length >> 1]! ^= 0xff;

  const bad: Record<string, [Buffer, RegExp]> = {
    'cut in the middle': [good.subarray(0, good.length >> 1), /damaged or cut off/],
    'cut at the end': [good.subarray(0, -12), /damaged or cut off/],
    'without the last line': [
      pack(text.slice(0, text.indexOf('{"end":true'))),
      /cut off: its end is missing/,
    ],
    'with a flipped byte': [flipped, /damaged/],
    'with a changed value': [pack(text.replace('"org"', '"gro"')), /checksum or its counts/],
    'without a row': [
      pack(text.replace(/^019aaaaa-0000-7000-8000-000000000007.*\n/m, '')),
      /awkward lacks rows/,
    ],
    'with a row that breaks a key': [
      pack(text.replace(/^(019aaaaa-0000-7000-8000-000000000007.*\n)/m, '$1$1')),
      /table awkward cannot be read back/,
    ],
    'with a last row that is no row': [
      pack(text.replace(/^\\\.\n\{"rows":3000/m, 'x\n\\.\n{"rows":3000')),
      /table awkward cannot be read back/,
    ],
    'with another table': [
      pack(text.replace('{"table":"orgs"', '{"table":"pg_authid"')),
      /table pg_authid differs/,
    ],
    'with something after it': [pack(`${text}{}\n`), /something follows its end/],
    'of another kind': [gzipSync('{"hello":1}\n'), /no backup of a Berth database/],
    'not compressed': [Buffer.from('hello'), /damaged or cut off/],
    empty: [Buffer.alloc(0), /damaged or cut off|cut off/],
  };
  for (const [what, [bytes, message]] of Object.entries(bad)) {
    await assert.rejects(restore(target.db, from(bytes), { migrations }), (error: Error) => {
      assert.ok(error instanceof BackupError, `${what}: ${error.stack}`);
      assert.match(error.message, message, what);
      return true;
    });
    const [row] = await target.db.sql<{ there: boolean }[]>`select to_regclass('orgs') is not null as there`;
    assert.equal(row?.there, false, what);
  }
  await restore(target.db, from(good), { migrations });
  await source.close();
  await target.close();
});

test('a backup of a newer schema or of another build is refused, one of an older schema is brought up to date', async () => {
  const source = await testDatabase();
  const target = await testDatabase({ migrated: false });
  await source.db.sql`insert into settings (name, value) values ('kept', '"x"')`;
  const bytes = await takeBackup(source.db);
  const older = readMigrations().slice(0, -1);
  await assert.rejects(
    restore(target.db, from(bytes), { migrations: older }),
    /knows versions up to .* with the newer version/,
  );
  const others = readMigrations().map((migration) => ({ ...migration, checksum: 'e'.repeat(64) }));
  await assert.rejects(
    restore(target.db, from(bytes), { migrations: others }),
    /another build of Berth: its migration 1 \(init\)/,
  );

  const summary = await restore(target.db, from(bytes), { migrations });
  assert.equal(summary.schemaVersion, extra.version);
  const rows = await target.db.sql`select name from settings union all select "order" from a_child`;
  assert.deepEqual(
    rows.map((row) => row.name),
    ['kept'],
  );
  await source.close();
  await target.close();
});

test('a database with rows is only replaced when that is asked for', async () => {
  const source = await testDatabase();
  const target = await testDatabase();
  await source.db.sql`insert into settings (name, value) values ('of the backup', '1')`;
  await target.db.sql`insert into settings (name, value) values ('of before', '1')`;
  const bytes = await takeBackup(source.db);
  await assert.rejects(restore(target.db, from(bytes)), /not empty \(settings\).*--force/);
  await restore(target.db, from(bytes), { force: true });
  const rows = await target.db.sql`select name from settings`;
  assert.deepEqual(
    rows.map((row) => row.name),
    ['of the backup'],
  );
  await source.close();
  await target.close();
});
