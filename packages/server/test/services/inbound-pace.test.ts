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

test('when deliveries are quick again, or none come, all places are open again within seconds, not at once', () => {
  for (const calm of ['quick', 'none']) {
    const { pace, deliver, pass } = paced();
    deliver(1_000, 200);
    if (calm === 'quick') deliver(1_000, 5);
    else pass(1_000);
    const after1s = pace.share();
    assert.ok(after1s > 1 / 32 && after1s < 1, `${after1s}`);
    if (calm === 'quick') deliver(2_500, 5);
    else pass(2_500);
    assert.equal(pace.share(), 1);
  }
});

test('one slow commit among many quick ones changes nothing', () => {
  const { pace, deliver } = paced();
  deliver(1_000, 5);
  pace.taken(300);
  deliver(90, 5);
  assert.equal(pace.share(), 1);
});
