import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { test } from 'node:test';
import { maxPieces, StartReader } from '../../src/egress/start.ts';
import { egressWorld, openTunnel } from './fixture.ts';
import { until } from '../support/until.ts';
import { clientHello, randomFrom } from './wire.ts';

const whole = (bytes: Buffer) => new StartReader().push(bytes);

/** One handshake message, cut into records of at most `size` bytes. */
function inRecords(hello: Buffer, size: number): Buffer {
  const message = hello.subarray(5);
  const records: Buffer[] = [];
  for (let at = 0; at < message.length; at += size) {
    const part = message.subarray(at, at + size);
    records.push(Buffer.from([22, 3, 1, part.length >> 8, part.length & 255]), part);
  }
  return Buffer.concat(records);
}

test('what a tunnel begins with is found by the pieces as by the whole', async (t) => {
  const seed = randomInt(2 ** 31);
  t.diagnostic(`seed ${seed}`);
  const next = randomFrom(seed);
  const hello = await clientHello('good.test');
  const texts = [
    'GET / HTTP/1.1\r\n',
    '\r\n\n\r\nBREW /pot HTTP/1.1\r\nHost: x\r\n',
    'BREW /pot with no end',
    'M-SEARCH * HTTP/1.1\r\n',
    'HELLO there\r\n',
    'SSH-2.0-x\r\n',
    `${'A'.repeat(300)} /x HTTP/1.0\r\n`,
    'BREW /\u0085 HTTP/1.1\r\n',
    `BREW /${'\u00e9'.repeat(16_400)}`,
    '\r'.repeat(16_400),
  ];
  for (let round = 0; round < 1_000; round += 1) {
    const isTls = next(3) === 0;
    const bytes = isTls
      ? inRecords(hello, [40, 300, 16_000][next(3)]!)
      : Buffer.from(texts[next(texts.length)]!, 'latin1');
    if (next(3) === 0) bytes[next(Math.min(bytes.length, 80))] = next(256);
    const reader = new StartReader();
    const most = Math.max(40, Math.ceil(bytes.length / 60));
    let kind = 'more';
    for (let at = 0; at < bytes.length && kind === 'more';) {
      const end = Math.min(bytes.length, at + 1 + next(most));
      const start = reader.push(bytes.subarray(at, end));
      assert.deepEqual(reader.bytes, bytes.subarray(0, end));
      const wanted = whole(bytes.subarray(0, end));
      // What is wrong after the heads is told when its record has come whole.
      const isLater = start.kind === 'more' && wanted.kind === 'broken';
      if (!isLater) assert.equal(start.kind, wanted.kind, `round ${round}, ${end} of ${bytes.length}`);
      if (start.kind === 'hello') assert.deepEqual(start, wanted);
      kind = start.kind;
      at = end;
    }
  }
});

test('a beginning in many pieces is looked at in time with its bytes, not once for each piece', async (t) => {
  let bytes = 0;
  const read = Buffer.prototype.toString;
  t.mock.method(Buffer.prototype, 'toString', function (this: Buffer, ...args: [BufferEncoding]) {
    bytes += this.length;
    return read.apply(this, args);
  });
  const joined = t.mock.method(Buffer, 'concat');
  const text = Buffer.from('A'.repeat(250 * 60));
  const reader = new StartReader();
  for (let at = 0; at < text.length; at += 60)
    assert.equal(reader.push(text.subarray(at, at + 60)).kind, 'more');
  assert.ok(bytes < 2 * text.length, `${bytes} bytes were read of ${text.length}`);
  assert.ok(joined.mock.callCount() < 20, `${joined.mock.callCount()} copies`);

  const hello = inRecords(
    await clientHello('good.test', { ALPNProtocols: Array(100).fill('a'.repeat(20)) }),
    16_000,
  );
  joined.mock.resetCalls();
  const tls = new StartReader();
  const size = Math.ceil(hello.length / 250);
  let kind = 'more';
  for (let at = 0; at < hello.length; at += size) kind = tls.push(hello.subarray(at, at + size)).kind;
  assert.equal(kind, 'hello');
  assert.ok(joined.mock.callCount() < 50, `${joined.mock.callCount()} looks`);
});

test('a beginning may come in 256 pieces: after them TLS is refused, and the rest is read as HTTP', async (t) => {
  const hello = await clientHello('good.test', { ALPNProtocols: Array(200).fill('a'.repeat(20)) });
  const pieces = (bytes: Buffer) => {
    const reader = new StartReader();
    const kinds = Array.from({ length: maxPieces }, (_, at) => reader.push(bytes.subarray(at, at + 1)).kind);
    assert.deepEqual([...new Set(kinds.slice(0, -1))], ['more']);
    return kinds.at(-1);
  };
  assert.equal(maxPieces, 256);
  assert.equal(pieces(hello), 'pieces');
  assert.equal(pieces(Buffer.alloc(300, 'A')), 'http');

  const world = await egressWorld(t);
  const { socket } = await openTunnel(world.socketPath, 'good.test:443');
  t.after(() => socket.destroy());
  socket.on('error', () => undefined).resume();
  socket.setNoDelay(true);
  for (let at = 0; at < hello.length && world.refusals.length === 0; at += 1) {
    socket.write(hello.subarray(at, at + 1));
    // So that each comes as a piece of its own: the proxy is in this process, and reads in its turn.
    for (let turn = 0; turn < 3; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  }
  await until('it is refused', () => world.refusals.length > 0);
  assert.equal(world.refusals[0]!.reason, 'not_tls');
});
