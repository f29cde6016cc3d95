import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DomainError } from '../../src/domain/errors.ts';
import { openDatabase } from '../../src/store/database.ts';
import { asUnavailable } from '../../src/store/errors.ts';
import { testDatabase } from '../support/database.ts';
import { presentable } from '../../src/edges/http/errors.ts';
import { until } from '../support/until.ts';

test('what a transaction started and left behind never writes into a later transaction of the same connection', async () => {
  const { db, close } = await testDatabase({ pool: 2 });
  let goOn = (): void => {};
  const gate = new Promise<void>((resolve) => (goOn = resolve));
  let straggler: Promise<unknown> = Promise.resolve();
  await db.tx(async () => {
    await db.sql`insert into settings (name, value) values ('inside', '1')`;
    straggler = gate.then(async () => {
      assert.equal(db.inTransaction, false);
      await db.sql`insert into settings (name, value) values ('straggler', '1')`;
    });
  });
  await assert.rejects(
    db.tx(async () => {
      await db.sql`insert into settings (name, value) values ('rolled back', '1')`;
      goOn();
      await straggler;
      throw new Error('no');
    }),
    /^Error: no$/,
  );
  const rows = await db.sql<{ name: string }[]>`select name from settings order by name`;
  assert.deepEqual(
    rows.map((row) => row.name),
    ['inside', 'straggler'],
  );
  await close();
});

test('effects run after the commit and only then; one that throws neither fails the transaction nor stops the others', async () => {
  const { connection, close } = await testDatabase();
  const errors: unknown[] = [];
  const db = openDatabase({ connection, pool: 2, onEffectError: (error) => errors.push(error) });
  const ran: string[] = [];
  const result = await db.tx(async () => {
    db.afterCommit(() => {
      throw new Error('effect');
    });
    db.afterCommit(() => ran.push('second'));
    await db.sql`insert into settings (name, value) values ('kept', '1')`;
    assert.deepEqual(ran, []);
    return 7;
  });
  assert.equal(result, 7);
  assert.deepEqual(ran, ['second']);
  assert.equal(errors.length, 1);
  await assert.rejects(
    db.tx(async () => {
      db.afterCommit(() => ran.push('never'));
      await db.sql`select 1/0`;
    }),
    { code: '22012' },
  );
  assert.deepEqual(ran, ['second']);
  await db.close();
  await close();
});

test('a bigint beyond the safe integers survives the way there and back', async () => {
  const { db, close } = await testDatabase();
  const [row] = await db.sql<{ n: bigint }[]>`select ${9_007_199_254_740_993n}::bigint as n`;
  assert.equal(row?.n, 9_007_199_254_740_993n);
  await close();
});

test('what is asked one after another is worked on by one process of the server, however many have been at work together', async () => {
  const { db, close } = await testDatabase({ pool: 4 });
  const ask = async () => (await db.sql<[{ pid: number }]>`select pg_backend_pid() as pid`)[0].pid;
  const together = async (count: number) => new Set(await Promise.all(Array.from({ length: count }, ask)));
  assert.equal((await together(4)).size, 4);
  const one = await ask();
  for (const count of [2, 4, 3]) {
    assert.equal((await together(count)).size, count);
    for (let asked = 0; asked < 4; asked += 1) assert.equal(await ask(), one);
  }
  await close();
});

test('a database that cannot be reached is unavailable, and closing does not hang on it', async () => {
  const db = openDatabase({ connection: { host: '/nonexistent', user: 'x', database: 'x' }, pool: 2 });
  await assert.rejects(
    db.tx(async () => 1),
    (error: Error) => error instanceof DomainError && error.code === 'unavailable',
  );
  const failed = await Promise.resolve(db.sql`select 1`).catch((error: unknown) => error);
  assert.equal(asUnavailable(failed)?.code, 'unavailable');
  await db.close();
});

test('a connection that the server ends fails its statement as unavailable, and later ones connect again', async () => {
  const { db, connection, close } = await testDatabase({ pool: 1 });
  const other = openDatabase({ connection, pool: 1 });
  const [me] = await db.sql<{ pid: number }[]>`select pg_backend_pid() as pid`;
  const waiting = Promise.resolve(db.sql`select pg_sleep(60)`).catch((error: unknown) => error);
  await other.sql`select pg_terminate_backend(${me!.pid})`;
  assert.equal(asUnavailable(await waiting)?.code, 'unavailable');
  // A statement that is sent before the close is noticed fails as well, and in the same way.
  await until('it answers', () =>
    db.sql`select 1`.then(
      () => true,
      (error: unknown) => void assert.ok(asUnavailable(error)),
    ),
  );
  assert.equal(asUnavailable(new Error('anything else')), null);
  await other.close();
  await close();
});

test('of two transactions that wait for each other one is withdrawn, which is told as a request to try again', async (t) => {
  const { db, close } = await testDatabase();
  t.after(close);
  await db.sql`create table pair (id int primary key, n int)`;
  await db.sql`insert into pair values (1, 0), (2, 0)`;
  const both = Promise.withResolvers<void>();
  let begun = 0;
  const change = (first: number, second: number) =>
    db.tx(async () => {
      await db.sql`update pair set n = n + 1 where id = ${first}`;
      begun += 1;
      if (begun === 2) both.resolve();
      await both.promise;
      await db.sql`update pair set n = n + 1 where id = ${second}`;
    });
  const ends = await Promise.allSettled([change(1, 2), change(2, 1)]);
  const failed = ends.filter((end) => end.status === 'rejected');
  assert.equal(failed.length, 1);
  const shown = presentable(failed[0]!.reason, 'request');
  assert.equal(shown.code, 'unavailable');
  assert.equal(shown.retryAfterSeconds, 1);
  const rows = await db.sql<{ n: number }[]>`select n from pair`;
  assert.deepEqual([...rows], [{ n: 1 }, { n: 1 }]);
});
