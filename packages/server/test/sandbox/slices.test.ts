import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deletedBytes, writtenBytes } from '../../src/sandbox/disk/measure.ts';
import type { Clock } from '../../src/domain/slices.ts';
import { lookLane, Slices } from '../../src/sandbox/disk/slices.ts';

/** Time that goes on by `lookMs` with each look at it, and by the rests. */
class FakeClock implements Clock {
  ms = 0;
  rests: number[] = [];
  private readonly lookMs: number;

  constructor(lookMs = 0) {
    this.lookMs = lookMs;
  }

  nowMs(): number {
    return (this.ms += this.lookMs);
  }

  async rest(ms: number): Promise<void> {
    this.rests.push(ms);
    await Promise.resolve();
    this.ms += ms;
  }
}

test('looks without end take a tenth of the event loop, in slices of two milliseconds', async () => {
  const clock = new FakeClock();
  const slices = new Slices(lookLane(clock));
  let looks = 0;
  await slices.each(Array.from({ length: 100 }), () => {
    looks += 1;
    clock.ms += 1;
  });
  assert.equal(looks, 100);
  assert.deepEqual(clock.rests, Array<number>(50).fill(18));
  assert.equal(slices.restedMs, 900);
});

test('a single long look is followed by as long a rest', async () => {
  const clock = new FakeClock();
  await new Slices(lookLane(clock)).each([30], (tookMs) => (clock.ms += tookMs));
  assert.deepEqual(clock.rests, [270]);
});

test('short looks for many sandboxes at once rest as the looks for one do', async () => {
  const clock = new FakeClock();
  const lane = lookLane(clock);
  await Promise.all(Array.from({ length: 100 }, () => new Slices(lane).each(['a'], () => (clock.ms += 0.5))));
  assert.deepEqual(clock.rests, Array<number>(25).fill(18));
});

test('two sandboxes take slices in turn, and go on when a look of one fails', async () => {
  const seen: string[] = [];
  const clock = new FakeClock();
  const lane = lookLane(clock);
  const look = (name: string) => {
    clock.ms += 2;
    seen.push(name);
    if (name === 'bad') throw new Error('It cannot be looked at.');
  };
  const [first, second] = [
    new Slices(lane).each(['a', 'bad', 'a'], look),
    new Slices(lane).each(['b', 'b', 'b'], look),
  ];
  await assert.rejects(first, /cannot be looked at/);
  await second;
  assert.deepEqual(seen, ['a', 'b', 'bad', 'b', 'b']);
});

test('what processes wrote, and what they hold open, is looked at in such slices', async () => {
  const pids = Array<number>(8).fill(process.pid);
  for (const look of [
    (slices: Slices) => writtenBytes(pids, slices),
    (slices: Slices) => deletedBytes(pids, '/', slices),
  ]) {
    const clock = new FakeClock(1);
    await look(new Slices(lookLane(clock)));
    assert.ok(clock.rests.length >= 4, `${clock.rests.length} rests`);
  }
});
