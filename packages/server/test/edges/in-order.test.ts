import assert from 'node:assert/strict';
import { test } from 'node:test';
import { InOrder } from '../../src/edges/acp/in-order.ts';
import { until } from '../support/until.ts';

test('works are done in their order, one that fails holds up nothing, and what comes when all are done is done at once', async () => {
  const busy: boolean[] = [];
  const done: string[] = [];
  const order = new InOrder((isBusy) => busy.push(isBusy));
  order.add(() => void done.push('at once'));
  assert.deepEqual([done, busy], [['at once'], []]);
  const first = Promise.withResolvers<void>();
  order.add(() => first.promise);
  order.add(async () => {
    done.push('bad');
    throw new Error('It cannot be done.');
  });
  order.add(() => void done.push('behind it'));
  assert.deepEqual([done, busy, order.isBusy], [['at once'], [true], true]);
  first.resolve();
  await until('all are done', () => !order.isBusy);
  assert.deepEqual(
    [done, busy],
    [
      ['at once', 'bad', 'behind it'],
      [true, false],
    ],
  );
  order.add(() => void done.push('last'));
  assert.equal(done.at(-1), 'last');
});
