import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { status as codes } from '@grpc/grpc-js';
import { Flight } from '../../src/domain/flight.ts';
import { limits } from '../../src/domain/limits.ts';
import { MessageBytes } from '../../src/edges/a2a/grpc/message-bytes.ts';
import { Places } from '../../src/edges/a2a/grpc/places.ts';
import { boundUnpacking } from '../../src/edges/a2a/grpc/unpacking.ts';

const refusal = { code: codes.RESOURCE_EXHAUSTED, details: 'too many' };
const hasGone = { code: codes.CANCELLED, details: 'gone' };
const bomb = Buffer.alloc(limits.a2aBodyBytes);
const framed = (bytes: number) => Buffer.alloc(5 + bytes);

const placesFor = (total: number) =>
  new Places({ total, waitingOfOrg: limits.a2aGrpcWaitingToUnpack, waitMs: 60_000 });

/** Calls as the library has them, whose unpacking ends when the test says so. */
function calls({ places = placesFor(1), flight = new Flight() } = {}) {
  const asked: string[] = [];
  let atOnce = 0;
  let mostAtOnce = 0;
  /** `made`: ends with what is unpacked, or fails. */
  const call = (name: string, made: () => Promise<Buffer>, orgId = 'a', keyId = orgId) => {
    const body = flight.open(orgId);
    const gone = new AbortController();
    const it = {
      async decompressMessage(sent: Buffer, encoding: string): Promise<Buffer> {
        assert.equal(this, it);
        asked.push(name);
        if (encoding === 'identity') return sent.subarray(5);
        atOnce += 1;
        mostAtOnce = Math.max(mostAtOnce, atOnce);
        try {
          return await made();
        } finally {
          atOnce -= 1;
        }
      },
    };
    const hold = (bytes: number): void => {
      try {
        body.add(bytes);
      } catch {
        // oxlint-disable-next-line no-throw-literal -- as the library has it
        throw refusal;
      }
    };
    boundUnpacking(it, {
      enter: (sentBytes) => places.enter({ orgId, keyId }, sentBytes, gone.signal),
      hold,
    });
    return {
      unpack: (sent = framed(6_000), encoding = 'gzip') => it.decompressMessage(sent, encoding),
      leave: () => gone.abort(hasGone),
    };
  };
  return { call, asked, places, flight, mostAtOnce: () => mostAtOnce };
}

test('of 500 bombs at once never more are unpacked at the same time than there are places, and those beyond the bound of their organisation are refused', async () => {
  const { call, asked, places, flight, mostAtOnce } = calls({ places: placesFor(limits.a2aGrpcUnpackings) });
  const made = async () => {
    await nextTurn();
    return bomb;
  };
  const ends = await Promise.allSettled(Array.from({ length: 500 }, () => call('bomb', made).unpack()));
  const { ofOrg } = limits.bodiesInFlight;
  const fits = Math.floor(ofOrg / bomb.length);
  const refused = ends.filter((end) => end.status === 'rejected').map(({ reason }) => reason as unknown);
  assert.deepEqual([asked.length, mostAtOnce(), limits.a2aGrpcUnpackings], [500, 8, 8]);
  assert.deepEqual([refused.length, new Set(refused)], [500 - fits, new Set([refusal])]);
  assert.deepEqual([flight.bytesOf('a'), places.taken], [fits * bomb.length, 0]);
});

test('what waits holds nothing of what it may become', async () => {
  const { call, flight } = calls();
  const first = Promise.withResolvers<Buffer>();
  const ends = [call('a', () => first.promise), call('b', async () => Buffer.alloc(70_000))].map((x) =>
    x.unpack(),
  );
  await nextTurn();
  assert.equal(flight.bytes, 0);
  first.resolve(Buffer.alloc(80_000));
  await Promise.all(ends);
  assert.equal(flight.bytes, 150_000);
});

test('those of an organisation come in their order, and organisations in turn', async () => {
  const { call, asked } = calls();
  const small = async () => Buffer.alloc(1);
  const names = ['a1', 'a2', 'a3', 'a4', 'b1', 'b2', 'c1'];
  await Promise.all(names.map((name) => call(name, small, name[0]).unpack()));
  assert.deepEqual(asked, ['a1', 'a2', 'b1', 'c1', 'a3', 'b2', 'a4']);
});

test('a key waits for none of the many messages of another of its organisation, and an organisation for none of the many keys of another', async () => {
  const { call, asked } = calls();
  const small = async () => Buffer.alloc(1);
  const ends = [];
  for (let at = 0; at < 200; at += 1) ends.push(call(`a${at}`, small, 'a', `a-key-${at % 20}`).unpack());
  ends.push(call('honest', small, 'a', 'honest').unpack(), call('other', small, 'b').unpack());
  ends.push(call('little', small, 'a', 'little').unpack(framed(30)));
  await Promise.all(ends);
  assert.equal(asked.indexOf('little'), 1, 'after the one that was there');
  assert.ok(asked.indexOf('other') <= 2, 'in turn with its whole organisation');
  assert.ok(asked.indexOf('honest') <= 23, 'after one of each key that came before');
  // Who comes later waits for nobody's second turn either.
  const later = Array.from({ length: 200 }, (_, at) => call(`c${at}`, small, 'a', 'a-key-0').unpack());
  while (asked.length < 300) await nextTurn();
  asked.length = 0;
  await Promise.all([call('late', small, 'a', 'late').unpack(), ...later]);
  assert.ok(asked.indexOf('late') <= 1, asked.slice(0, 9).join(' '));
});

