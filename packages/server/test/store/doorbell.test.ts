import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { openDatabase } from '../../src/store/database.ts';
import { openDoorbell } from '../../src/store/doorbell.ts';
import { testDatabase } from '../support/database.ts';
import { FakePostgres } from '../support/fake-postgres.ts';
import { silentLog } from '../support/log.ts';
import { until } from '../support/until.ts';

async function bells() {
  const { db, connection, close } = await testDatabase();
  const other = openDatabase({ connection, pool: 2 });
  const [here, there] = [await openDoorbell(db, silentLog), await openDoorbell(other, silentLog)];
  const heard = { here: [] as string[], there: [] as string[] };
  here.on('lanes', (ids) => void heard.here.push(...ids));
  there.on('lanes', (ids) => void heard.there.push(...ids));
  return {
    db,
    here,
    there,
    other,
    heard,
    async close() {
      await here.close();
      await there.close();
      await other.close();
      await close();
    },
  };
}

test('rings of one moment reach the other replica once each, in few messages, and never the ringer', async (t) => {
  const { here, heard, close } = await bells();
  t.after(close);
  here.setPeers(1);
  const ids = Array.from({ length: 1_000 }, newId);
  for (const id of [...ids, ...ids]) here.ring('lanes', id);
  await until('all were heard', () => heard.there.length >= ids.length);
  assert.deepEqual(heard.there, ids);
  assert.deepEqual(heard.here, []);
});

test('without another replica nothing is rung but keys, and whoever is heard is known to live', async (t) => {
  const { here, there, heard, close } = await bells();
  t.after(close);
  const keys: string[] = [];
  there.on('keys', (hashes) => void keys.push(...hashes));
  here.ring('lanes', 'a');
  here.ring('keys', 'b');
  await until('the key was heard', () => keys.length === 1);
  assert.deepEqual(heard.there, []);
  there.ring('lanes', 'c');
  await until('the answer was heard', () => heard.here.length === 1);
});

test('after a lost connection it listens again and says that rings may have been missed', async (t) => {
  const { db, here, there, other, heard, close } = await bells();
  t.after(close);
  here.setPeers(1);
  let reconnects = 0;
  there.onReconnect(() => void (reconnects += 1));
  await db.sql`select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and query ilike 'listen %'`;
  await until('it listens again', () => reconnects === 1);
  here.ring('lanes', 'a');
  await until('it was heard', () => heard.there.length === 1);

  await there.close();
  await other.close();
  await until('only the other one listens', async () => {
    const rows = await db.sql`select 1 from pg_stat_activity
      where datname = current_database() and query ilike 'listen %'`;
    return rows.length === 1;
  });
});

test('closing does not wait for a database that gives no answer', { timeout: 8_000 }, async () => {
  const server = new FakePostgres();
  const db = openDatabase({ connection: server.connection, pool: 1 });
  const bell = await openDoorbell(db, silentLog);
  server.onAsked = () => {};
  bell.ring('keys', newId());
  await bell.close();
  for (const backend of server.backends) backend.lose();
  await db.close();
});
