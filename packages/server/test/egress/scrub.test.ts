import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import { test } from 'node:test';
import { Needles } from '../../src/egress/broker/needles.ts';
import { ScrubStream, scrubsOf, type ScrubValue } from '../../src/egress/broker/scrub.ts';
import { randomFrom } from './wire.ts';

const placeholder = `berth_ph_${'0'.repeat(40)}`;

/** By a simple search: one placeholder for each stretch of values that overlap, that of the longest at its beginning. */
function masked(body: string, values: readonly ScrubValue[], keepsLength = false): string {
  const places = values.flatMap(({ value, placeholder: instead }) => {
    const text = value.toString('latin1');
    const found: { at: number; end: number; instead: string }[] = [];
    for (let at = body.indexOf(text); at !== -1; at = body.indexOf(text, at + 1))
      found.push({ at, end: at + text.length, instead });
    return found;
  });
  places.sort((a, b) => a.at - b.at || b.end - a.end);
  let out = '';
  let from = 0;
  for (let index = 0; index < places.length;) {
    const { at, instead } = places[index]!;
    let { end } = places[index]!;
    for (index += 1; index < places.length && places[index]!.at < end; index += 1)
      end = Math.max(end, places[index]!.end);
    const fill = keepsLength ? instead.slice(0, end - at).padEnd(end - at, '*') : instead;
    out += body.slice(from, at) + fill;
    from = end;
  }
  return out + body.slice(from);
}

/** What comes out of a body that comes in pieces. */
async function scrubbed(
  body: string,
  values: readonly ScrubValue[],
  { keepsLength = false, cut }: { keepsLength?: boolean; cut: () => number },
): Promise<string> {
  const stream = new ScrubStream({ scrubs: scrubsOf(values) }, keepsLength);
  const whole = buffer(stream);
  for (let at = 0; at < body.length;) {
    const size = cut();
    stream.write(body.slice(at, at + size));
    at += size;
  }
  stream.end();
  return (await whole).toString();
}

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
    const values = [{ value: Buffer.from(value), placeholder }];
    const found = await scrubbed(body, values, { cut: () => 1 + next(50) });
    assert.equal(found.includes(value), false, `round ${round}`);
    assert.equal(found, masked(body, values), `round ${round}`);
  }
});

test('the longest value wins, and no part of one is left, however a body is cut', async (t) => {
  const seed = randomInt(2 ** 31);
  t.diagnostic(`seed ${seed}`);
  const next = randomFrom(seed);
  for (let round = 0; round < 400; round += 1) {
    const letters = (length: number) => Array.from({ length }, () => 'xyz'[next(3)]).join('');
    const texts = [letters(8 + next(12))];
    // Each goes on where another ends, or begins where another is not over.
    for (let more = next(8); more > 0; more -= 1) {
      const other = texts[next(texts.length)]!;
      texts.push(next(3) === 0 ? other.slice(1 + next(4)) + letters(8) : other + letters(1 + next(10)));
    }
    const values = [...new Set(texts)].map((text, index) => ({
      value: Buffer.from(text),
      placeholder: `berth_ph_${String(index).padStart(40, '0')}`,
    }));
    let body = '';
    for (let part = 0; part < 12; part += 1) {
      const text = texts[next(texts.length)]!;
      body += [text, text.slice(0, next(text.length)), letters(next(20))][next(3)]!;
    }
    const keepsLength = next(2) === 0;
    const found = await scrubbed(body, values, { keepsLength, cut: () => 1 + next([1, 4, 30][next(3)]!) });
    assert.equal(found, masked(body, values, keepsLength), `round ${round}`);
    if (keepsLength) assert.equal(found.length, body.length);
  }
});

test('an answer that is cut after what two values begin with leaves no tail of the longer one', async () => {
  const values = ['abcdefgh12', 'abcdefgh12SECRETTAIL99'].map((text) => ({
    value: Buffer.from(text),
    placeholder,
  }));
  const stream = new ScrubStream({ scrubs: scrubsOf(values) });
  const whole = buffer(stream);
  for (const piece of ['say abcdefgh12', 'SECRETTAIL99, ', 'abcdefgh12', 'SECRET, abcdefgh12'])
    stream.write(piece);
  stream.end();
  assert.equal((await whole).toString(), `say ${placeholder}, ${placeholder}SECRET, ${placeholder}`);
});

