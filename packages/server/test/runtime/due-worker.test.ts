import assert from 'node:assert/strict';
import { AsyncLocalStorage } from 'node:async_hooks';
import { test, type TestContext } from 'node:test';
import { createDueWorker } from '../../src/runtime/due-worker.ts';
import { silentLog } from '../support/log.ts';
import { until } from '../support/until.ts';

const never = new Promise<number>(() => {});

/** Looks only when it is woken, unless `lookEveryMs` says otherwise. */
function worker(t: TestContext, runDue: () => Promise<number>, options: Record<string, unknown> = {}) {
  const made = createDueWorker({ work: () => ({ runDue }), lookEveryMs: 1e9, log: silentLog, ...options });
  t.after(() => made.stop());
  return made;
}

test('the work of a worker is none of what the caller who woke it has open', async (t) => {
  const open = new AsyncLocalStorage<string>();
  const seen: (string | undefined)[] = [];
  const made = worker(t, async () => {
    seen.push(open.getStore());
    return 0;
  });
  open.run('started in a transaction', made.start);
  await until('the first look is over', () => seen.length === 1);
  await until('a call in a transaction is a look', () => {
    open.run('woken in a transaction', made.wake);
    return seen.length > 2;
  });
  assert.deepEqual(new Set(seen), new Set([undefined]));
});

test('a look that never ends is left to itself, told, and the next one is made', async (t) => {
  const told: unknown[] = [];
  let looks = 0;
  const made = worker(t, () => (++looks === 1 ? never : Promise.resolve(0)), {
    longestLookMs: 20,
    lookEveryMs: 10,
    log: { ...silentLog, warn: (message: string) => told.push(message) },
  });
  made.start();
  await until('others look', () => looks > 2);
  assert.equal(told.length, 1);
});

test('a failure is told where an operator sees it, once as long as it lasts, and ends no looking', async (t) => {
  const told: unknown[] = [];
  let looks = 0;
  const made = worker(
    t,
    async () => {
      looks += 1;
      throw new Error('The database is away.');
    },
    { lookEveryMs: 1, log: { ...silentLog, warn: (message: string) => told.push(message) } },
  );
  made.start();
  await until('it looks on', () => looks > 3);
  assert.equal(told.length, 1);
});

test('no call is lost, whenever it comes', async (t) => {
  let waiting = 0;
  let done = 0;
  const made = worker(t, async () => {
    const found = waiting;
    waiting = 0;
    done += found;
    return found;
  });
  made.start();
  for (let call = 1; call <= 30; call += 1) {
    waiting += 1;
    made.wake();
    await until('what was told of is done', () => done === call);
    // As close as can be to the end of the look that found nothing.
    for (let turn = 0; turn < call % 7; turn += 1) await Promise.resolve();
  }
});
