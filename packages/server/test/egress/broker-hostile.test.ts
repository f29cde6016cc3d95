import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { after, before, beforeEach, test } from 'node:test';
import type { ConnectionOptions } from 'node:tls';
import { brokerWorld, type BrokerWorld } from '../support/broker-world.ts';
import { inTime, until } from '../support/until.ts';

const target = { host: 'api.example.com', port: 443 };

let world: BrokerWorld;
/** One that waits for nobody; a request that is to arrive there has to be made within this time. */
let hasty: BrokerWorld;
const hastyMs = 1_000;
let token: string;
let initial: BrokerWorld['world'];
before(async () => {
  const secrets = [{ key: 'TOKEN', hosts: [target.host], value: Buffer.from('the-value-of-the-token') }];
  world = await brokerWorld(secrets);
  hasty = await brokerWorld(secrets, { headMs: hastyMs });
  initial = { ...world.world };
  token = world.placeholder('TOKEN');
});
after(() => Promise.all([world.close(), hasty.close()]));
beforeEach(() => {
  Object.assign(world.world, initial);
  for (const list of [world.seen, world.reports, world.dialled, hasty.seen]) list.length = 0;
});

/** Also when it was closed with an error. */
const closed = (socket: Socket) =>
  new Promise<void>((resolve) => (socket.closed ? resolve() : socket.once('close', () => resolve())));

/** Writes what a program might, and gives what came until the connection was closed. */
async function spoken(socket: Socket, text: string): Promise<string> {
  let answer = '';
  socket.on('data', (chunk: Buffer) => (answer += chunk.toString('latin1')));
  socket.on('error', () => undefined);
  socket.write(text, 'latin1');
  await closed(socket);
  return answer;
}

const request = (head: string, line = 'GET / HTTP/1.1') => `${line}\r\n${head}\r\n\r\n`;

test('a request that names another host than its connection is refused: fronting does not carry a value elsewhere', async () => {
  const auth = `Authorization: Bearer ${token}`;
  const tries = [
    request(`Host: evil.example.net\r\n${auth}`),
    request(`Host: api.example.com:8443\r\n${auth}`),
    request(`Host: api.example.com\r\nHost: evil.example.net\r\n${auth}`),
    request(`Host: api.example.com@evil.example.net\r\n${auth}`),
    request(auth),
    request(`Host: api.example.com\r\n${auth}`, 'GET https://evil.example.net/ HTTP/1.1'),
    request(`Host: api.example.com\r\n${auth}`, 'GET //evil.example.net:99@/ HTTP/1.1').replace(
      '//',
      'http://',
    ),
  ];
  for (const text of tries) assert.match(await spoken(world.tls(), text), /^HTTP\/1\.1 4\d\d /, text);
  assert.deepEqual(world.seen, []);
});

test('requests in which two readers could see two are refused', async () => {
  const host = 'Host: api.example.com';
  const tries = [
    request(`${host}\r\nContent-Length: 4\r\nTransfer-Encoding: chunked`, 'POST / HTTP/1.1'),
    request(`${host}\r\nTransfer-Encoding: gzip, chunked`, 'POST / HTTP/1.1'),
    request(`${host}\r\nTransfer-Encoding : chunked`, 'POST / HTTP/1.1'),
    request(`${host}\r\nContent-Length: 4\r\nContent-Length: 5`, 'POST / HTTP/1.1'),
    request(`${host}\r\nContent-Length: +4`, 'POST / HTTP/1.1'),
    request(`${host}\r\nX: a\rb`),
    request(`${host}\r\nX: a\nY: b`),
    request(`${host}\r\n folded: ${token}`),
    request(host, 'GET /\u0000 HTTP/1.1'),
    request(host, 'TRACE / HTTP/1.1'),
    request(`${host}\r\nX: ${'a'.repeat(200_000)}`),
    request(`${host}\r\n${`X-Many: ${token}\r\n`.repeat(17).trimEnd()}`),
  ];
  for (const text of tries)
    assert.match(await spoken(world.tls(), text), /^HTTP\/1\.1 4\d\d |^$/, text.slice(0, 99));
  assert.equal(world.seen.length, 0, JSON.stringify(world.seen).slice(0, 500));
  assert.equal(await spoken(world.tls(), request(host, 'CONNECT api.example.com:443 HTTP/1.1')), '');
});

test('what is listed for one connection, or says how the body is framed, is not passed on', async () => {
  const answer = await world.fetch('/', {
    headers: {
      connection: 'close, x-hop',
      'x-hop': token,
      te: 'trailers',
      'proxy-authorization': `Bearer ${token}`,
      'keep-alive': 'timeout=9',
      expect: '100-continue',
    },
    body: 'four',
  });
  assert.equal(answer.status, 200);
  const names = Object.keys(world.seen[0]!.headers)
    .filter((name) => name !== 'accept-encoding')
    .sort();
  assert.deepEqual(names, ['connection', 'host', 'transfer-encoding']);
  assert.equal(world.seen[0]?.body, 'four');
  assert.equal(JSON.stringify(world.seen).includes('the-value'), false);
});

