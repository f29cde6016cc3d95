import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bySize, Lane, smallBytes, type Clock, type Sliced } from '../../src/domain/slices.ts';
import { holdLane } from '../support/held-lane.ts';

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
const sender = { orgId: 'o', id: 'a' };

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

test('a group with twenty members has one share, and whoever comes to it waits for none of them who had more', async () => {
  const { clock, lane, seen, steps } = start();
  const run = (group: string, member: string, count: number) =>
    void lane.run(group, steps(`${group}${member} `, count, 4), { member, ms: 4 * count });
  for (let round = 0; round < 3; round += 1)
    for (let member = 0; member < 20; member += 1) run('a', String(member), 5);
  for (let slice = 0; slice < 30; slice += 1) await clock.endRest();
  for (let body = 0; body < 20; body += 1) run('b', 'x', 1);
  run('a', 'new', 1);
  const before = seen.length;
  for (let slice = 0; slice < 40; slice += 1) await clock.endRest();
  const after = seen.slice(before);
  assert.deepEqual(after.slice(0, 2).sort(), ['anew ', 'bx ']);
  const ofB = after.filter((name) => name === 'bx ').length;
  assert.ok(ofB >= 15, `${ofB} of 40 slices`);
});

test('whoever asks for little comes at once, however often members of its group ask for much', async () => {
  const { clock, lane, seen, steps } = start();
  const again = async (member: string): Promise<void> => {
    for (let body = 0; body < 20; body += 1) await lane.run('a', steps('large', 3, 10), { member, ms: 30 });
  };
  for (let member = 0; member < 20; member += 1) void again(String(member));
  for (let small = 0; small < 20; small += 1) {
    const before = seen.length;
    const done = lane.run('a', steps('small', 1, 0.1), { member: 'light', ms: 0.1 });
    await clock.endRest();
    assert.equal(seen[before], 'small');
    assert.equal(await done, 'small');
    await clock.endRest();
  }
});

test('forty honest bodies of one organisation at once are all read, in their order, and a neighbour waits for one step', async () => {
  const { clock, lane, seen, steps } = start();
  const honest = Array.from({ length: 40 }, (_, at) => lane.run('a', steps(`a${at}`, 4, 3)));
  const waited: number[] = [];
  for (let left = 5; left > 0; left -= 1) {
    await clock.endRest();
    const before = seen.length;
    const small = lane.run('b', steps('b', 1, 0.1));
    await clock.endRest();
    waited.push(seen.indexOf('b', before) - before);
    await small;
  }
  assert.deepEqual(waited, [0, 0, 0, 0, 0]);
  while (seen.length < 165) await clock.endRest();
  assert.deepEqual(
    await Promise.all(honest),
    honest.map((_, at) => `a${at}`),
  );
  assert.deepEqual(
    seen.filter((name) => name !== 'b'),
    honest.flatMap((_, at) => Array<string>(4).fill(`a${at}`)),
  );
});

test('work of whoever has gone is let go, begun or not, and the next has its turn', async () => {
  const { clock, lane, seen, steps } = start();
  const going = new AbortController();
  const begun = lane.run('a', steps('begun', 9, 4), { gone: going.signal });
  const waiting = lane.run('a', steps('waiting', 1, 1), { gone: going.signal });
  const next = lane.run('a', steps('next', 1, 1), { gone: new AbortController().signal });
  going.abort();
  for (const work of [begun, waiting, lane.run('a', steps('late', 1, 1), { gone: going.signal })])
    await assert.rejects(work, { code: 'invalid_request' });
  await clock.endRest();
  assert.equal(await next, 'next');
  assert.deepEqual(seen, ['begun', 'next']);
});

test('work that is done is not let go any more', async () => {
  const { lane, steps } = start();
  const going = new AbortController();
  const done = lane.run('a', steps('a', 1, 1), { gone: going.signal });
  going.abort();
  assert.equal(await done, 'a');
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
  assert.equal(bySize(sender, smallBytes, work()), 'made');
  const large = bySize(sender, smallBytes + 1, work());
  assert.ok(large instanceof Promise);
  assert.equal(await large, 'made');
  function* failing(): Sliced<never> {
    yield;
    throw new Error('no');
  }
  assert.throws(() => bySize(sender, 1, failing()), /no/);
});

test('what one sender has waits in its order, and neither another of its organisation nor one of the same id elsewhere waits for it', async (t) => {
  const letGo = holdLane(t, sender);
  function* work(): Sliced<string> {
    yield;
    return 'made';
  }
  let isMade = false;
  const own = Promise.resolve(bySize(sender, 1_000_000, work())).then(() => (isMade = true));
  assert.equal(await bySize({ ...sender, id: 'b' }, 1_000_000, work()), 'made');
  assert.equal(await bySize({ ...sender, orgId: 'p' }, 1_000_000, work()), 'made');
  assert.equal(isMade, false);
  await letGo();
  await own;
});
