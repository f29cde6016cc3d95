import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { openDatabase } from '../../src/store/database.ts';
import type { Database } from '../../src/store/database.ts';
import { checkDriver, DriverError } from '../../src/store/driver.ts';
import { testDatabase } from '../support/database.ts';
import { FakePostgres } from '../support/fake-postgres.ts';
import { until } from '../support/until.ts';

const LOST = { code: 'CONNECTION_CLOSED' };
const AWAY = { code: 'unavailable' };
/** Less than a connection is waited for. */
const LOOKS = 40;
const LOOK_MS = 100;

/** Fails when it takes as long as a connection is waited for; while the process itself stands still no time is counted. */
function quick(name: string, work: () => Promise<void>): void {
  void test(name, { timeout: 30_000 }, async () => {
    const over = new AbortController();
    const tooLong = async (): Promise<void> => {
      for (let looks = 0; looks < LOOKS; looks += 1) await delay(LOOK_MS, null, { signal: over.signal });
      throw new Error('It takes as long as a connection is waited for.');
    };
    try {
      await Promise.race([work(), tooLong()]);
    } finally {
      over.abort();
    }
  });
}

function open(pool = 1, answerSeconds?: number): { server: FakePostgres; db: Database } {
  const server = new FakePostgres();
  const db = openDatabase({
    connection: server.connection,
    pool,
    ...(answerSeconds ? { answerSeconds } : {}),
  });
  return { server, db };
}

/** Sends a statement as far as the driver's buffer; what is buffered leaves in the next round of the event loop. */
function ask(db: Database, text: string): Promise<unknown> {
  const asked = db.sql.unsafe(text).execute();
  asked.catch(() => {});
  return asked;
}

async function microtasks(): Promise<void> {
  for (let i = 0; i < 20; i++) await Promise.resolve();
}

quick('a connection lost with a statement in its buffer is replaced by one that serves', async () => {
  const { server, db } = open();
  await ask(db, 'one');
  const buffered = ask(db, 'two');
  await microtasks();
  server.last.lose();
  await assert.rejects(buffered, LOST);
  await ask(db, 'three');
  assert.equal(server.last.startedWell, true);
  assert.deepEqual(
    server.backends.map((backend) => backend.asked.map(({ text }) => text)),
    [['one'], ['three']],
  );
  await db.close();
});

quick(
  'a statement asked between the error of a socket and its close fails, and is not taken for answered',
  async () => {
    const { server, db } = open();
    await ask(db, 'one');
    server.onAsked = () => {};
    const first = ask(db, 'two');
    await until('the statement has arrived', () => server.last.asked.length === 2);
    server.last.emit('error', Object.assign(new Error('reset'), { code: 'ECONNRESET' }));
    await assert.rejects(first, { code: 'ECONNRESET' });
    const second = ask(db, 'three');
    await microtasks();
    server.last.emit('close', true);
    server.onAsked = (backend) => backend.answer();
    await Promise.all([assert.rejects(second, LOST), ask(db, 'four')]);
    await db.close();
  },
);

quick(
  'a server that hangs up before it is ready fails the statement, and those that wait behind it',
  async () => {
    const { server, db } = open();
    server.onStart = (backend) => backend.lose();
    const asked = [1, 2, 3, 4, 5].map((n) => ask(db, `statement ${n}`));
    const results = await Promise.allSettled(asked);
    assert.deepEqual(
      results.map((result) => result.status === 'rejected' && result.reason.code),
      Array<string>(5).fill('CONNECTION_CLOSED'),
    );
    assert.ok(server.backends.length <= 2, `${server.backends.length} connections were tried`);
    server.onStart = (backend) => backend.welcome();
    await ask(db, 'again');
    await db.close();
  },
);

quick('statements of a transaction that lost its connection fail, and never run on another', async () => {
  const { server, db } = open();
  let goOn = (): void => {};
  const gate = new Promise<void>((resolve) => (goOn = resolve));
  let late: Promise<unknown> = Promise.resolve();
  let isInside = false;
  const dead = db.tx(async () => {
    await db.sql.unsafe('inside');
    isInside = true;
    await gate;
    late = ask(db, 'late');
    await late;
  });
  dead.catch(() => {});
  await until('the transaction is open', () => isInside);
  server.last.lose();
  await assert.rejects(dead, AWAY);
  await db.tx(async () => {
    await db.sql.unsafe('other');
    goOn();
    await until('the late statement was asked', async () => (await microtasks(), true));
    await assert.rejects(late, LOST);
    await db.sql.unsafe('other again');
  });
  assert.deepEqual(
    server.last.asked.map(({ text, status }) => `${text} ${status}`),
    ['begin I', 'other T', 'other again T', 'commit T'],
  );
  await db.close();
});

quick('a transaction that goes on with no connection at all fails, and ends no process', async () => {
  const { server, db } = open();
  let failed: unknown;
  await assert.rejects(
    db.tx(async () => {
      await db.sql.unsafe('inside');
      server.last.lose();
      await db.sql.unsafe('late').catch((error) => (failed = error));
    }),
    AWAY,
  );
  assert.equal((failed as { code?: string }).code, 'CONNECTION_CLOSED');
  await new Promise((resolve) => setImmediate(resolve));
  await db.close();
});