test('of one key half of what may wait of its organisation waits, the next is refused at once with when to come again, and other keys find room', async () => {
  const places = new Places({ total: 1, waitingOfOrg: 8, waitMs: 60_000 });
  const gone = new AbortController();
  const giveBack = await places.enter({ orgId: 'a', keyId: 'first' }, 6_000, gone.signal);
  const waits = (keyId: string, orgId = 'a') => {
    const waiting = places.enter({ orgId, keyId }, 6_000, gone.signal);
    waiting.catch(() => undefined);
    return waiting;
  };
  const refused = ({ code, retryAfterSeconds }: { code: string; retryAfterSeconds: number }) =>
    code === 'rate_limited' && retryAfterSeconds === 1;
  const waiting = Array.from({ length: 4 }, () => waits('many'));
  await assert.rejects(waits('many'), refused);
  waiting.push(waits('b'), waits('b'));
  await assert.rejects(waits('b'), refused);
  waiting.push(waits('c'), waits('many', 'z'));
  assert.equal(places.waiting, 8);
  gone.abort(hasGone);
  for (const one of waiting) await assert.rejects(one, hasGone);
  assert.deepEqual([places.waiting, places.taken], [0, 1]);
  // What waits no more counts no more.
  const again = new AbortController();
  const second = places.enter({ orgId: 'a', keyId: 'many' }, 6_000, again.signal);
  giveBack();
  (await second)();
  assert.deepEqual([places.waiting, places.taken], [0, 0]);
});

test('who waited too long is told when to come again, and waits no more', async () => {
  const places = new Places({ total: 1, waitingOfOrg: 8, waitMs: 1 });
  const { signal } = new AbortController();
  const giveBack = await places.enter({ orgId: 'a', keyId: 'a' }, 6_000, signal);
  await assert.rejects(places.enter({ orgId: 'a', keyId: 'a' }, 6_000, signal), {
    code: 'unavailable',
    retryAfterSeconds: 1,
  });
  giveBack();
  assert.deepEqual([places.waiting, places.taken], [0, 0]);
});

test('small messages count until they are answered or large, no key takes what is left for others, and large ones of others leave them room', () => {
  const flight = new Flight({ smallBytes: 64 * 1024, ofOrg: 200_000, ofAll: 300_000 });
  const bytes = new MessageBytes(flight, { ofOrg: 100_000, ofAll: 130_000 });
  const open = (keyId: string, orgId = 'a') => bytes.open({ orgId, keyId });
  const rateLimited = { code: 'rate_limited', retryAfterSeconds: 1 };
  const [one, two, three] = [open('k'), open('k'), open('other')];
  one.add(30_000);
  two.add(20_000);
  assert.throws(() => two.add(1), rateLimited);
  three.add(25_000);
  assert.throws(() => open('a', 'b').add(60_000), { code: 'unavailable', retryAfterSeconds: 1 });
  assert.deepEqual([bytes.smallBytes, flight.bytes], [75_000, 0]);
  // It became large, and counts with those from its first byte.
  one.add(40_000);
  assert.deepEqual([bytes.smallBytes, flight.bytes], [45_000, 70_000]);
  open('x', 'z').add(200_000);
  open('x', 'y').add(10_000);
  for (const hold of [one, two, three, three]) hold.drop();
  three.add(5_000);
  assert.deepEqual([bytes.smallBytes, flight.bytes], [10_000, 200_000]);
});

test('a waiting call whose client has left is not unpacked, and its place is given on', async () => {
  const { call, asked, places } = calls();
  const first = Promise.withResolvers<Buffer>();
  const small = async () => Buffer.alloc(1);
  const one = call('one', () => first.promise).unpack();
  const left = call('left', small);
  const end = assert.rejects(left.unpack(), hasGone);
  const last = call('last', small).unpack();
  left.leave();
  await end;
  first.resolve(Buffer.alloc(1));
  await Promise.all([one, last]);
  assert.deepEqual([asked, places.taken], [['one', 'last'], 0]);
  const late = call('late', small);
  late.leave();
  await assert.rejects(late.unpack(), hasGone);
  assert.deepEqual([asked, places.taken], [['one', 'last'], 0]);
});

test('a place is held until what was begun is unpacked, or that has failed, although the client has left', async () => {
  for (const end of ['resolve', 'reject'] as const) {
    const { call, asked, places } = calls();
    const first = Promise.withResolvers<Buffer>();
    const one = call('one', () => first.promise);
    const made = one.unpack();
    const next = call('next', async () => Buffer.alloc(1)).unpack();
    one.leave();
    await nextTurn();
    assert.deepEqual([asked, places.taken], [['one'], 1]);
    if (end === 'resolve') first.resolve(Buffer.alloc(3));
    else first.reject(new Error('broken'));
    await (end === 'resolve' ? made : assert.rejects(made, /broken/));
    await next;
    assert.deepEqual([asked, places.taken], [['one', 'next'], 0]);
  }
});

test('what is not compressed waits for nothing and is not counted here', async () => {
  const { call, flight } = calls({ places: placesFor(0) });
  const made = await call('plain', () => assert.fail()).unpack(framed(100_000), 'identity');
  assert.deepEqual([made.length, flight.bytes], [100_000, 0]);
});

test('a second message is not unpacked', async () => {
  const { call, asked } = calls({ places: placesFor(2) });
  const one = call('one', async () => Buffer.alloc(1));
  const first = one.unpack();
  await assert.rejects(one.unpack(), ({ code }) => code === codes.UNIMPLEMENTED);
  await first;
  assert.deepEqual(asked, ['one']);
});
