import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DomainError } from '../../src/domain/errors.ts';
import { type BodyHold, Flight } from '../../src/domain/flight.ts';
import { limits } from '../../src/domain/limits.ts';
import { seeded } from '../support/scripts.ts';

const most = { smallBytes: 10, ofOrg: 100, ofAll: 250 };
const refusedAs = (code: string) => (error: unknown) =>
  error instanceof DomainError && error.code === code && error.retryAfterSeconds === 1;

test('a body counts from its first byte once it is not small, as it grows, until it is dropped', () => {
  const flight = new Flight(most);
  const hold = flight.open('a');
  hold.add(10);
  assert.equal(flight.bytes, 0);
  hold.add(1);
  assert.deepEqual([flight.bytes, flight.bytesOf('a')], [11, 11]);
  hold.add(50);
  assert.deepEqual([flight.bytes, flight.bytesOf('a')], [61, 61]);
  hold.drop();
  hold.drop();
  assert.deepEqual([flight.bytes, flight.bytesOf('a')], [0, 0]);
  // What comes behind the end of its request.
  hold.add(60);
  assert.equal(flight.bytes, 0);
});

test('what is not of the body counts no more', () => {
  const flight = new Flight(most);
  const hold = flight.open('a');
  for (let at = 0; at < 1_000; at += 1) {
    hold.add(6);
    hold.remove(6);
  }
  hold.add(20);
  hold.remove(6);
  assert.equal(flight.bytes, 14);
  hold.remove(6);
  assert.equal(flight.bytes, 0);
  hold.drop();
  assert.equal(flight.bytes, 0);
});

test('names and values count as what is made of them, beside the bytes of their body', () => {
  const flight = new Flight({ smallBytes: 200, ofOrg: 1_000, ofAll: 1_000 });
  const hold = flight.open('a');
  hold.add(72);
  hold.addValues(2);
  assert.equal(flight.bytes, 0);
  hold.addValues(1);
  assert.equal(flight.bytes, 72 + 3 * 64);
  assert.throws(() => hold.addValues(12), refusedAs('rate_limited'));
  assert.equal(flight.bytes, 72 + 3 * 64);
  hold.drop();
  assert.equal(flight.bytes, 0);
});

test('twenty bodies of 20,000 numbers of one organisation fit', () => {
  const flight = new Flight();
  for (let at = 0; at < 20; at += 1) {
    const hold = flight.open('a');
    hold.add(160_000);
    hold.addValues(20_003);
  }
});

test('an organisation has its bound to the byte, and one that has reached it takes nothing from another', () => {
  const flight = new Flight(most);
  const hold = flight.open('a');
  hold.add(60);
  hold.add(40);
  assert.throws(() => hold.add(1), refusedAs('rate_limited'));
  assert.throws(() => flight.open('a').add(11), refusedAs('rate_limited'));
  flight.open('a').add(10);
  const other = flight.open('b');
  other.add(100);
  assert.deepEqual([flight.bytesOf('a'), flight.bytesOf('b'), flight.bytes], [100, 100, 200]);
  hold.drop();
  flight.open('a').add(100);
});

test('the node has its bound too, and small bodies are taken beyond it', () => {
  const flight = new Flight(most);
  for (const org of ['a', 'b']) flight.open(org).add(100);
  const last = flight.open('c');
  last.add(50);
  assert.throws(() => last.add(1), refusedAs('unavailable'));
  assert.equal(flight.bytes, 250);
  flight.open('d').add(10);
  assert.equal(flight.bytes, 250);
});

test('a part of an organisation has its bound, which a body that is allowed to be larger may fill, and takes nothing from another part', () => {
  const flight = new Flight({ ...most, ofPart: 50 });
  const first = flight.open('a', { partId: 'one' });
  first.add(50);
  assert.throws(() => first.add(1), refusedAs('rate_limited'));
  const larger = { partId: 'one', ofPartAtLeast: 70 };
  assert.throws(() => flight.open('a', larger).add(21), refusedAs('rate_limited'));
  flight.open('a', larger).add(20);
  flight.open('a', { partId: 'two' }).add(30);
  assert.throws(() => flight.open('a', { partId: 'three' }).add(11), refusedAs('rate_limited'));
  flight.open('b', { partId: 'four' }).add(50);
  first.drop();
  flight.open('a', { partId: 'one' }).add(30);
  assert.deepEqual([flight.bytesOf('a'), flight.bytes], [80, 130]);
});

