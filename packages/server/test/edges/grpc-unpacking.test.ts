import assert from 'node:assert/strict';
import { test } from 'node:test';
import { status as codes } from '@grpc/grpc-js';
import { Flight } from '../../src/domain/flight.ts';
import { limits } from '../../src/domain/limits.ts';
import { boundUnpacking } from '../../src/edges/a2a/grpc/unpacking.ts';

const most = { smallBytes: 1_000, ofOrg: 2 * limits.a2aBodyBytes, ofAll: 3 * limits.a2aBodyBytes };
const refusal = { code: codes.RESOURCE_EXHAUSTED, details: 'too many' };

/** A call as the library has it, whose unpacking ends when the test says so. */
function unpacker(flight: Flight) {
  const asked: string[] = [];
  const unpacking = Promise.withResolvers<Buffer>();
  const call = {
    decompressMessage(framed: Buffer, encoding: string): Buffer | Promise<Buffer> {
      assert.equal(this, call);
      asked.push(encoding);
      return encoding === 'identity' ? framed.subarray(5) : unpacking.promise;
    },
  };
  boundUnpacking(
    call,
    () => flight.open('a'),
    () => ({ ...refusal, metadata: null as never }),
  );
  return { call, asked, unpacking };
}
const framed = (bytes: number) => Buffer.alloc(5 + bytes);

test('what a message may become at most is held until it is unpacked, or its unpacking has failed', async () => {
  for (const end of ['resolve', 'reject'] as const) {
    const flight = new Flight(most);
    const { call, unpacking } = unpacker(flight);
    const made = call.decompressMessage(framed(100_000), 'gzip');
    assert.equal(flight.bytesOf('a'), limits.a2aBodyBytes - 100_000);
    if (end === 'resolve') unpacking.resolve(Buffer.alloc(3));
    else unpacking.reject(new Error('broken'));
    await (end === 'resolve' ? made : assert.rejects(async () => made, /broken/));
    assert.equal(flight.bytes, 0);
  }
});

test('of a little no more is held than can be made of it', () => {
  const flight = new Flight(most);
  void unpacker(flight).call.decompressMessage(framed(2_000), 'deflate');
  assert.equal(flight.bytes, 2_000 * 1_031);
});

test('a message for which there is no room is not unpacked', async () => {
  const flight = new Flight(most);
  flight.open('a').add(most.ofOrg - 100_000);
  const { call, asked } = unpacker(flight);
  await assert.rejects(
    async () => call.decompressMessage(framed(1_000), 'gzip'),
    ({ code, details }) => code === refusal.code && details === refusal.details,
  );
  assert.deepEqual(asked, []);
  assert.equal(flight.bytes, most.ofOrg - 100_000);
});

test('what is not compressed holds nothing here', async () => {
  const flight = new Flight(most);
  const { call } = unpacker(flight);
  const made = call.decompressMessage(framed(100_000), 'identity');
  assert.equal(flight.bytes, 0);
  assert.equal((await made).length, 100_000);
});

test('a second message is not unpacked', async () => {
  const flight = new Flight(most);
  const { call, asked } = unpacker(flight);
  void call.decompressMessage(framed(100_000), 'gzip');
  await assert.rejects(
    async () => call.decompressMessage(framed(100_000), 'gzip'),
    ({ code }) => code === codes.UNIMPLEMENTED,
  );
  assert.deepEqual(asked, ['gzip']);
  assert.equal(flight.bytes, limits.a2aBodyBytes - 100_000);
});
