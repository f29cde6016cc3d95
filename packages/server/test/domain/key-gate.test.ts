import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GateFull, KeyGate } from '../../src/domain/key-gate.ts';

test('a group holds no more than its share, however many keys it has, and another gets in at once', async () => {
  const gate = new KeyGate({ total: 4, perKey: 2, perGroup: 3, maxWaiting: 8 });
  const leaves = [];
  for (const key of ['a', 'b', 'c']) leaves.push(await gate.enter(key, undefined, 'one'));
  const order: string[] = [];
  const fourth = gate.enter('d', undefined, 'one').then((leave) => (order.push('d'), leave));
  const other = await gate.enter('z', undefined, 'two');
  assert.deepEqual(order, []);
  other();
  await Promise.resolve();
  assert.deepEqual(order, [], 'a place of another group is not given to one that has its share');
  leaves[0]!();
  (await fourth)();
  leaves.slice(1).forEach((leave) => leave());
  // All is given back.
  for (const key of ['a', 'b', 'c']) await gate.enter(key, undefined, 'one');
});

test('no key and no group fills the places for waiting', async () => {
  const gate = new KeyGate({ total: 1, perKey: 1, maxWaiting: 4, waitingPerKey: 1, waitingPerGroup: 2 });
  const gone = new AbortController();
  await gate.enter('first', undefined, 'none');
  const waits = (key: string, group: string) => {
    const waiting = gate.enter(key, gone.signal, group);
    waiting.catch(() => undefined);
    return waiting;
  };
  const waiting = [waits('a', 'one')];
  await assert.rejects(waits('a', 'one'), GateFull);
  waiting.push(waits('b', 'one'));
  await assert.rejects(waits('c', 'one'), GateFull);
  waiting.push(waits('z', 'two'));
  gone.abort(new Error('gone'));
  for (const one of waiting) await assert.rejects(one, /gone/);
});
