import assert from 'node:assert/strict';
import { test } from 'node:test';
import { freshReads } from '../../src/egress/broker/fresh-reads.ts';

test('one read is under way at a time, also for whoever asks just as one ends, and none is older than its asking', async () => {
  let [begun, underWay, most] = [0, 0, 0];
  const read = freshReads(async () => {
    const mine = ++begun;
    most = Math.max(most, ++underWay);
    await new Promise((resolve) => setImmediate(resolve));
    underWay -= 1;
    return mine;
  });
  const first = read();
  const atEnd = first.then(() => read());
  const second = read();
  assert.deepEqual(await Promise.all([first, second, atEnd]), [1, 2, 2]);
  assert.equal(most, 1);
  assert.equal(await read(), 3);
});