quick('statements that wait in a transaction fail with its connection', async () => {
  const { server, db } = open();
  const dead = db.tx(async () => {
    await db.sql.unsafe('inside');
    server.onAsked = () => {};
    server.last.isFull = true;
    const all = [ask(db, `first ${'x'.repeat(2_000)}`), ask(db, 'second'), ask(db, 'third')];
    await until('the first has arrived', () => server.last.asked.length === 3);
    server.last.lose();
    const results = await Promise.allSettled(all);
    assert.deepEqual(
      results.map((result) => result.status),
      ['rejected', 'rejected', 'rejected'],
    );
    server.onAsked = (backend) => backend.answer();
  });
  await assert.rejects(dead, AWAY);
  await ask(db, 'after');
  await db.close();
});

quick('a statement made in a transaction and asked after its end does not run in the next one', async () => {
  const { server, db } = open();
  const kept = await db.tx(async () => {
    await db.sql.unsafe('inside');
    return [db.sql.unsafe('late')];
  });
  await db.tx(async () => {
    await db.sql.unsafe('other');
    await assert.rejects(Promise.resolve(kept[0]), { code: 'TRANSACTION_ENDED' });
  });
  assert.ok(!server.last.asked.some(({ text }) => text === 'late'));
  await db.close();
});

quick('the error that ended a connection is not told to the next one', async () => {
  const { server, db } = open();
  await ask(db, 'one');
  server.onAsked = () => {};
  const killed = ask(db, 'two');
  await until('the statement has arrived', () => server.last.asked.length === 2);
  server.last.sendFatal();
  server.last.lose();
  await assert.rejects(killed, LOST);
  server.onAsked = (backend) => backend.answer();
  await ask(db, 'three');
  await db.close();
});

quick(
  'a transaction that begins behind a full line of statements is still alone on its connection',
  async () => {
    const { server, db } = open();
    await ask(db, 'one');
    server.onAsked = () => {};
    const line = Array.from({ length: 99 }, (_, n) => ask(db, `statement ${n}`));
    const hundredth = ask(db, 'hundredth');
    const transaction = db.tx(async () => {
      const stranger = db.outside(() => ask(db, 'stranger'));
      await db.sql.unsafe('inside');
      return [stranger];
    });
    transaction.catch(() => {});
    await until('all have arrived', () => server.last.asked.length === 102);
    server.onAsked = (backend) => backend.answer();
    for (let n = 0; n < 101; n++) server.last.answer();
    await Promise.all([...line, hundredth]);
    const [stranger] = await transaction;
    await stranger;
    assert.deepEqual(
      server.last.asked.slice(-4).map(({ text, status }) => `${text} ${status}`),
      ['begin I', 'inside T', 'commit T', 'stranger I'],
    );
    await db.close();
  },
);

quick('closing fails the statements that wait for a connection, and opens none afterwards', async () => {
  const { server, db } = open();
  await ask(db, 'one');
  let isClosing = false;
  const transaction = db.tx(async () => {
    await db.sql.unsafe('inside');
    await until('the handle is closing', () => isClosing);
  });
  await until('the transaction is open', () => server.last.asked.length === 3);
  const waiting = ask(db, 'waiting');
  await microtasks();
  const closing = db.close();
  isClosing = true;
  await transaction;
  await closing;
  await assert.rejects(waiting, { code: 'CONNECTION_ENDED' });
  assert.equal(server.backends.length, 1);
});

quick('closing while the database is away ends at once', async () => {
  const { server, db } = open();
  await ask(db, 'one');
  server.onStart = () => {};
  server.last.lose();
  const asked = ask(db, 'two');
  await until('a connection is being made', () => server.backends.length === 2);
  const closing = db.close();
  server.last.lose();
  await assert.rejects(asked, LOST);
  await closing;
  assert.equal(server.backends.length, 2);
});

quick(
  'a server that gives no answer is given up, and the next statement has another connection',
  async () => {
    const { server, db } = open(1, 1);
    await ask(db, 'one');
    server.onAsked = () => {};
    const silent = ask(db, 'two');
    await assert.rejects(silent, { code: 'ANSWER_TIMEOUT' });
    await until('the connection is closed', () => server.last.readyState === 'closed');
    server.onAsked = (backend) => backend.answer();
    await ask(db, 'three');
    assert.equal(server.backends.length, 2);
    await db.close();
  },
);

test('a backend that is killed inside a transaction leaves nothing of it behind', async () => {
  const { db, close } = await testDatabase({ pool: 1 });
  const killer = await testDatabase({ pool: 1 });
  let goOn = (): void => {};
  const gate = new Promise<void>((resolve) => (goOn = resolve));
  let pid = 0;
  const dead = db.tx(async () => {
    const [row] = await db.sql<{ pid: number }[]>`select pg_backend_pid() as pid`;
    await db.sql`insert into settings (name, value) values ('dead', '1')`;
    pid = row!.pid;
    await gate;
    await db.sql`insert into settings (name, value) values ('dead too', '1')`;
  });
  dead.catch(() => {});
  await until('the transaction is open', () => pid > 0);
  await killer.db.sql`select pg_terminate_backend(${pid})`;
  await assert.rejects(dead, AWAY);
  await db.tx(async () => {
    await db.sql`insert into settings (name, value) values ('other', '1')`;
    goOn();
    await db.sql`select pg_sleep(0.05)`;
  });
  const rows = await db.sql<{ name: string }[]>`select name from settings`;
  assert.deepEqual(
    rows.map((row) => row.name),
    ['other'],
  );
  await killer.close();
  await close();
});

test('a driver without the repair, or with another one, is refused with what to do', () => {
  for (const driver of [{}, { repairedBy: 'berth-0' }])
    assert.throws(
      () => checkDriver(driver),
      (error) => error instanceof DriverError && /node scripts\/setup\.mjs/.test(error.message),
    );
});
