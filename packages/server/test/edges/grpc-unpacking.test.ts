import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { status as codes } from '@grpc/grpc-js';
import { Flight } from '../../src/domain/flight.ts';
import { KeyGate } from '../../src/domain/key-gate.ts';
import { limits } from '../../src/domain/limits.ts';
import { boundUnpacking } from '../../src/edges/a2a/grpc/unpacking.ts';

const refusal = { code: codes.RESOURCE_EXHAUSTED, details: 'too many' };
const hasGone = { code: codes.CANCELLED, details: 'gone' };
const bomb = Buffer.alloc(limits.a2aBodyBytes);
const framed = (bytes: number) => Buffer.alloc(5 + bytes);

const placesFor = (most: number) => new KeyGate({ total: most, perKey: most, maxWaiting: Infinity });

/** Calls as the library has them, whose unpacking ends when the test says so. */
function calls({ places = placesFor(1), flight = new Flight() } = {}) {
  const asked: string[] = [];
  let atOnce = 0;
  let mostAtOnce = 0;
  /** `made`: ends with what is unpacked, or fails. */
  const call = (name: string, made: () => Promise<Buffer>, orgId = 'a') => {
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
    boundUnpacking(it, { places, orgId, gone: gone.signal, hold });
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
