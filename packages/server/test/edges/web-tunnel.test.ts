import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { connect, createServer, type AddressInfo } from 'node:net';
import { Duplex } from 'node:stream';
import { test } from 'node:test';
import { tunnel } from '../../src/edges/web/tunnel.ts';
import { closed } from '../support/closed.ts';
import { inTime, until } from '../support/until.ts';

/** A client's connection on which nothing leaves until the client reads. */
class SlowClient extends Duplex {
  got = '';
  #isReading = false;
  #done: (() => void) | null = null;

  override _read(): void {}

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.got += chunk.toString('latin1');
    if (this.#isReading) done();
    else this.#done = done;
  }

  begin(): void {
    this.#isReading = true;
    this.#done?.();
  }
}

test('what a server wrote to a WebSocket before it closed reaches a client that reads slowly, and then that is closed', async (t) => {
  const server = createServer((socket) => {
    socket.once('data', () => {
      socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
      socket.end('the last words');
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const connection = connect((server.address() as AddressInfo).port, '127.0.0.1');
  await once(connection, 'connect');
  const client = new SlowClient();
  const over = closed(client);
  const closeMs = 10;
  await tunnel(
    {
      request: { method: 'GET', headers: {}, rawHeaders: [] } as unknown as IncomingMessage,
      target: '/',
      told: { origin: 'http://a.localhost', clientAddress: '127.0.0.1', requestId: 'r', isKeyed: true },
      head: {},
      maxHeadBytes: 16_384,
      times: { answerMs: 120_000, idleMs: 120_000, closeMs },
    },
    client,
    Buffer.alloc(0),
    connection,
  );
  await until('the server has closed', () => connection.closed);
  const closedMs = performance.now();
  await until('it has taken its time', () => performance.now() - closedMs > 10 * closeMs);
  client.begin();
  await over;
  assert.match(client.got, /^HTTP\/1\.1 101 [^]*\r\n\r\nthe last words$/);
});

test("a server's refusal of a WebSocket that does not end is not waited for, and one that breaks off is no fault of the service", async (t) => {
  for (const [isCut, code] of [
    [false, 'gateway_timeout'],
    [true, 'bad_gateway'],
  ] as const) {
    const server = createServer((socket) => {
      socket.on('error', () => undefined);
      socket.once('data', () => {
        const begin = 'HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nno,\r\n';
        if (isCut) socket.end(begin);
        else socket.write(begin);
      });
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    t.after(() => server.close());
    const connection = connect((server.address() as AddressInfo).port, '127.0.0.1');
    t.after(() => connection.destroy());
    await once(connection, 'connect');
    const refused = tunnel(
      {
        request: { method: 'GET', headers: {}, rawHeaders: [] } as unknown as IncomingMessage,
        target: '/',
        told: { origin: 'http://a.localhost', clientAddress: '127.0.0.1', requestId: 'r', isKeyed: true },
        head: {},
        maxHeadBytes: 16_384,
        times: { answerMs: isCut ? 120_000 : 1_000, idleMs: 120_000, closeMs: 10 },
      },
      new SlowClient(),
      Buffer.alloc(0),
      connection,
    );
    await assert.rejects(inTime('it is refused', refused, 20_000), { code });
  }
});
