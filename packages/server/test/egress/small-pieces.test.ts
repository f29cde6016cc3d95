import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { test, type TestContext } from 'node:test';
import { inBytes, readChunks } from '../support/chunks.ts';
import { until } from '../support/until.ts';
import { egressWorld } from './fixture.ts';

/** A host that is spoken to by hand. */
async function rawHost(t: TestContext, speak: (socket: Socket) => void) {
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined).once('close', () => sockets.delete(socket));
    speak(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  const { port } = server.address() as AddressInfo;
  const { socketPath } = await egressWorld(t, {
    connect: () => connect({ port, host: '127.0.0.1', allowHalfOpen: true }),
  });
  const dial = () => {
    const client = connect(socketPath);
    sockets.add(client);
    const heard = { client, bytes: Buffer.alloc(0) };
    client
      .on('error', () => undefined)
      .on('data', (piece: Buffer) => (heard.bytes = Buffer.concat([heard.bytes, piece])));
    return heard;
  };
  return { dial };
}

const head = (method: string, more = '') =>
  `${method} http://good.test/ HTTP/1.1\r\nHost: good.test\r\n${more}\r\n`;
const body = Array.from({ length: 60_000 }, (_, at) => String.fromCharCode(97 + (at % 26))).join('');

test('an answer in pieces of one byte reaches the program whole, in few pieces', async (t) => {
  const { dial } = await rawHost(t, (socket) =>
    socket.once('data', () =>
      socket.end(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${inBytes(body)}`),
    ),
  );
  const heard = dial();
  heard.client.write(head('GET'));
  const answer = await until('it has come', () => readChunks(heard.bytes));
  assert.ok(answer.body.toString() === body);
  assert.ok(answer.chunks < 600, `${answer.chunks} pieces`);
});

test('a body in pieces of one byte reaches the host whole, in few pieces', async (t) => {
  let sent = Buffer.alloc(0);
  const { dial } = await rawHost(t, (socket) =>
    socket.on('data', (piece: Buffer) => (sent = Buffer.concat([sent, piece]))),
  );
  dial().client.write(head('POST', 'Transfer-Encoding: chunked\r\n') + inBytes(body));
  const arrived = await until('it has come', () => readChunks(sent));
  assert.ok(arrived.body.toString() === body);
  assert.ok(arrived.chunks < 600, `${arrived.chunks} pieces`);
});

test('a large answer passes whole beside those in pieces of one byte, whatever says how long it is', async (t) => {
  const large = Buffer.from(Uint8Array.from({ length: 6_000_000 }, (_, at) => (at * 31) % 253));
  const endless = `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${inBytes(body).slice(0, -5)}`;
  const { dial } = await rawHost(t, (socket) =>
    socket.once('data', (piece) => {
      const text = piece.toString('latin1');
      if (text.includes('x-endless')) {
        socket.write(endless);
        const more = () => {
          while (!socket.destroyed && socket.write('1\r\na\r\n'.repeat(10_000)));
        };
        socket.on('drain', more);
        return more();
      }
      if (text.includes('x-length'))
        socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${large.length}\r\n\r\n`);
      else if (text.includes('x-end')) socket.write('HTTP/1.1 200 OK\r\n\r\n');
      else {
        socket.write(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${large.length.toString(16)}\r\n`);
        socket.write(large);
        return socket.end('\r\n0\r\n\r\n');
      }
      return socket.end(large);
    }),
  );
  const hash = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
  for (let at = 0; at < 3; at += 1) dial().client.write(head('GET', 'x-endless: 1\r\n'));
  for (const field of ['x-length', 'x-end', 'x-chunked']) {
    const heard = dial();
    const ended = once(heard.client, 'end');
    heard.client.write(head('GET', `${field}: 1\r\n`));
    await ended;
    const at = heard.bytes.indexOf('\r\n\r\n') + 4;
    const isChunked = /transfer-encoding: chunked/i.test(heard.bytes.toString('latin1', 0, at));
    const got = isChunked ? readChunks(heard.bytes)!.body : heard.bytes.subarray(at);
    assert.equal(hash(got), hash(large), field);
  }
});
