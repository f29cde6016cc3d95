import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import { test } from 'node:test';
import { Needle } from '../../src/egress/broker/needle.ts';
import { ScrubStream, scrubsOf } from '../../src/egress/broker/scrub.ts';
import { randomFrom } from './wire.ts';

const placeholder = `berth_ph_${'0'.repeat(40)}`;

test('however a body is cut into pieces, what comes out is the whole with every value replaced', async (t) => {
  const seed = randomInt(2 ** 31);
  t.diagnostic(`seed ${seed}`);
  const next = randomFrom(seed);
  for (let round = 0; round < 300; round += 1) {
    // Of two letters, so that beginnings of the value are everywhere; of none that a placeholder could go on with.
    const letters = (length: number) => Array.from({ length }, () => 'xy'[next(2)]).join('');
    const value = letters(8 + next(60));
    let body = '';
    for (let part = 0; part < 20; part += 1) body += next(3) === 0 ? value : letters(next(40));
    const stream = new ScrubStream(scrubsOf([{ value: Buffer.from(value), placeholder }]));
    const whole = buffer(stream);
    for (let at = 0; at < body.length;) {
      const size = 1 + next(50);
      stream.write(body.slice(at, at + size));
      at += size;
    }
    stream.end();
    const found = (await whole).toString();
    assert.equal(found.includes(value), false, `round ${round}`);
    assert.equal(found.replaceAll(placeholder, value), body, `round ${round}`);
  }
});

test('a needle is found as by a simple search, also where much looks like it', () => {
  const next = randomFrom(7);
  for (let round = 0; round < 500; round += 1) {
    const text = Buffer.from(Array.from({ length: 600 }, () => (next(20) === 0 ? 'b' : 'a')).join(''));
    const at = next(500);
    const bytes = text.subarray(at, at + 8 + next(60));
    const places: number[] = [];
    for (let from = text.indexOf(bytes); from !== -1; from = text.indexOf(bytes, from + bytes.length))
      places.push(from);
    const needle = new Needle(Buffer.from(bytes));
    assert.deepEqual(needle.placesIn(text), places);
    let overlap = 0;
    for (let size = 1; size < bytes.length; size += 1) {
      if (text.subarray(text.length - size).equals(bytes.subarray(0, size))) overlap = size;
    }
    assert.equal(needle.overlapWith(text), overlap);
  }
});
