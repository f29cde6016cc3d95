import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { KeptBytes } from '../../src/domain/kept-bytes.ts';
import { createOutput } from '../../src/edges/sandbox/output.ts';
import { isCollected } from '../support/collected.ts';

/** Adds a piece of its own memory, and leaves nothing but a weak reference to it. */
function addOne(add: (bytes: Buffer) => void, length: number): WeakRef<object> {
  const piece = Buffer.allocUnsafeSlow(length).fill(0x78);
  add(piece);
  return new WeakRef(piece.buffer);
}

test('what a command writes beyond the limit of an answer is held by nobody', async () => {
  const output = createOutput('utf-8', 1000);
  const within = addOne((bytes) => output.add('stdout', bytes), 900);
  const beyond = addOne((bytes) => output.add('stdout', bytes), 64 * 1024);
  assert.ok(await isCollected(beyond));
  assert.ok(await isCollected(within));
  const { stdout, truncated } = output.end();
  assert.deepEqual([stdout.length, truncated], [1000, true]);
});

test('bytes that come one at a time are kept without the memory that each was cut from', async () => {
  const kept = new KeptBytes();
  const ref = addOne((bytes) => kept.add(bytes.subarray(7, 8)), 64 * 1024);
  assert.ok(await isCollected(ref));
  assert.equal(kept.whole().toString(), 'x');
});

test('kept bytes are the last ones when there is a bound, in whatever pieces they came', () => {
  const all = randomBytes(300_000);
  const kept = new KeptBytes(100_000);
  for (let at = 0; at < all.length;) {
    const length = at % 7 === 0 ? 1 : 1 + (all[at]! % 40) ** 3;
    kept.add(all.subarray(at, at + length));
    at += length;
  }
  assert.ok(kept.bytes >= 100_000 && kept.bytes < 100_000 + 16 * 1024, String(kept.bytes));
  assert.deepEqual(kept.whole(), all.subarray(all.length - kept.bytes));
  kept.clear();
  kept.add(Buffer.from('again'));
  assert.equal(kept.whole().toString(), 'again');
});
