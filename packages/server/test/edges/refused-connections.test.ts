import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { connect } from 'node:net';
import { afterEach, beforeEach, test } from 'node:test';
import type { EdgeWorld } from '../support/edge-world.ts';
import { edgeWorld } from '../support/edge-world.ts';
import { inTime, until } from '../support/until.ts';

let world: EdgeWorld;
let port: number;
const clients: Socket[] = [];
let connections: Socket[];
/** The answer to `/raw/held`, and whether its request was found to be broken off. */
let held: { response: ServerResponse; isAborted: boolean } | null;
beforeEach(async () => {
  held = null;
  world = await edgeWorld();
  const origin = await world.listen([
    {
      prefix: '/raw/',
      handle(request, response) {
        const mine = { response, isAborted: false };
        request.once('aborted', () => (mine.isAborted = true));
        request.resume();
        held = mine;
      },
    },
  ]);
  port = Number(new URL(origin).port);
  connections = [];
  world.listener().server.on('connection', (socket: Socket) => connections.push(socket));
});
afterEach(() => {
  for (const socket of [...clients.splice(0), ...connections]) socket.destroy();
  return world.close();
});

/** A client that never ends its side. */
function stubborn(text: string): { socket: Socket; text: string; ended: Promise<string> } {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  clients.push(socket);
  const { promise, resolve } = Promise.withResolvers<string>();
  const client = { socket, text: '', ended: promise };
  socket.on('data', (chunk) => (client.text += chunk.toString()));
  socket.on('error', () => undefined);
  socket.on('end', () => resolve(client.text));
  socket.on('close', () => resolve(client.text));
  socket.write(text);
  return client;
}

/** How many connections the service has. */
function open(): Promise<number> {
  return new Promise((resolve, reject) =>
    world.listener().server.getConnections((error, count) => (error ? reject(error) : resolve(count))),
  );
}

const closed = (what: string) => until(`${what} is closed`, async () => (await open()) === 0, 20_000);

const websocket =
  'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n';
const terminal = () => `GET /sandbox/${world.agent.id}/terminal HTTP/1.1\r\nHost: localhost\r\n${websocket}`;
const twice = () => `${terminal()}Host: other\r\n\r\n`;

test('each connection that is refused is closed after its answer, also when its client keeps its side open', async () => {
  const host = `${world.agent.id}.agents.localhost`;
  for (const [what, request, answer] of [
    ['an upgrade with two hosts', twice(), / 400 /],
    ['an upgrade without a key', `${terminal()}\r\n`, / 401 /],
    ['an upgrade at the host of an agent', `GET /acp HTTP/1.1\r\nHost: ${host}\r\n${websocket}\r\n`, / 401 /],
    ['what is no HTTP', 'NONSENSE\r\n\r\n', / 400 /],
    ['a large head', `GET / HTTP/1.1\r\nHost: a\r\nX: ${'a'.repeat(20_000)}\r\n\r\n`, / 431 /],
    [
      'a broken body',
      `POST /raw/held HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n`,
      / 400 /,
    ],
    ['two hosts', `GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n`, / 400 /],
    ['a miracle', `POST / HTTP/1.1\r\nHost: a\r\nExpect: a miracle\r\nContent-Length: 9\r\n\r\n`, / 417 /],
    ['a tunnel to elsewhere', 'CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n', /^$/],
  ] as const) {
    // All at once, as each is given a while.
    assert.match(await inTime(`${what} is answered`, stubborn(request).ended), answer, what);
  }
  await closed('each');
});

test('a refused connection whose client keeps its side open does not hold a listener that closes', async () => {
  const refused = [twice(), `${terminal()}\r\n`, 'NONSENSE\r\n\r\n'].map(stubborn);
  for (const client of refused)
    assert.match(await inTime('it is answered', client.ended), /^HTTP\/1\.1 40[01] /);
  await inTime('it has closed', world.listener().close(100), 20_000);
});

test('a client that resets a refused connection disturbs nobody', async () => {
  for (const request of [twice(), `${terminal()}\r\n`, 'NONSENSE\r\n\r\n']) {
    const client = stubborn(request);
    await client.ended;
    // One that nobody hears is an exception of the whole service.
    assert.ok(connections.at(-1)!.listenerCount('error') > 0, `the error after ${request} is heard`);
    client.socket.resetAndDestroy();
    await closed('it');
  }
});

test('a client that goes on sending after a broken request gets its answer all the same', async () => {
  for (const request of [twice(), 'NONSENSE\r\n\r\n']) {
    const client = stubborn(request);
    for (let sent = 0; sent < 64; sent += 1) client.socket.write('a'.repeat(65_536));
    assert.match(
      await inTime('it is answered', client.ended),
      /^HTTP\/1\.1 400 .*"code":"invalid_request"\}$/s,
    );
    await closed('it');
  }
});

test('what is broken after a request that is being answered is answered after that', async () => {
  const client = stubborn('GET /raw/held HTTP/1.1\r\nHost: a\r\n\r\n');
  const mine = await until('it is asked', () => held);
  const connection = mine.response.socket!;
  const bytes = connection.bytesRead;
  client.socket.write('NONSENSE\r\n\r\n');
  await until('it has come', () => connection.bytesRead > bytes);
  mine.response.end('the answer');
  assert.match(
    await inTime('both are answered', client.ended),
    /^HTTP\/1\.1 200 .*the answerHTTP\/1\.1 400 .*"code":"invalid_request"\}$/s,
  );
  await closed('it');
});

test('an answer that has begun is cut, not mixed with a refusal, when the body of its request is broken', async () => {
  const client = stubborn('POST /raw/held HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n');
  const mine = await until('it is asked', () => held);
  mine.response.write('so far');
  await until('the answer has begun', () => client.text.includes('so far'));
  client.socket.write('none\r\n');
  const text = await inTime('it is cut', client.ended);
  assert.doesNotMatch(text, / 400 /);
  await until('its request is broken off', () => mine.isAborted);
  await closed('it');
});
