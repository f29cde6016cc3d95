import assert from 'node:assert/strict';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { test, type TestContext } from 'node:test';
import { mayGoOn, readInTurn, takeOver } from '../../src/domain/one-request.ts';
import { randomFrom } from '../egress/wire.ts';
import { inBytes } from '../support/chunks.ts';
import { closed } from '../support/closed.ts';
import { dialling } from '../support/dialling.ts';
import { until } from '../support/until.ts';

type Handle = (message: IncomingMessage, response: ServerResponse) => void;

/** As the public port is read: what comes behind is kept. */
async function serving(t: TestContext, handle: Handle) {
  const seen = { told: 0, latest: null as Socket | null };
  const server = createServer((message, response) => {
    seen.told += 1;
    if (mayGoOn(message, response)) handle(message, response);
  });
  (server as Server & { httpAllowHalfOpen: boolean }).httpAllowHalfOpen = true;
  server.on('connection', (socket) => {
    seen.latest = socket;
    readInTurn(socket, {});
  });
  server.on('upgrade', async (message, socket, begin) => {
    if (!mayGoOn(message, null)) return;
    const rest = takeOver(message.socket, begin);
    // As where a key is looked up first.
    await new Promise((resolve) => setImmediate(resolve));
    socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n');
    if (rest.length > 0) socket.write(rest);
    socket.pipe(socket);
  });
  const dialled = await dialling(t, server);
  const dial = () => {
    const client = dialled();
    const heard = { client, text: '' };
    client.on('data', (piece) => (heard.text += piece.toString('latin1')));
    return heard;
  };
  return { seen, dial };
}

