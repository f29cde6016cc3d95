import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Bucket } from '../../src/domain/bucket.ts';

test('a whole burst is within the pace at whatever moment it comes, and one more is not', () => {
  for (let i = 1; i <= 10_000; i += 1) {
    const nowMs = i * 123.456_789;
    const bucket = new Bucket({ burst: 3, perSecond: 50 });
    for (let came = 0; came < 3; came += 1) assert.ok(bucket.spend(1, nowMs) <= 0, `at ${nowMs} ms`);
    assert.ok(bucket.spend(1, nowMs) > 19, `at ${nowMs} ms`);
  }
});
