import assert from 'node:assert/strict';
import { Duplex } from 'node:stream';
import { test } from 'node:test';
import { PacedSocket, ReadingAccount, SLICE_BYTES } from '../../src/domain/paced.ts';
import { Lane, type Clock } from '../../src/domain/slices.ts';
import { until } from '../support/until.ts';

/** Time that goes on by work and by rests only; rests end when the test says so. */
class FakeClock implements Clock {
  ms = 0;
  rests: number[] = [];
  private end: (() => void) | null = null;

  nowMs(): number {
    return this.ms;
  }

  async rest(ms: number): Promise<void> {
    this.rests.push(ms);
    await new Promise<void>((resolve) => (this.end = resolve));
    this.ms += ms;
  }

  get isResting(): boolean {
    return this.end !== null;
  }

  endRest(): void {
    const { end } = this;
    this.end = null;
    end?.();
  }
}

const round = () => new Promise((resolve) => setImmediate(resolve));

function start() {
  const clock = new FakeClock();
  const lane = new Lane({ ms: 4, rests: 1 }, clock);
  /** Names of who was read from, in order. */
  const order: string[] = [];
  function open(name: string, account: ReadingAccount, msOfSlice: number) {
    const socket = new Duplex({ read() {}, write: (_piece, _encoding, done) => done() });
    const given: Buffer[] = [];
    let isEnded = false;
    socket.on('end', () => (isEnded = true));
    const paced = new PacedSocket(socket, {
      account,
      lane,
      give(piece) {
        const slice = piece.subarray(0, SLICE_BYTES.least);
        order.push(name);
        clock.ms += msOfSlice;
        given.push(slice);
        return slice.length;
      },
    });
    return { socket, paced, whole: () => Buffer.concat(given), isEnded: () => isEnded };
  }
  /** Lets rests end until `isDone`. */
  const run = async (isDone: () => boolean) =>
    until('it is done', async () => {
      for (let at = 0; at < 20 && !isDone(); at += 1) {
        clock.endRest();
        await round();
      }
      return isDone();
    });
  return { clock, order, open, run };
}

const bytesOf = (length: number, step: number) =>
  Buffer.from(Uint8Array.from({ length }, (_, at) => (at * step) % 251));

test('who takes long is read a slice between two rests, in order, and its end is told after the last', async () => {
  const { clock, order, open, run } = start();
  const one = open('a', new ReadingAccount(), 3);
  const sent = bytesOf(20 * SLICE_BYTES.least + 17, 7);
  for (let at = 0; at < sent.length; at += 65_536) one.socket.push(sent.subarray(at, at + 65_536));
  one.socket.push(null);
  await round();
  await round();
  // What it may take at once, and the one with which the rests begin.
  assert.ok(order.length <= 4, `${order.length} slices were given at once`);
  assert.equal(one.isEnded(), false);
  await run(() => one.isEnded());
  assert.ok(one.whole().equals(sent));
  assert.equal(order.length, 21);
  assert.ok(clock.rests.length >= 8, `${clock.rests.length} rests`);
  assert.ok(clock.rests.every((ms) => ms >= 3));
});

test('while others rest, who owes nothing is read at once', async () => {
  const { clock, open } = start();
  const hostile = open('hostile', new ReadingAccount(), 5);
  const honest = open('honest', new ReadingAccount(), 0.005);
  for (let at = 0; at < 8; at += 1) hostile.socket.push(bytesOf(65_536, 3));
  await until('it rests', () => clock.isResting);
  const sent = bytesOf(2_000_000, 5);
  for (let at = 0; at < sent.length; at += 65_536) honest.socket.push(sent.subarray(at, at + 65_536));
  await round();
  assert.ok(clock.isResting);
  assert.ok(honest.whole().equals(sent));
});

test('connections of one account have turns, so that none waits for the end of another', async () => {
  const { order, open, run } = start();
  const account = new ReadingAccount();
  const all = ['a', 'b', 'c'].map((name) => open(name, account, 3));
  for (const { socket } of all) for (let at = 0; at < 4; at += 1) socket.push(bytesOf(65_536, 3));
  await run(() => all.every(({ whole }) => whole().length === 4 * 65_536));
  const turns = order.slice(6, 27);
  for (const name of ['a', 'b', 'c']) {
    const own = turns.filter((one) => one === name).length;
    assert.ok(own >= 5 && own <= 9, `${name} had ${own} of ${turns.length}: ${turns.join('')}`);
  }
});

test('a socket that its reader stops while it waits stays stopped, and goes on where it was', async () => {
  const { clock, order, open, run } = start();
  const one = open('a', new ReadingAccount(), 5);
  const sent = bytesOf(6 * SLICE_BYTES.least, 9);
  one.socket.push(sent);
  await until('it rests', () => clock.isResting);
  one.socket.pause();
  const before = order.length;
  for (let at = 0; at < 20; at += 1) {
    clock.endRest();
    await round();
  }
  assert.equal(order.length, before);
  one.socket.resume();
  await run(() => one.whole().length === sent.length);
  assert.ok(one.whole().equals(sent));
});

test('a piece that is cut into many slices is forgiven no more than one that is not', async () => {
  const owed = (sliceBytes: number, msOfByte: number) => {
    const clock = new FakeClock();
    const charges: number[] = [];
    const account = new ReadingAccount();
    account.charge = (ms) => void charges.push(ms);
    const socket = new Duplex({ read() {} });
    const give = (piece: Buffer) => {
      const bytes = Math.min(piece.length, sliceBytes);
      clock.ms += bytes * msOfByte;
      return bytes;
    };
    const { read } = new PacedSocket(socket, { account, lane: new Lane({ ms: 4, rests: 1 }, clock), give });
    read(Buffer.alloc(64 * 1024));
    return charges.reduce((sum, ms) => sum + ms, 0);
  };
  // Two microseconds for each piece of a body of some dozen bytes.
  const costly = 1e-4;
  assert.ok(owed(SLICE_BYTES.least, costly) > 5);
  assert.ok(Math.abs(owed(512, costly) - owed(SLICE_BYTES.least, costly)) < 0.1);
  assert.equal(owed(512, 5e-6), 0);
});

test('a parser is given little at once of what comes anew, and more only after much that was cheap', () => {
  const clock = new FakeClock();
  const lane = new Lane({ ms: 4, rests: 1 }, clock);
  const socket = new Duplex({ read() {} });
  let msOfByte = 0;
  const sizes: number[] = [];
  const paced: PacedSocket = new PacedSocket(socket, {
    account: new ReadingAccount(),
    lane,
    give(piece) {
      const bytes = Math.min(piece.length, paced.sliceBytes);
      sizes.push(bytes);
      clock.ms += bytes * msOfByte;
      return bytes;
    },
  });
  const { least, most } = SLICE_BYTES;
  for (let at = 0; at < 8; at += 1) paced.read(Buffer.alloc(64 * 1024));
  assert.deepEqual(sizes.slice(0, 16), Array(16).fill(least));
  assert.deepEqual(sizes.slice(-8), Array(8).fill(most));
  msOfByte = 2e-5;
  paced.read(Buffer.alloc(2 * most));
  assert.deepEqual(sizes.slice(-9), [most, ...Array(8).fill(least)]);
});

test('somebody who takes long now and then owes nothing later', () => {
  const account = new ReadingAccount();
  account.charge(0.4);
  assert.equal(account.owes(0), false);
  account.charge(2);
  assert.equal(account.owes(0), true);
  assert.equal(account.owes(190), false);
});