const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`;
const echoPath: Handle = (message, response) => void response.end(`<${message.url}>`);
const paths = (text: string) => [...text.matchAll(/<\/(\d+)>/g)].map(([, number]) => Number(number));
const numbers = (count: number) => Array.from({ length: count }, (_, at) => at);

test('requests that come at once are all answered in order, one each time that the event loop comes round', async (t) => {
  let rounds = 0;
  let isOver = false;
  const next = () => {
    rounds += 1;
    if (!isOver) setImmediate(next);
  };
  next();
  t.after(() => (isOver = true));
  const roundOf: number[] = [];
  const { seen, dial } = await serving(t, (message, response) => {
    roundOf.push(rounds);
    echoPath(message, response);
  });
  const heard = dial();
  heard.client.write(
    numbers(3_000)
      .map((at) => get(`/${at}`))
      .join(''),
  );
  await until('all are answered', () => paths(heard.text).length === 3_000);
  assert.deepEqual(paths(heard.text), numbers(3_000));
  assert.equal(seen.told, 3_000);
  assert.equal(new Set(roundOf).size, 3_000);
});

test('what comes behind a request that waits is read no further than fits into the socket, and is not asked when its client has gone', async (t) => {
  const held: ServerResponse[] = [];
  const { seen, dial } = await serving(t, (_message, response) => void held.push(response));
  const much = dial();
  much.client.write(get('/0') + get('/1').repeat(200_000));
  const first = await until('the first is asked', () => held[0]);
  const { socket } = first;
  // What the kernel holds beside it is not ours.
  await until('it is not read on', () => socket!.readableLength >= socket!.readableHighWaterMark);
  assert.ok(socket!.bytesRead < 256 * 1024, `${socket!.bytesRead} bytes`);
  first.end('done');
  await until('the next is asked', () => held.length === 2);
  assert.equal(seen.told, 2);
  const few = dial();
  few.client.write(get('/0') + get('/1'));
  const waiting = await until('it is asked', () => held[2]);
  few.client.resetAndDestroy();
  await closed(waiting);
  assert.equal(held.length, 3);
});

test('a client that asks for several things at once and ends its side has all of them', async (t) => {
  const { seen, dial } = await serving(t, (message, response) => {
    setImmediate(() => response.end(`<${message.url}>`));
  });
  const heard = dial();
  heard.client.end(
    numbers(5)
      .map((at) => get(`/${at}`))
      .join(''),
  );
  await closed(heard.client);
  assert.deepEqual([paths(heard.text), seen.told], [numbers(5), 5]);
});

test('the end of a head is seen however it is split, and what stands behind it in the same piece is answered too', async (t) => {
  const { seen, dial } = await serving(t, echoPath);
  for (const cut of ['\r\n|\r|\n', '\r|\n|\r|\n', '\r|\n\r|\n', '\r\n\r|\n', '|\r\n\r\n']) {
    const heard = dial();
    let sent = 0;
    const pieces = `GET /0 HTTP/1.1\r\nHost: x${cut}${get('/1')}`.split('|');
    for (const piece of pieces) {
      heard.client.write(piece);
      sent += piece.length;
      await until('it is read', () => seen.latest?.bytesRead === sent);
    }
    await until('both are answered', () => paths(heard.text).length === 2);
    heard.client.destroy();
    await closed(heard.client);
  }
});

test('what stands behind an upgrade that had to wait for an answer goes to whoever takes it over', async (t) => {
  const held: ServerResponse[] = [];
  const { dial } = await serving(t, (_message, response) => void held.push(response));
  const heard = dial();
  heard.client.write(
    `${get('/0')}GET /up HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n`,
  );
  const first = await until('the first is asked', () => held[0]);
  const behind = 'abcdefgh'.repeat(40_000);
  heard.client.write(behind);
  const { socket } = first;
  await until('as much is read as fits', () => socket!.readableLength >= socket!.readableHighWaterMark);
  first.end('</0>');
  await until('all of it came back', () => heard.text.endsWith(behind));
  assert.match(heard.text, /<\/0>[^]*101 Switching/);
});

test('behind an answer with which the connection ends nothing is asked any more', async (t) => {
  const { seen, dial } = await serving(t, echoPath);
  const heard = dial();
  heard.client.write(`GET /0 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n${get('/1').repeat(50)}`);
  await closed(heard.client);
  assert.deepEqual([paths(heard.text), seen.told], [[0], 1]);
});

test('a request in the same piece as the end of a body of unknown length is answered, or the connection closed after the answer before', async (t) => {
  const { dial } = await serving(t, (message, response) => {
    message.resume().on('end', () => response.end(`<${message.url}>`));
  });
  const heard = dial();
  heard.client.write(
    `POST /0 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n${inBytes('abc')}${get('/1')}`,
  );
  await until('it has ended', () => paths(heard.text).length === 2 || heard.client.destroyed);
  assert.equal(paths(heard.text)[0], 0);
});

test('however the bytes are split, each request, body and byte behind an upgrade arrives as it was sent, in order', async (t) => {
  const seed = Date.now() % 1_000_000;
  t.diagnostic(`seed ${seed}`);
  const random = randomFrom(seed);
  const { dial } = await serving(t, (message, response) => {
    const pieces: Buffer[] = [];
    message.on('data', (piece: Buffer) => pieces.push(piece));
    message.on('end', () => {
      const whole = Buffer.concat(pieces).toString('latin1');
      const answer = () => response.end(`<${message.url} ${whole}>`);
      if (random(3) === 0) setImmediate(answer);
      else answer();
    });
  });
  const bodyOf = () =>
    Array.from({ length: random(4) === 0 ? random(40_000) : random(40) }, () => '\r\n0az'[random(5)]).join(
      '',
    );
  for (let round = 0; round < 25; round += 1) {
    const heard = dial();
    let expected = '';
    const write = async (text: string) => {
      for (let at = 0; at < text.length;) {
        const length = 1 + random(random(3) === 0 ? 3 : 30_000);
        heard.client.write(text.slice(at, at + length), 'latin1');
        at += length;
        if (random(3) === 0) await new Promise((resolve) => setImmediate(resolve));
      }
    };
    const answers = () => heard.text.replace(/HTTP\/1\.1 200[^]*?\r\n\r\n/g, '');
    for (let at = 0; at < 8; at += 1) {
      const body = bodyOf();
      const isWhole = random(2) === 0;
      if (random(3) === 0) {
        await write(get(`/${at}`));
        expected += `</${at} >`;
      } else if (isWhole) {
        await write(`PUT /${at} HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
        expected += `</${at} ${body}>`;
      } else {
        const text = body.slice(0, 5_000);
        await write(`PUT /${at} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n${inBytes(text)}`);
        expected += `</${at} ${text}>`;
        // Behind such a body a request is not kept.
        await until('it is answered', () => answers().length >= expected.length);
      }
    }
    const behind = bodyOf();
    await write(
      `GET /up HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\nX: ${'y'.repeat(random(900))}\r\n\r\n${behind}`,
    );
    const [asked, upgraded] = await until(`round ${round} has come whole`, () => {
      const parts = heard.text.split(/HTTP\/1\.1 101[^]*?\r\n\r\n/);
      return parts.length === 2 && parts[1]!.length >= behind.length ? parts : null;
    });
    assert.ok(asked!.replace(/HTTP\/1\.1 200[^]*?\r\n\r\n/g, '') === expected, `round ${round}`);
    assert.ok(upgraded === behind, `round ${round}, behind the upgrade`);
    heard.client.destroy();
  }
});