test('a value that is set while another is half told is searched for from the next piece on', async () => {
  const [old, set] = ['old_value_0123456789', 'old_set_meanwhile'].map((text) =>
    scrubsOf([{ value: Buffer.from(text), placeholder }]),
  );
  const search = { scrubs: old! };
  const stream = new ScrubStream(search);
  const whole = buffer(stream);
  await new Promise((done) => stream.write('a old_', done));
  search.scrubs = set!;
  stream.write('set_meanwhile b');
  stream.end();
  assert.equal((await whole).toString(), `a ${placeholder} b`);
});

test('the longest of many values is found at each place, as by a simple search', (t) => {
  const seed = randomInt(2 ** 31);
  t.diagnostic(`seed ${seed}`);
  const next = randomFrom(seed);
  for (let round = 0; round < 500; round += 1) {
    const alphabet = ['ab', 'abcdefgh', '\u00ff\u00fe0'][next(3)]!;
    const letters = (length: number) =>
      Buffer.from(Array.from({ length }, () => alphabet[next(alphabet.length)]).join(''), 'latin1');
    const all = Array.from({ length: 1 + next(30) }, () => letters(3 + next(90)));
    const forms = all.filter((bytes, index) => all.findIndex((other) => other.equals(bytes)) === index);
    const text = Buffer.concat(
      Array.from({ length: 5 }, () => [letters(next(90)), all[next(all.length)]!]).flat(),
    );
    const needles = new Needles(forms.map((bytes) => ({ bytes, instead: bytes })));
    for (let at = 0; at < text.length; at += 1) {
      const here = forms.filter((bytes) => text.subarray(at, at + bytes.length).equals(bytes));
      const longest = here.sort((a, b) => b.length - a.length)[0] ?? null;
      if (longest) assert.equal(needles.next(text, at), at, `round ${round}`);
      const place = needles.begin(text, at);
      const mayGoOn = forms.some(
        (bytes) =>
          bytes.length > text.length - at && bytes.subarray(0, text.length - at).equals(text.subarray(at)),
      );
      assert.equal(needles.decide(place, text, at), !mayGoOn, `round ${round}`);
      assert.deepEqual(place.best?.bytes ?? null, longest, `round ${round}`);
    }
  }
});

test('a text that holds none of many values is hardly looked at', () => {
  const next = randomFrom(3);
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
  const letters = (length: number) =>
    Buffer.from(Array.from({ length }, () => alphabet[next(alphabet.length)]).join(''));
  const needles = new Needles(
    Array.from({ length: 200 }, () => ({ bytes: letters(40), instead: letters(8) })),
  );
  const text = letters(65_536);
  let places = 0;
  for (let at = needles.next(text, 0); at < text.length; at = needles.next(text, at + 1)) places += 1;
  assert.ok(places < 200, `${places} places`);
});

test('an answer of single bytes is work for each byte, whatever the number of values and what is held of them', async (t) => {
  const values = Array.from({ length: 40 }, (_, index) => ({
    value: Buffer.from(`${'a'.repeat(4000)}${index}`),
    placeholder,
  }));
  const stream = new ScrubStream({ scrubs: scrubsOf(values) });
  const whole = buffer(stream);
  const compare = t.mock.method(Buffer.prototype, 'compare');
  const copied = t.mock.method(Buffer.prototype, 'copy');
  const bytes = 3000;
  for (let count = 0; count < bytes; count += 1) await new Promise((done) => stream.write('a', done));
  assert.ok(compare.mock.callCount() < bytes / 10, `${compare.mock.callCount()} comparisons`);
  // Each piece goes behind what is held, which itself moves only as often as it doubles.
  const moves = copied.mock.callCount() - bytes;
  assert.ok(moves < 20, `moved ${moves} times`);
  stream.end();
  assert.equal((await whole).toString(), 'a'.repeat(bytes));
});

test('a piece that looks like values everywhere lets others have their turn', async () => {
  const stream = new ScrubStream({
    scrubs: scrubsOf([{ value: Buffer.from(`${'a'.repeat(500)}b`), placeholder }]),
  });
  const whole = buffer(stream);
  let turns = 0;
  let isWritten = false;
  const turn = () => {
    turns += 1;
    if (!isWritten) setImmediate(turn);
  };
  setImmediate(turn);
  await new Promise((done) => stream.write('a'.repeat(65_536), done));
  isWritten = true;
  assert.ok(turns > 10, `${turns} turns`);
  stream.end();
  assert.equal((await whole).toString(), 'a'.repeat(65_536));
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
