import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { createRateLimit } from '../../src/services/rate-limit.ts';
import type { RateUsageStore } from '../../src/store/rate-usage.ts';
import { createRateUsageStore } from '../../src/store/rate-usage.ts';
import { testDatabase } from '../support/database.ts';
import { silentLog } from '../support/log.ts';

const nowhere: RateUsageStore = {
  hasOtherNodes: async () => false,
  exchange: async () => [],
  purge: async () => {},
};
const authFailures = { quota: 5, windowSeconds: 10 };
const limit = { quota: 10, windowSeconds: 60 };

function limiter(now: () => number, usage = nowhere, nodeId = newId()) {
  return createRateLimit({ usage, nodeId, log: silentLog, authFailures, now });
}

test('a whole quota at once, then one request each time that it refills', () => {
  let nowMs = 1_000_000;
  const { take, peek } = limiter(() => nowMs);
  for (let left = 9; left >= 0; left -= 1) {
    const verdict = take('k', limit);
    assert.deepEqual([verdict.allowed, verdict.remaining], [true, left]);
  }
  const refused = take('k', limit);
  assert.deepEqual([refused.allowed, refused.retryAfterSeconds, refused.resetSeconds], [false, 6, 60]);
  nowMs += 5_999;
  assert.equal(take('k', limit).allowed, false);
  nowMs += 1;
  assert.equal(take('k', limit).allowed, true);
  assert.equal(take('k', limit).allowed, false);
  nowMs += 60_000;
  assert.equal(peek('k', limit).remaining, 10);
  assert.equal(peek('k', limit).resetSeconds, 0);
});

test('refused requests cost nothing, keys do not share, and waiting as told is enough', () => {
  let nowMs = 0;
  const { take } = limiter(() => nowMs);
  for (let i = 0; i < 10; i += 1) take('a', limit);
  for (let i = 0; i < 1000; i += 1) assert.equal(take('a', limit).allowed, false);
  assert.equal(take('b', limit).allowed, true);
  nowMs += take('a', limit).retryAfterSeconds * 1000;
  assert.equal(take('a', limit).allowed, true);
});

test('failures are counted by address and forgiven with time', () => {
  let nowMs = 0;
  const { authFailure } = limiter(() => nowMs);
  for (let i = 0; i < 5; i += 1) assert.equal(authFailure('a'), null);
  assert.equal(authFailure('a'), 2);
  assert.equal(authFailure('b'), null);
  nowMs += 2000;
  assert.equal(authFailure('a'), null);
});

test('two nodes share a quota: what one lets through is missing at the other', async () => {
  const { db, close } = await testDatabase();
  try {
    const [one, two] = [newId(), newId()];
    await db.sql`insert into nodes (id) values (${one}), (${two})`;
    const usage = createRateUsageStore(db);
    const nowMs = Date.now();
    const a = limiter(() => nowMs, usage, one);
    const b = limiter(() => nowMs, usage, two);
    const key = newId();
    assert.equal(b.take(key, limit).remaining, 9);
    await b.sync();
    for (let i = 0; i < 6; i += 1) a.take(key, limit);
    await a.sync();
    await b.sync();
    assert.equal(b.peek(key, limit).remaining, 3);
    // Heard once, not twice.
    await b.sync();
    await a.sync();
    assert.equal(b.peek(key, limit).remaining, 3);
    for (let i = 0; i < 10; i += 1) b.take(key, limit);
    await b.sync();
    await a.sync();
    // What was used before a node knew the key counts less what may have been refilled since: here one request at most.
    a.take(key, limit);
    assert.equal(a.take(key, limit).allowed, false);
  } finally {
    await close();
  }
});

test('a node that is alone writes nothing, and a failed exchange loses no count', async () => {
  const told: Map<string, number>[] = [];
  let broken = true;
  const usage: RateUsageStore = {
    hasOtherNodes: async () => true,
    async exchange(_nodeId, used) {
      if (broken) throw new Error('away');
      told.push(used);
      return [];
    },
    purge: async () => {},
  };
  const shared = limiter(() => 0, usage);
  shared.take('k', limit);
  await shared.sync();
  shared.take('k', limit);
  broken = false;
  await shared.sync();
  assert.deepEqual(told, [new Map([['k', 2]])]);

  const alone = limiter(() => 0, { ...usage, hasOtherNodes: async () => false });
  alone.take('k', limit);
  await alone.sync();
  assert.equal(told.length, 1);
});
