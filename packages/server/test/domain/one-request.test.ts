import assert from 'node:assert/strict';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { test, type TestContext } from 'node:test';
import { limits } from '../../src/domain/limits.ts';
import { mayGoOn, readInTurn, takeOver } from '../../src/domain/one-request.ts';
import { closed } from '../support/closed.ts';
import { dialling } from '../support/dialling.ts';
import { until } from '../support/until.ts';

type Handle = (message: IncomingMessage, response: ServerResponse) => void;

async function serving(t: TestContext, handle: Handle) {
  const seen = { told: 0, served: 0, cuts: 0, pieces: [] as number[] };
  const server = createServer((message, response) => {
    seen.told += 1;
    if (!mayGoOn(message, response)) return;
    seen.served += 1;
    handle(message, response);
  });
  server.on('connection', (socket) => {
    readInTurn(socket, { onCut: () => (seen.cuts += 1) });
    socket.prependListener('data', (piece) => seen.pieces.push(piece.length));
  });
  return { server, seen, dial: await dialling(t, server) };
}

const get = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n';
const never: Handle = () => undefined;

test('of thousands of requests in one piece the server is told of a few, whether the first is answered late or at once', async (t) => {
  for (const handle of [never, (_, response) => response.end('x')] satisfies Handle[]) {
    const { seen, dial } = await serving(t, handle);
    const client = dial();
    client.resume().write(get.repeat(4_000));
    await closed(client);
    assert.ok(
      seen.pieces.some((bytes) => bytes > 32 * get.length),
      `pieces of ${seen.pieces} bytes`,
    );
    // What came in one go with the one for which it was cut; a head may also end in the next.
    assert.ok(seen.told <= 1 + 512 / get.length + 1, `${seen.told} were told of`);
    assert.deepEqual([seen.served, seen.cuts], [1, 1]);
  }
});

test('what comes behind a request that is large is not parsed, and cuts the connection when it is too much', async (t) => {
  const { seen, dial } = await serving(t, never);
  const client = dial();
  const large = `GET / HTTP/1.1\r\nHost: x\r\nX-Pad: ${'y'.repeat(1_000)}\r\n\r\n`;
  client.resume().write(large.repeat(20));
  await until('all has come', () => seen.pieces.reduce((sum, bytes) => sum + bytes, 0) === 20 * large.length);
  assert.deepEqual([seen.told, seen.served, seen.cuts], [2, 1, 0]);
  client.write('z'.repeat(limits.pipelinedBytes));
  await closed(client);
  assert.deepEqual([seen.told, seen.cuts], [2, 1]);
});

test('a client that waits for each answer is never cut, whatever its bodies look like', async (t) => {
  const { seen, dial } = await serving(t, (message, response) => {
    const pieces: Buffer[] = [];
    message.on('data', (piece: Buffer) => pieces.push(piece));
    message.on('end', () => response.end(Buffer.concat(pieces)));
  });
  const client = dial();
  let text = '';
  client.on('data', (piece: Buffer) => (text += piece.toString('latin1')));
  for (const body of ['', '\r\n'.repeat(100_000), get.repeat(10_000), 'x'.repeat(500_000)]) {
    text = '';
    client.write(`POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n`);
    for (let at = 0; at < body.length; at += 70_001) client.write(body.slice(at, at + 70_001));
    await until('it is answered', () => text.includes('\r\n\r\n') && text.length > body.length + 50);
    assert.ok(text.slice(text.indexOf('\r\n\r\n') + 4) === body, 'the body came as it was sent');
    text = '';
    const pieces = body.match(/[^]{1,60000}/g) ?? [];
    const chunked = pieces.map((piece) => `${piece.length.toString(16)}\r\n${piece}\r\n`).join('');
    client.write(`POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n${chunked}0\r\n\r\n`);
    await until('it is answered', () => text.includes('\r\n\r\n') && text.length > body.length + 50);
    assert.ok(text.slice(text.indexOf('\r\n\r\n') + 4) === body, 'the body came as it was sent');
  }
  assert.deepEqual([seen.told, seen.served, seen.cuts], [8, 8, 0]);
});

test('a body that comes while the answer before it waits to be sent is read once that has gone', async (t) => {
  const large = Buffer.alloc(8 * 1024 * 1024);
  const body = get.repeat(1_000);
  const bodies: string[] = [];
  const { seen, dial } = await serving(t, (message, response) => {
    if (message.method === 'GET') return void response.end(large);
    let text = '';
    message.setEncoding('latin1').on('data', (piece: string) => (text += piece));
    message.on('end', () => response.end(String(bodies.push(text))));
  });
  const client = dial().pause();
  client.write(get);
  await until('the first is answered', () => seen.served === 1);
  client.write(`POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
  await until('the second has begun', () => seen.served === 2);
  assert.deepEqual(bodies, []);
  client.resume();
  await until('it is answered', () => bodies.length === 1);
  assert.ok(bodies[0] === body);
  assert.deepEqual([seen.told, seen.cuts], [2, 0]);
});

test('what takes over a connection gets every byte that came behind its head, in order, however many came with it', async (t) => {
  for (const length of [1, 3_000, 3_001, 5_000, 5_001, 9_001, 13_001, 20_000, 20_001, 150_000]) {
    const { server, seen, dial } = await serving(t, never);
    let all = Buffer.alloc(0);
    server.on('connect', async (message, socket, begin) => {
      assert.ok(mayGoOn(message, null));
      const rest = takeOver(message.socket, begin);
      // As where it is seen first whether the host may be reached.
      await new Promise((resolve) => setImmediate(resolve));
      socket.on('data', (piece: Buffer) => (all = Buffer.concat([all, piece])));
      socket.unshift(rest);
    });
    // In one it looks like heads, in the other not.
    const line = length % 2 === 0 ? '\r\n\r\n' : ',';
    const behind = Buffer.from(Array.from({ length: length / 5 + 1 }, (_, at) => `${at}${line}`).join(''));
    const client = dial();
    client.write(Buffer.concat([Buffer.from('CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n'), behind]));
    await until(`all of ${length} came`, () => all.length >= behind.length);
    assert.ok(all.equals(behind));
    assert.deepEqual([seen.told, seen.cuts], [0, 0]);
  }
});