test('clients that speak no TLS, an old one, HTTP/2 only, or break off within it, end alone', async () => {
  const hello = async (options: ConnectionOptions) => {
    const socket = world.tls(target.host, options);
    socket.on('error', () => undefined);
    await closed(socket);
  };
  await hello({ ALPNProtocols: ['h2'] });
  await hello({ maxVersion: 'TLSv1.1', minVersion: 'TLSv1' });
  await hello({ ca: world.outside.ca });
  const record = Buffer.from([22, 3, 1, 0, 5, 1, 0, 0, 1, 0]);
  for (const text of [
    'GET / HTTP/1.1\r\n\r\n',
    record.toString('latin1'),
    '\u0016\u0003\u0001\uffff'.repeat(100),
  ]) {
    assert.doesNotMatch(await spoken(hasty.raw(target), text), /200/);
  }
  const half = world.tls();
  half.once('secureConnect', () => half.destroy());
  await closed(half);
  const cut = world.raw(target);
  cut.write(record);
  cut.destroy();
  assert.equal((await world.fetch('/', { headers: { authorization: `Bearer ${token}` } })).status, 200);
  assert.equal(world.seen.length, 1);
});

test('whoever does not complete TLS or a head in time is cut off, however busily it drips', async () => {
  const drip = async (socket: Socket, text: string) => {
    socket.on('error', () => undefined);
    const timer = setInterval(() => socket.write(text), 20);
    await closed(socket);
    clearInterval(timer);
  };
  const silent = hasty.raw(target);
  silent.write(Buffer.from([22]));
  const slow = hasty.tls();
  slow.write('GET / HTTP/1.1\r\nHost: api.example.com\r\n');
  const idle = hasty.tls();
  idle.write('GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n');
  idle.on('error', () => undefined).resume();
  await inTime('all are closed', Promise.all([closed(silent), drip(slow, 'x-a: b\r\n'), closed(idle)]));
  assert.equal(hasty.seen.length, 1);
});

test('a program that goes away in the middle of an answer or of its body frees the host', async () => {
  let closed = 0;
  world.world.answer = (_message: IncomingMessage, response: ServerResponse) => {
    response.once('close', () => (closed += 1));
    response.write('never ends');
  };
  const reading = world.tls();
  reading.write(request(`Host: api.example.com\r\nAuthorization: Bearer ${token}`));
  await once(reading, 'data');
  reading.destroy();
  await until('the host is free', () => closed === 1);

  const { aborted, begun } = world.world;
  const writing = world.tls();
  writing.write(`${request('Host: api.example.com\r\nContent-Length: 1000', 'POST / HTTP/1.1')}begun`);
  await until('it has begun', () => world.world.begun === begun + 1);
  writing.destroy();
  await until('the host knows', () => world.world.aborted === aborted + 1);
  assert.deepEqual(world.reports, []);
});

test('when the proxy cuts a connection, for its policy or the end of the sandbox, both ends of it are free', async () => {
  let isFree = false;
  world.world.answer = (_message: IncomingMessage, response: ServerResponse) => {
    response.once('close', () => (isFree = true));
    response.write('never ends');
  };
  const socket = world.tls();
  socket.on('error', () => undefined);
  socket.write(request('Host: api.example.com'));
  await once(socket, 'data');
  world.clients.at(-1)!.destroy();
  await closed(socket);
  await until('the host is free', () => isFree);
});

test('a host that breaks off, lies about its answer or says nothing that can be read gives an error and no more', async () => {
  const answers = [
    (socket: Socket) => socket.destroy(),
    (socket: Socket) => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello'),
    (socket: Socket) => socket.end('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n'),
    (socket: Socket) => socket.end('no http at all\r\n\r\n'),
    (socket: Socket) => socket.end(`HTTP/1.1 200 OK\r\nX: ${'y'.repeat(300_000)}\r\n\r\n`),
    (socket: Socket) =>
      socket.end('HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd'),
  ];
  for (const say of answers) {
    world.world.answer = (message: IncomingMessage) => void say(message.socket);
    const text = await spoken(
      world.tls(),
      request(`Host: api.example.com\r\nAuthorization: Bearer ${token}`),
    );
    assert.match(text, /^HTTP\/1\.1 (502 |200 OK[^]*\r\n\r\n$)|^$/, text.slice(0, 300));
  }
  world.world.answer = initial.answer;
  assert.equal((await world.fetch('/')).status, 200);
});

test('of requests that are sent at once the first goes out, and the connection is closed after its answer', async () => {
  const ask = (at: number, more = '') =>
    request(`Host: api.example.com\r\nX-T: ${token}${more}`, `GET /${at} HTTP/1.1`);
  const upgrade = '\r\nConnection: Upgrade\r\nUpgrade: websocket';
  for (const behind of [ask(1), ask(1, upgrade), [...Array(60).keys()].map((at) => ask(at + 1)).join('')]) {
    world.seen.length = 0;
    world.dialled.length = 0;
    const text = await spoken(world.tls(), ask(0) + behind);
    assert.ok(world.seen.length <= 1 && world.dialled.length === 1);
    if (behind.length > 1_000) continue;
    assert.equal(world.world.charges, 0);
    assert.deepEqual(
      [...text.matchAll(/"url":"\/(\d+)"/g)].map((match) => match[1]),
      ['0'],
    );
    assert.match(text, /\r\nConnection: close\r\n/i);
  }
});

test('an intercepted connection that is cut for what comes at once is charged to its sandbox', async () => {
  const before = world.world.charges;
  await spoken(world.tls(), request(`Host: api.example.com`, 'GET / HTTP/1.1').repeat(4_000));
  assert.equal(world.world.charges, before + 1);
});

test('requests of one connection that wait for each answer are all answered', async () => {
  const socket = world.tls();
  let text = '';
  socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
  for (let at = 0; at < 20; at += 1) {
    socket.write(request(`Host: api.example.com\r\nX-T: ${token}`, `GET /${at} HTTP/1.1`));
    await until('it is answered', () => text.endsWith('\r\n0\r\n\r\n'));
    assert.ok(text.includes(`"url":"/${at}"`));
    text = '';
  }
  assert.equal(world.dialled.length, 1);
  socket.destroy();
});
