import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createInboundPace } from '../../src/services/inbound-pace.ts';

function paced() {
  let nowMs = 0;
  const pace = createInboundPace(() => nowMs);
  /** For so long, a delivery every ten milliseconds that took so long each. */
  const deliver = (forMs: number, tookMs: number) => {
    for (const untilMs = nowMs + forMs; nowMs < untilMs; nowMs += 10) pace.taken(tookMs);
  };
  return { pace, deliver, pass: (ms: number) => void (nowMs += ms) };
}

test('as long as deliveries are taken quickly, all places for work may be filled', () => {
  const { pace, deliver } = paced();
  deliver(10_000, 25);
  assert.equal(pace.share(), 1);
});

test('while deliveries take long, fewer turns begin: within half a second the least, and never none', () => {
  const { pace, deliver } = paced();
  deliver(200, 200);
  assert.ok(pace.share() < 1);
  deliver(500, 200);
  const least = pace.share();
  assert.ok(least > 0 && least <= 1 / 32, `${least}`);
  deliver(5_000, 200);
  assert.equal(pace.share(), least);
});

for (const [calm, openMs] of [
  ['are quick again', 10_000],
  ['come no more', 3_000],
] as const) {
  test(`when deliveries ${calm}, all places are open again within ${openMs / 1000} seconds, little by little`, () => {
    const { pace, deliver, pass } = paced();
    const calmDown = (ms: number) => (calm === 'come no more' ? pass(ms) : deliver(ms, 5));
    deliver(1_000, 200);
    let before = pace.share();
    for (let passedMs = 0; passedMs < openMs; passedMs += 500) {
      calmDown(500);
      const share = pace.share();
      assert.ok(share <= before + 600 / openMs, `${before} → ${share}`);
      before = share;
    }
    assert.equal(pace.share(), 1);
  });
}

test('one slow commit among many quick ones changes nothing', () => {
  const { pace, deliver } = paced();
  deliver(1_000, 5);
  pace.taken(300);
  deliver(90, 5);
  assert.equal(pace.share(), 1);
});
