import assert from 'node:assert/strict';
import { test } from 'node:test';
import { migrate, readMigrations, SchemaError, schemaVersion } from '../../src/store/migrate.ts';
import { openDatabase } from '../../src/store/database.ts';
import { engines, testDatabase } from '../support/database.ts';

for (const { name, engine, options } of engines()) {
  test(`a second migration of the same database changes nothing (${name})`, options, async () => {
    const { db, close } = await testDatabase({ engine, migrated: false });
    const all = readMigrations().map((migration) => migration.version);
    assert.deepEqual(await migrate(db), all);
    assert.deepEqual(await migrate(db), []);
    assert.equal(await schemaVersion(db.sql), all.length);
    await close();
  });

  test(`replicas that migrate at the same moment apply each migration once (${name})`, options, async () => {
    const { db, connection, close } = await testDatabase({ engine, migrated: false });
    const replicas = [db, ...[1, 2, 3, 4].map(() => openDatabase({ connection, pool: 2 }))];
    const applied = await Promise.all(replicas.map((replica) => migrate(replica)));
    assert.deepEqual(
      applied.flat().sort((a, b) => a - b),
      readMigrations().map((migration) => migration.version),
    );
    await Promise.all(replicas.slice(1).map((replica) => replica.close()));
    await close();
  });

  test(`a database of a newer version is refused and left as it is (${name})`, options, async () => {
    const { db, close } = await testDatabase({ engine });
    await db.sql`insert into schema_migrations (version, name, checksum) values (9000, 'of_the_future', 'x')`;
    await assert.rejects(migrate(db), (error: Error) => {
      assert.ok(error instanceof SchemaError);
      assert.match(error.message, /schema version 9000 \(of_the_future\).*a newer Berth has used it/);
      return true;
    });
    await close();
  });

  test(`a migration that was altered after it was applied is refused (${name})`, options, async () => {
    const { db, close } = await testDatabase({ engine });
    const altered = readMigrations().map((migration) => ({ ...migration, checksum: '0'.repeat(64) }));
    await assert.rejects(migrate(db, altered), /Migration 1 \(init\).*checksums differ/);
    await close();
  });

  test(
    `a migration that fails leaves nothing of itself and keeps those before it (${name})`,
    options,
    async () => {
      const { db, close } = await testDatabase({ engine });
      const migrations = readMigrations();
      const broken = {
        version: migrations.length + 1,
        name: 'broken',
        checksum: 'x',
        sql: 'create table half (a int); select 1/0;',
      };
      await assert.rejects(migrate(db, [...migrations, broken]), /division by zero/);
      const [row] = await db.sql<{ there: boolean }[]>`select to_regclass('half') is not null as there`;
      assert.equal(row?.there, false);
      assert.equal(await schemaVersion(db.sql), migrations.length);
      await close();
    },
  );
}
