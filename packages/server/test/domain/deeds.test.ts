import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { deed } from '../../src/domain/deeds.ts';

/** Deeds that go on until they are told to end. */
function hanging() {
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const begin = (volumeDir: string, name: string) =>
    deed(volumeDir, () => {
      begun.push(name);
      const { promise, resolve } = Promise.withResolvers<void>();
      ends.set(name, resolve);
      return promise;
    });
  return { begun, begin, end: (name: string) => ends.get(name)!() };
}

test('one deed at a time is done to a volume, in the order in which they came', async () => {
  const { begun, begin, end } = hanging();
  const all = ['a1', 'a2', 'a3'].map((name) => begin('/a', name));
  for (const name of ['a1', 'a2', 'a3']) {
    await turn();
    assert.equal(begun.at(-1), name);
    end(name);
  }
  await Promise.all(all);
  assert.deepEqual(begun, ['a1', 'a2', 'a3']);
});

test('a volume whose deed hangs keeps none of another waiting, and two that hang leave half of the threads', async () => {
  const { begun, begin, end } = hanging();
  const all = [begin('/a', 'a1'), begin('/a', 'a2'), begin('/b', 'b1'), begin('/c', 'c1')];
  await turn();
  assert.deepEqual(begun, ['a1', 'b1']);
  end('b1');
  await turn();
  assert.deepEqual(begun, ['a1', 'b1', 'c1']);
  end('c1');
  end('a1');
  await turn();
  assert.deepEqual(begun, ['a1', 'b1', 'c1', 'a2']);
  end('a2');
  await Promise.all(all);
});

test('volumes take turns: one that comes waits for one deed of each that waits already, however many they have', async () => {
  const { begun, begin, end } = hanging();
  const many = (volume: string) =>
    Array.from({ length: 50 }, (_, at) => begin(`/${volume}`, `${volume}${at}`));
  const all = [...many('a'), ...many('b'), ...many('c'), begin('/d', 'd0'), begin('/e', 'e0')];
  await turn();
  const newest = new Set(['d0', 'e0']);
  for (let ended = 0; ended < begun.length; ended += 1) {
    end(begun[ended]!);
    await turn();
    newest.delete(begun.at(-1)!);
    // Two were under way; then c, and one more of a and of b at most.
    if (ended === 5) assert.equal(newest.size, 0, begun.join(' '));
  }
  await Promise.all(all);
  for (const volume of ['a', 'b', 'c']) {
    const own = begun.filter((name) => name.startsWith(volume));
    assert.deepEqual(
      own,
      Array.from({ length: 50 }, (_, at) => `${volume}${at}`),
    );
  }
});

test('a deed that fails, at once or later, lets the next one of its volume begin', async () => {
  const failed = [
    deed('/a', () => {
      throw new Error('at once');
    }),
    deed('/a', async () => {
      await turn();
      throw new Error('later');
    }),
  ];
  const [first, second] = await Promise.allSettled(failed);
  assert.deepEqual([first!.status, second!.status], ['rejected', 'rejected']);
  assert.equal(await deed('/a', async () => 'done'), 'done');
});
