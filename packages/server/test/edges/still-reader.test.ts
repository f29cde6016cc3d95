import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { test, type TestContext } from 'node:test';
import type { Context } from 'hono';
import { sendBytes } from '../../src/edges/http/bytes.ts';
import type { Env } from '../../src/edges/http/request.ts';
import { silentLog } from '../support/log.ts';

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
  const slow = async function* (outgoing: ServerResponse) {
    yield block;
    // The time of the reader is over, and there was nothing for it.
    await once(outgoing, 'timeout');
    yield block;
  };
  const { port } = await serving(t, (outgoing) => Readable.from(slow(outgoing), { objectMode: false }), 20);
  for (let n = 0; n < 2; n += 1) {
    const answer = await fetch(`http://127.0.0.1:${port}/`);
    assert.equal((await answer.arrayBuffer()).byteLength, 2 * block.length);
  }
});
