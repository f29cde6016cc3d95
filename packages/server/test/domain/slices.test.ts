import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bySize, Lane, smallBytes, type Clock, type Sliced } from '../../src/domain/slices.ts';

/** Time that goes on by work and by rests only; rests end when the test says so. */
class FakeClock implements Clock {
  ms = 0;
  rests: number[] = [];
  private end = (): void => undefined;

  nowMs(): number {
    return this.ms;
  }

  async rest(ms: number): Promise<void> {
    this.rests.push(ms);
    const { promise, resolve } = Promise.withResolvers<void>();
    this.end = resolve;
    await promise;
    this.ms += ms;
  }

  async endRest(): Promise<void> {
    this.end();
    await new Promise((resolve) => setImmediate(resolve));
  }
}

const length = { ms: 4, rests: 1 };

function start() {
  const clock = new FakeClock();
  const lane = new Lane(length, clock);
  const seen: string[] = [];
  function* steps(name: string, count: number, ms: number): Sliced<string> {
    for (let left = count; left > 0; left -= 1) {
      seen.push(name);
      clock.ms += ms;
      if (left > 1) yield;
    }
    return name;
  }
  return { clock, lane, seen, steps };
}

test('work that nobody waits before is done at once, whatever rests were due long ago', async () => {
  const { clock, lane, seen, steps } = start();
  const first = lane.run('a', steps('a', 1, 3));
  assert.deepEqual(seen, ['a']);
  assert.equal(await first, 'a');
  clock.ms += 3;
  void lane.run('a', steps('a', 1, 3));
  assert.equal(seen.length, 2);
  assert.deepEqual(clock.rests, []);
});

test('however many pieces one sender has, one slice is taken between two rests, and each rest is as long as its slice', async () => {
  const { clock, lane, seen, steps } = start();
  const all = Array.from({ length: 200 }, () => lane.run('a', steps('a', 3, 2)));
  let slices = 1;
  for (let before = 0; clock.rests.length > before; slices += 1) {
    assert.equal(seen.length, Math.min(2 * slices, 600));
    before = clock.rests.length;
    await clock.endRest();
  }
  assert.equal(seen.length, 600);
  assert.deepEqual(new Set(clock.rests), new Set([4]));
  assert.deepEqual(new Set(await Promise.all(all)), new Set(['a']));
});

test('small pieces one after the other rest as a large one does', async () => {
  const { clock, lane, seen, steps } = start();
  for (let sent = 0; sent < 4; sent += 1) await lane.run('a', steps('a', 1, 1));
  assert.deepEqual(clock.rests, [4]);
  void lane.run('b', steps('b', 1, 1));
  assert.equal(seen.length, 4);
  await clock.endRest();
  assert.equal(seen.at(-1), 'b');
});

test('a step that cannot be cut is followed by as long a rest', () => {
  const { clock, lane, steps } = start();
  void lane.run('a', steps('a', 1, 30));
  assert.deepEqual(clock.rests, [30]);
});

test('senders take slices in turn: whoever comes to two hundred pieces of another waits for one of them', async () => {
  const { clock, lane, seen, steps } = start();
  for (let sent = 0; sent < 200; sent += 1) void lane.run('a', steps('a', 50, 2));
  const other = lane.run('b', steps('b', 4, 2));
  const third = lane.run('c', steps('c', 1, 1));
  while (!seen.includes('c') || seen.filter((name) => name === 'b').length < 4) await clock.endRest();
  assert.deepEqual(seen.join(''), 'aabbcaabb'.slice(0, seen.length));
  assert.deepEqual([await other, await third], ['b', 'c']);
});

test('work that fails tells its sender, and the others go on', async () => {
  const { clock, lane, steps } = start();
  const bad = lane.run(
    'a',
    (function* (): Sliced<void> {
      yield;
      throw new Error('It cannot be read.');
    })(),
  );
  const good = lane.run('a', steps('a', 2, 2));
  const [failed] = await Promise.allSettled([bad]);
  assert.match(String(failed.status === 'rejected' && failed.reason), /cannot be read/);
  await clock.endRest();
  assert.equal(await good, 'a');
});

test('work on a small body is done before the call returns, and on a large one in slices with others', async () => {
  function* work(): Sliced<string> {
    yield;
    yield;
    return 'made';
  }
  assert.equal(bySize('a', smallBytes, work()), 'made');
  const large = bySize('a', smallBytes + 1, work());
  assert.ok(large instanceof Promise);
  assert.equal(await large, 'made');
  function* failing(): Sliced<never> {
    yield;
    throw new Error('no');
  }
  assert.throws(() => bySize('a', 1, failing()), /no/);
});
