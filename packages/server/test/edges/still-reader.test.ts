import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { test, type TestContext } from 'node:test';
import type { Context } from 'hono';
import { whenStill } from '../../src/domain/still-reader.ts';
import { sendBytes } from '../../src/edges/http/bytes.ts';
import type { Env } from '../../src/edges/http/request.ts';
import { silentLog } from '../support/log.ts';
import { until } from '../support/until.ts';

async function serving(t: TestContext, content: (outgoing: ServerResponse) => Readable, stillMs: number) {
  const sent: Promise<unknown>[] = [];
  const server = createServer((_request, outgoing: ServerResponse) => {
    const c = { env: { outgoing }, req: { path: '/' } } as unknown as Context<Env>;
    sent.push(sendBytes(c, {} as never, silentLog, 200, {}, content(outgoing), stillMs));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, sent };
}

const block = Buffer.alloc(64 * 1024);

test('a reader that takes nothing is cut off, and what was read for it is let go', async (t) => {
  const endless = async function* () {
    for (;;) yield block;
  };
  const content = Readable.from(endless(), { objectMode: false });
  const closed = once(content, 'close').catch(() => undefined);
  const { port, sent } = await serving(t, () => content, 200);
  const socket = connect(port, '127.0.0.1').on('error', () => undefined);
  t.after(() => socket.destroy());
  socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  await once(socket, 'data');
  socket.pause();
  await closed;
  await sent[0];
  assert.ok(content.destroyed);
});

test('a source that takes longer than that is sent whole, and the connection serves one more request', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const slow = async function* (outgoing: ServerResponse) {
    yield block;
    await until('the reader has all', () => outgoing.socket!.writableLength === 0);
    // Its time is over several times, and there was nothing for it.
    t.mock.timers.tick(5 * 30_000);
    yield block;
  };
  const source = (outgoing: ServerResponse) => Readable.from(slow(outgoing), { objectMode: false });
  const { port } = await serving(t, source, 30_000);
  for (let n = 0; n < 2; n += 1) {
    const answer = await fetch(`http://127.0.0.1:${port}/`);
    assert.equal((await answer.arrayBuffer()).byteLength, 2 * block.length);
  }
});

/** A connection with a write under way of which the kernel has not taken all, as Node tells of it. */
function watched(t: TestContext, stillMs: number) {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const socket = { bytesWritten: 1_000_000, writableLength: 300_000, _handle: { writeQueueSize: 200_000 } };
  const cuts: number[] = [];
  let passedMs = 0;
  const allSent = whenStill({ socket } as unknown as ServerResponse, stillMs, () => cuts.push(passedMs));
  const pass = (ms: number) => {
    for (const endMs = passedMs + ms; passedMs < endMs;) {
      passedMs += 100;
      t.mock.timers.tick(100);
    }
  };
  return { socket, cuts, pass, allSent };
}

test('a reader that takes nothing for half a minute is cut off once, then and not a second later', (t) => {
  const { socket, cuts, pass } = watched(t, 30_000);
  pass(10_000);
  // The kernel takes a part of what waits.
  socket._handle.writeQueueSize -= 1;
  pass(30_000);
  assert.deepEqual(cuts, []);
  // The source may still add to it.
  socket.bytesWritten += 1_000;
  socket.writableLength += 1_000;
  pass(60_000);
  assert.equal(cuts.length, 1);
  assert.ok(cuts[0]! > 40_000 && cuts[0]! <= 41_000, `after ${cuts[0]} ms`);
});

test('a reader that takes a little now and then goes on, and so does one for whom nothing waits or all was sent', (t) => {
  const { socket, cuts, pass, allSent } = watched(t, 30_000);
  for (let at = 0; at < 20; at += 1) {
    pass(29_000);
    if (at % 2 === 0) socket._handle.writeQueueSize -= 1;
    else socket.writableLength -= 1;
  }
  const { writableLength } = socket;
  socket.writableLength = 0;
  pass(300_000);
  socket.writableLength = writableLength;
  pass(29_000);
  allSent();
  pass(300_000);
  assert.deepEqual(cuts, []);
});
