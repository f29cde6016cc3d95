import assert from 'node:assert/strict';
import { AsyncLocalStorage } from 'node:async_hooks';
import { test } from 'node:test';
import { DomainError } from '../../src/domain/errors.ts';
import { createGroupCommit } from '../../src/services/group-commit.ts';

const limits = {
  maxBatch: 256,
  maxBatchBytes: 1_000_000,
  largeBytes: 1_000,
  maxWaitingBytes: 1_000_000,
  maxLargeBatchBytes: 1_000_000,
  maxLargeWaitingBytes: 1_000_000,
  ownerOf: () => 'one',
  parallel: 1,
};

test('one item that cannot be written fails alone, and its neighbours are written once', async () => {
  const written: number[] = [];
  let calls = 0;
  const commit = createGroupCommit<number>({
    ...limits,
    maxWaiting: 1_000,
    sizeOf: () => 1,
    async write(items) {
      calls += 1;
      if (items.includes(13)) throw new Error('13 cannot be written');
      written.push(...items);
    },
  });
  const results = await Promise.allSettled(
    Array.from({ length: 100 }, (_, index) => commit.add([index], false)),
  );
  const failed = results.flatMap(({ status }, index) => (status === 'rejected' ? [index] : []));
  assert.deepEqual(failed, [13]);
  assert.deepEqual(
    written.toSorted((one, other) => one - other),
    Array.from({ length: 100 }, (_, index) => index).filter((index) => index !== 13),
  );
  assert.ok(calls < 20, `${calls} writes`);
  assert.equal(commit.waiting, 0);
});

test('a database that is away is asked once for a batch, not once for each of its items', async () => {
  let calls = 0;
  const commit = createGroupCommit<number>({
    ...limits,
    maxWaiting: 1_000,
    sizeOf: () => 1,
    async write() {
      calls += 1;
      throw new DomainError('unavailable', 'The database cannot be reached.');
    },
  });
  const results = await Promise.allSettled(
    Array.from({ length: 100 }, (_, index) => commit.add([index], false)),
  );
  assert.ok(results.every(({ status }) => status === 'rejected'));
  assert.equal(calls, 1);
});

test('when too much waits, what is sent again is refused first, with a hint when, and the rest has room', async () => {
  const gate = Promise.withResolvers<void>();
  const commit = createGroupCommit<number>({
    ...limits,
    maxWaiting: 10,
    sizeOf: () => 1,
    write: () => gate.promise,
  });
  const add = (isReserved: boolean) => commit.add([1], isReserved);
  const taken = Array.from({ length: 9 }, () => add(false));
  const isFull = (error: unknown) =>
    error instanceof DomainError && error.code === 'unavailable' && error.retryAfterSeconds === 5;
  assert.throws(() => add(false), isFull);
  taken.push(add(true));
  assert.throws(() => add(true), isFull);
  gate.resolve();
  await Promise.all(taken);
});

test('a batch is written apart from what any of those who gave something has open', async () => {
  const open = new AsyncLocalStorage<string>();
  const seen: (string | undefined)[] = [];
  const commit = createGroupCommit<number>({
    ...limits,
    maxWaiting: 10,
    sizeOf: () => 1,
    write: async () => void seen.push(open.getStore()),
  });
  await Promise.all([open.run('a transaction', () => commit.add([1], false)), commit.add([2], false)]);
  assert.deepEqual(seen, [undefined]);
});

test('what is large is written apart, one batch at a time, and nothing that is small waits for it', async () => {
  const gate = Promise.withResolvers<void>();
  const batches: number[][] = [];
  const commit = createGroupCommit<number>({
    ...limits,
    maxWaiting: 10,
    sizeOf: (bytes) => bytes,
    async write(items) {
      batches.push(items);
      if (items.includes(5_000)) await gate.promise;
    },
  });
  const first = commit.add([5_000], false);
  await commit.add([1], false);
  const second = commit.add([6_000], false);
  const third = commit.add([7_000], false);
  await Promise.all([commit.add([2], false), commit.add([3], false)]);
  assert.deepEqual(batches, [[5_000], [1], [2, 3]]);
  gate.resolve();
  await Promise.all([first, second, third]);
  assert.deepEqual(batches.at(-1), [6_000, 7_000]);
  assert.equal(commit.waiting, 0);
});

/** Large ones of owners, named `a1`, `b1` and so on; the first of all is being written until `go` is called. */
function largeOnes(options: { maxLargeWaitingBytes?: number } = {}) {
  const gate = Promise.withResolvers<void>();
  const written: string[] = [];
  const commit = createGroupCommit<string>({
    ...limits,
    maxLargeBatchBytes: 1,
    ...options,
    maxWaiting: 1_000,
    sizeOf: () => 2_000,
    ownerOf: (item) => item[0]!,
    async write(items) {
      if (written.length === 0) await gate.promise;
      written.push(...items);
    },
  });
  return { commit, written, go: gate.resolve };
}

test('large ones of several owners are written in turns, of each the reserved ones first', async () => {
  const { commit, written, go } = largeOnes();
  const first = commit.add(['a0'], false);
  await new Promise((resolve) => setImmediate(resolve));
  const given = ['a1', 'a2', 'a3', 'b1', 'b2', 'c1'].map((item) => commit.add([item], false));
  given.push(commit.add(['a4'], true));
  go();
  await Promise.all([first, ...given]);
  assert.deepEqual(written, ['a0', 'b1', 'c1', 'a4', 'b2', 'a1', 'a2', 'a3']);
});

test('an owner of which much that is large waits is refused more of it, and no other is', async () => {
  const { commit, written, go } = largeOnes({ maxLargeWaitingBytes: 4_000 });
  const first = commit.add(['a0'], false);
  await new Promise((resolve) => setImmediate(resolve));
  const given = ['a1', 'a2'].map((item) => commit.add([item], false));
  assert.throws(() => commit.add(['a3'], false), { code: 'unavailable', retryAfterSeconds: 5 });
  given.push(commit.add(['a4'], true), commit.add(['a5'], true));
  assert.throws(() => commit.add(['a6'], true), { code: 'unavailable', retryAfterSeconds: 5 });
  given.push(commit.add(['b1'], false));
  go();
  await Promise.all([first, ...given]);
  assert.deepEqual(written, ['a0', 'b1', 'a4', 'a5', 'a1', 'a2']);
  assert.equal(commit.waiting, 0);
});
