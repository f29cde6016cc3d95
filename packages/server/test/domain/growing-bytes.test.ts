import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GrowingBytes } from '../../src/domain/growing-bytes.ts';

test('what comes in pieces of any size is whole and in order, in little more memory than it needs', () => {
  const all = Buffer.from(Array.from({ length: 100_000 }, (_, index) => index % 251));
  for (const size of [1, 7, 4_096, 60_000]) {
    const held = new GrowingBytes(all.length);
    for (let at = 0; at < all.length; at += size) held.add(all.subarray(at, at + size));
    assert.equal(held.length, all.length);
    assert.ok(held.whole().equals(all), `${size}`);
    assert.ok(held.whole().buffer.byteLength <= 2 * all.length, `${size}`);
  }
});

test('one piece is used as it is and not written to, and after it is cleared it begins anew', () => {
  const piece = Buffer.from('abc');
  const held = new GrowingBytes(10);
  held.add(piece);
  assert.equal(held.whole().buffer, piece.buffer);
  held.add(Buffer.from('de'));
  held.clear();
  assert.equal(held.length, 0);
  held.add(Buffer.alloc(0));
  held.add(Buffer.from('x'));
  assert.equal(held.whole().toString(), 'x');
  assert.equal(piece.toString(), 'abc');
});