test('whoever has some tenths of the bound of all leaves the others', () => {
  const flight = new Flight({ smallBytes: 10, ofOrg: 100, ofAll: 200 });
  flight.open('a').add(100);
  const hold = flight.open('b', { tenthsOfAll: 9 });
  hold.add(80);
  assert.throws(() => hold.add(1), refusedAs('unavailable'));
  flight.open('b').add(20);
});

test('where small bodies are counted they have a bound of their own, and one that grows counts with the large ones', () => {
  const flight = new Flight({ ...most, ofSmall: { ofPart: 15, ofOrg: 20, ofAll: 30 } });
  const hold = flight.open('a', { partId: 'one' });
  hold.add(10);
  assert.deepEqual([flight.smallBytes, flight.bytes], [10, 0]);
  assert.throws(() => flight.open('a', { partId: 'one' }).add(6), refusedAs('rate_limited'));
  const other = flight.open('a', { partId: 'two' });
  other.add(10);
  assert.throws(() => flight.open('a', { partId: 'three' }).add(1), refusedAs('rate_limited'));
  const last = flight.open('b');
  last.add(10);
  assert.throws(() => flight.open('c').add(1), refusedAs('unavailable'));
  hold.add(1);
  assert.deepEqual([flight.smallBytes, flight.bytes], [20, 11]);
  // Whatever gets less is never refused, and a large one that did is not counted twice.
  flight.open('c').add(10);
  hold.remove(5);
  assert.deepEqual([flight.smallBytes, flight.bytes], [36, 0]);
  hold.remove(1);
  for (const one of [hold, other, last]) one.drop();
  assert.deepEqual([flight.smallBytes, flight.bytes], [10, 0]);
});

test('forty prompts of 1.5 MB of one organisation fit, and the bounds leave room for four organisations at theirs', () => {
  const flight = new Flight();
  for (let at = 0; at < 40; at += 1) flight.open('a').add(1_500_000);
  const { ofOrg, ofAll } = limits.bodiesInFlight;
  assert.deepEqual([ofOrg, ofAll], [128 * 1024 * 1024, 512 * 1024 * 1024]);
  const full = new Flight();
  for (const org of ['a', 'b', 'c', 'd']) full.open(org).add(ofOrg);
  assert.throws(() => full.open('e').add(100_000), refusedAs('unavailable'));
});

test('in whatever order bodies grow, are refused and end, the sums are those of what is held, never above the bounds, and nothing at the end', () => {
  const seed = Date.now();
  const draw = seeded(seed);
  const pick = (count: number) => Math.floor(draw() * count);
  for (let round = 0; round < 200; round += 1) {
    const flight = new Flight(most);
    const open: { org: string; bytes: number; hold: BodyHold }[] = [];
    const counted = (org?: string) =>
      open
        .filter((one) => (org === undefined || one.org === org) && one.bytes > most.smallBytes)
        .reduce((sum, one) => sum + one.bytes, 0);
    for (let step = 0; step < 100; step += 1) {
      const one = open[pick(open.length + 1)];
      const what = draw();
      if (!one) {
        const org = 'abcd'[pick(4)]!;
        open.push({ org, bytes: 0, hold: flight.open(org) });
      } else if (what < 0.6) {
        const bytes = pick(40);
        const due = one.bytes + bytes > most.smallBytes ? one.bytes + bytes : 0;
        const had = one.bytes > most.smallBytes ? one.bytes : 0;
        const fits =
          due <= had || (counted(one.org) - had + due <= most.ofOrg && counted() - had + due <= most.ofAll);
        if (fits) {
          one.hold.add(bytes);
          one.bytes += bytes;
        } else assert.throws(() => one.hold.add(bytes), DomainError, `seed ${seed}`);
      } else if (what < 0.7) {
        const bytes = pick(one.bytes + 1);
        one.hold.remove(bytes);
        one.bytes -= bytes;
      } else {
        one.hold.drop();
        if (draw() < 0.5) one.hold.drop();
        open.splice(open.indexOf(one), 1);
      }
      assert.equal(flight.bytes, counted(), `seed ${seed}`);
      for (const org of 'abcd') assert.equal(flight.bytesOf(org), counted(org), `seed ${seed}`);
    }
    for (const { hold } of open) hold.drop();
    assert.equal(flight.bytes, 0, `seed ${seed}`);
  }
});
