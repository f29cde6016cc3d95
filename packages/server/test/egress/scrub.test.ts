import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import { test } from 'node:test';
import { Needle } from '../../src/egress/broker/needle.ts';
import { Needles } from '../../src/egress/broker/needles.ts';
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
    const stream = new ScrubStream({ scrubs: scrubsOf([{ value: Buffer.from(value), placeholder }]) });
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

test('one look for many needles misses none, and tells a text apart that holds none', (t) => {
  const seed = randomInt(2 ** 31);
  t.diagnostic(`seed ${seed}`);
  const next = randomFrom(seed);
  const letters = (length: number, alphabet: string) =>
    Buffer.from(Array.from({ length }, () => alphabet[next(alphabet.length)]).join(''));
  for (let round = 0; round < 500; round += 1) {
    const alphabet = ['ab', 'abcdefgh', '0123456789abcdef'][next(3)]!;
    const needles = Array.from({ length: 1 + next(30) }, () => letters(7 + next(90), alphabet));
    const text = letters(next(600), alphabet);
    const one = needles[next(needles.length)]!;
    const at = next(text.length + 1);
    const all = new Needles(needles.map((bytes) => new Needle(bytes)));
    const holding = Buffer.concat([text.subarray(0, at), one, text.subarray(at)]);
    assert.equal(all.mayBeIn(holding), true, `round ${round}`);
    if (!all.mayBeIn(text)) assert.ok(needles.every((bytes) => !text.includes(bytes)));
  }
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
  const tokens = Array.from({ length: 200 }, () => new Needle(letters(40, alphabet)));
  assert.equal(new Needles(tokens).mayBeIn(letters(65_536, alphabet)), false);
});

test('a large piece is searched like small ones', async () => {
  const value = 'tok_0123456789+abcdef';
  const stream = new ScrubStream({ scrubs: scrubsOf([{ value: Buffer.from(value), placeholder }]) });
  const whole = buffer(stream);
  const padding = 'x'.repeat(100_000);
  for (const piece of [padding, `${padding}${value}${padding}${value.slice(0, 9)}`, value.slice(9) + padding])
    stream.write(piece);
  stream.end();
  assert.equal(
    (await whole).toString(),
    `${padding}${padding}${placeholder}${padding}${placeholder}${padding}`,
  );
});
