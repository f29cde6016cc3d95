import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { after, before, beforeEach, test } from 'node:test';
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { brokerWorld, type BrokerWorld } from '../support/broker-world.ts';
import { inBytes, readChunks } from '../support/chunks.ts';
import { until } from '../support/until.ts';
import { closed } from '../support/closed.ts';

const value = 'ghp_"q/w+e&r<t>Ä 1234567890';
const bytes = (text: string) => Buffer.from(text);
const latin1 = (text: string) => bytes(text).toString('latin1');
const base64 = (text: string) => Buffer.from(text, 'latin1').toString('base64');

const secrets = [
  { key: 'TOKEN', hosts: ['api.example.com', 'git.example.com:8443'], value: bytes(value) },
  { key: 'OTHER', hosts: ['other.example.com', '*.example.org'], value: bytes('other-value-0123') },
];

let world: BrokerWorld;
let token: string;
let other: string;
let initial: BrokerWorld['world'];
before(async () => {
  world = await brokerWorld(secrets);
  initial = { ...world.world };
  token = world.placeholder('TOKEN');
  other = world.placeholder('OTHER');
});
after(() => world.close());
beforeEach(() => {
  Object.assign(world.world, initial);
  for (const list of [world.seen, world.reports, world.dialled]) list.length = 0;
});

const reasons = () => world.reports.map(({ reason }) => reason);
const bearer = (placeholder = token) => ({ authorization: `Bearer ${placeholder}` });

test('a placeholder in a header becomes the value on its way to a listed host, and a header without one stays', async () => {
  const headers = {
    Authorization: `Bearer ${token}`,
    'X-Two': [`a ${token} b ${token}`, `plain ${token.slice(1)}`],
  };
  const answer = await world.fetch('/user?x=1', { headers });
  assert.equal(answer.status, 200);
  assert.deepEqual(world.seen[0]?.rawHeaders.slice(0, 8), [
    ...['Host', 'api.example.com', 'Authorization', `Bearer ${latin1(value)}`],
    ...['X-Two', `a ${latin1(value)} b ${latin1(value)}`, 'X-Two', `plain ${token.slice(1)}`],
  ]);
  assert.equal(world.seen[0]?.url, '/user?x=1');
  assert.deepEqual(world.dialled, [{ host: 'api.example.com', port: 443 }]);
  assert.deepEqual(world.reports, []);
});

test('a placeholder inside Basic credentials is replaced, as user, as password, and where the whole text is the secret', async () => {
  const sent = async (authorization: string) => {
    assert.equal((await world.fetch('/', { headers: { authorization } })).status, 200);
    return world.seen.at(-1)!.headers.authorization;
  };
  assert.equal(
    await sent(`Basic ${base64(`x-access-token:${token}`)}`),
    `Basic ${base64(`x-access-token:${latin1(value)}`)}`,
  );
  assert.equal(await sent(`basic  ${base64(`${token}:`)}`), `basic  ${base64(`${latin1(value)}:`)}`);
  assert.equal(await sent(`Basic ${token}`), `Basic ${latin1(value)}`);
  assert.equal(await sent(`Basic ${base64('a:b')}`), `Basic ${base64('a:b')}`);
  assert.equal(await sent('Basic !!!'), 'Basic !!!');
});

test('a placeholder in the URL or the body of a listed host is left as it is and told to the owner', async () => {
  const answer = await world.fetch(`/q?token=${token}`, { body: `{"token":"${token}","again":"${token}"}` });
  assert.equal(answer.status, 200);
  assert.equal(world.seen[0]?.url, `/q?token=${token}`);
  assert.equal(world.seen[0]?.body, `{"token":"${token}","again":"${token}"}`);
  assert.deepEqual(reasons(), ['placeholder_not_replaced', 'placeholder_not_replaced']);
  assert.match(world.reports[0]!.message, /TOKEN stood in the URL/);
  assert.match(world.reports[1]!.message, /TOKEN stood in the body/);
});

test("a placeholder to another secret's host is refused before anything is sent: in headers, Basic, URL and body", async () => {
  const host = 'other.example.com';
  const tries = [
    { headers: bearer() },
    { headers: { authorization: `Basic ${base64(`user:${token}`)}` } },
    { headers: { 'x-both': `${other} ${token}` } },
    { path: `/?t=${token}` },
    { body: `padding ${token}` },
  ];
  for (const { path = '/', ...options } of tries) {
    const answer = await world.fetch(path, { host, ...options });
    assert.equal(answer.status, 403, JSON.stringify(options));
    assert.equal(answer.headers['x-berth-egress-error'], 'placeholder_to_wrong_host');
    assert.match(answer.body, /secret TOKEN/);
  }
  assert.deepEqual(world.seen, []);
  assert.deepEqual(new Set(reasons()), new Set(['placeholder_to_wrong_host']));
  assert.equal(reasons().length, tries.length);
});

test('a body that grows a foreign placeholder, even in two pieces, never arrives whole', async () => {
  const socket = world.tls('other.example.com');
  socket.write('POST / HTTP/1.1\r\nHost: other.example.com\r\nTransfer-Encoding: chunked\r\n\r\n');
  const piece = (text: string) => socket.write(`${text.length.toString(16)}\r\n${text}\r\n`);
  piece('x'.repeat(100));
  await until('the head is on its way', () => world.dialled.length === 1);
  piece(token.slice(0, 30));
  piece(token.slice(30));
  const [answer] = (await once(socket, 'data')) as [Buffer];
  assert.match(answer.toString(), /^HTTP\/1\.1 403 /);
  assert.deepEqual(reasons(), ['placeholder_to_wrong_host']);
  assert.deepEqual(world.seen, []);
});

test('hosts match exactly, with their port and below a wildcard, and no other is taken', () => {
  const takes = (host: string, port = 443) => world.interceptor.takes({ host, port });
  for (const host of ['api.example.com', 'other.example.com', 'wild.example.org', 'a.b.example.org'])
    assert.ok(takes(host));
  assert.ok(takes('git.example.com', 8443));
  for (const host of [
    'example.com',
    'example.org',
    'evil-api.example.com',
    'api.example.com.evil.net',
    'xexample.org',
  ]) {
    assert.equal(takes(host), false, host);
  }
  assert.equal(takes('api.example.com', 8443), false);
  assert.equal(takes('git.example.com'), false);
});

test('a port that is not the usual one is part of the host, of the Host header and of the permission', async () => {
  const git = { host: 'git.example.com', port: 8443 };
  assert.equal((await world.fetch('/', { ...git, headers: bearer() })).status, 200);
  assert.equal(world.seen[0]?.headers.host, 'git.example.com:8443');
  assert.equal(world.seen[0]?.headers.authorization, `Bearer ${latin1(value)}`);
  const wild = await world.fetch('/', { host: 'wild.example.org', headers: bearer(other) });
  assert.equal(wild.status, 200);
  assert.equal(world.seen[1]?.headers.authorization, 'Bearer other-value-0123');
});

test('a value that comes back is replaced by the placeholder: in the status text, in headers, and in each usual form of the body', async () => {
  const text = latin1(value);
  const forms = [
    text,
    JSON.stringify(value),
    JSON.stringify(value).replaceAll('/', '\\/'),
    JSON.stringify(value).replace('Ä', '\\u00c4'),
    encodeURIComponent(value),
    encodeURIComponent(value).replaceAll('%20', '+'),
    value.replaceAll('&', '&amp;').replaceAll('"', '&quot;').replaceAll('<', '&lt;').replaceAll('>', '&gt;'),
    bytes(value).toString('hex'),
  ];
  world.world.answer = (message: IncomingMessage, response: ServerResponse) => {
    response.writeHead(200, `OK ${latin1(value)}`, {
      'X-Echo': message.headers.authorization,
      'Set-Cookie': `t=${latin1(value)}`,
    });
    response.end(
      forms.map((form) => Buffer.from(form, form === text ? 'latin1' : 'utf8').toString('latin1')).join('\n'),
      'latin1',
    );
  };
  const answer = await world.fetch('/', { headers: bearer() });
  assert.equal(answer.headers['x-echo'], `Bearer ${token}`);
  assert.deepEqual(answer.headers['set-cookie'], [`t=${token}`]);
  const lines = answer.body.split('\n').map((line) => line.replace(/^"|"$/g, ''));
  assert.deepEqual(
    lines,
    forms.map(() => token),
  );
});

test('a value inside base64 that comes back is replaced, wherever it begins', async () => {
  world.world.answer = (message, response) => {
    response.end(
      ['', 'a', 'ab', 'abc'].map((before) => base64(`${before}${latin1(value)}zz`)).join('\n') +
        message.headers.authorization,
    );
  };
  const answer = await world.fetch('/', { headers: { authorization: `Basic ${base64(`u:${token}`)}` } });
  const inside = base64(latin1(value)).slice(4, -4);
  assert.equal(answer.body.includes(inside), false);
  assert.equal(answer.body.split(token).length, 6, answer.body);
});

test('a value that comes back in pieces, or packed although identity was asked for, is found all the same', async () => {
  const pieces = [...Array(30).keys()].map((at) => [latin1(value).slice(0, at), latin1(value).slice(at)]);
  world.world.answer = (message, response) => {
    assert.equal(message.headers['accept-encoding'], 'identity');
    response.writeHead(200, { 'content-length': pieces.length * (latin1(value).length + 1) });
    void (async () => {
      for (const [one = '', two = ''] of pieces) {
        response.write(`|${one}`, 'latin1');
        await new Promise((resolve) => setImmediate(resolve));
        response.write(two, 'latin1');
      }
      response.end();
    })();
  };
  const headers = { ...bearer(), 'accept-encoding': 'gzip, br' };
  const answer = await world.fetch('/', { headers });
  assert.equal(answer.body, `|${token}`.repeat(pieces.length));
  assert.equal(answer.headers['content-length'], undefined);

  const packers = { gzip: gzipSync, deflate: deflateSync, br: brotliCompressSync, zstd: zstdCompressSync };
  for (const [coding, pack] of Object.entries(packers)) {
    world.world.answer = (_message, response) => {
      response.writeHead(200, { 'content-encoding': coding });
      response.end(pack(bytes(`<${value}>`)));
    };
    const packed = await world.fetch('/', { headers });
    assert.equal(packed.body, `<${token}>`, coding);
    assert.equal(packed.headers['content-encoding'], undefined);
  }
  world.world.answer = (_message, response) => {
    response.writeHead(200, { 'content-encoding': 'secret-coding' });
    response.end(value);
  };
  const unknown = await world.fetch('/', { headers });
  assert.equal(unknown.status, 502);
  assert.match(unknown.body, /could not be searched/);
});

test('an answer that is packed on its way is refused, in whatever way its end is told', async () => {
  for (const coding of ['gzip, chunked', 'gzip', 'chunked, gzip', 'deflate, chunked', 'x-own']) {
    world.world.answer = ({ socket }) => {
      const packed = gzipSync(bytes(`<${value}>`));
      const isChunked = coding.endsWith('chunked');
      socket.write(`HTTP/1.1 200 OK\r\nTransfer-Encoding: ${coding}\r\nConnection: close\r\n\r\n`);
      if (isChunked) socket.write(`${packed.length.toString(16)}\r\n`);
      socket.write(packed);
      socket.end(isChunked ? '\r\n0\r\n\r\n' : '');
    };
    const answer = await world.fetch('/', { headers: bearer() });
    assert.equal(answer.status, 502, coding);
    assert.equal(answer.headers['x-berth-egress-error'], 'connect_failed');
    assert.match(answer.body, /is packed \(.*could not be searched/, coding);
  }
});

test('an answer that is small outside and endless inside is ended', async () => {
  const headers = { ...bearer(), 'accept-encoding': 'br' };
  world.world.answer = (_message, response) => {
    response.writeHead(200, { 'content-encoding': 'br' });
    response.end(brotliCompressSync(Buffer.alloc(64 * 1024 * 1024)));
  };
  await assert.rejects(world.fetch('/', { headers }), /aborted|terminated/);
  world.world.answer = (_message, response) => {
    response.writeHead(200, { 'content-encoding': 'br', 'content-length': 0 });
    response.end();
  };
  assert.equal((await world.fetch('/', { headers })).body, '');
});

test('a request that names no host is refused by the broker, and told', async () => {
  const socket = world.tls();
  let text = '';
  socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
  socket.write('GET / HTTP/1.1\r\n\r\n');
  await closed(socket);
  assert.match(text, /^HTTP\/1\.1 403 .*X-Berth-Egress-Error: name_mismatch/is);
  assert.deepEqual(reasons(), ['name_mismatch']);
});

test('an answer in pieces of one byte reaches the program whole, in few pieces', async () => {
  const body = 'abcdefghij'.repeat(6_000);
  world.world.answer = (message) =>
    void message.socket.end(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${inBytes(body)}`);
  const socket = world.tls();
  let bytes = Buffer.alloc(0);
  socket.on('data', (chunk: Buffer) => (bytes = Buffer.concat([bytes, chunk])));
  socket.write('GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n');
  const answer = await until('it has come', () => readChunks(bytes));
  assert.ok(answer.body.toString() === body);
  assert.ok(answer.chunks < 600, `${answer.chunks} pieces`);
});

test('a client of HTTP/1.0 gets the whole answer and the end of the connection', async () => {
  world.world.answer = (_message, response) => void response.end(`<${latin1(value)}>`, 'latin1');
  const socket = world.tls();
  socket.write(`GET / HTTP/1.0\r\nHost: api.example.com\r\nAuthorization: Bearer ${token}\r\n\r\n`);
  let text = '';
  socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
  await closed(socket);
  assert.ok(text.endsWith(`\r\n\r\n<${token}>`), text);
  assert.doesNotMatch(text, /chunked/i);
});

test("another sandbox's placeholder is no placeholder here, and stays as it is", async () => {
  const stranger = await brokerWorld(secrets);
  try {
    const foreign = stranger.placeholder('TOKEN');
    await world.fetch('/', { headers: { 'x-both': `${foreign} ${token}` } });
    assert.equal(world.seen[0]?.headers['x-both'], `${foreign} ${latin1(value)}`);
  } finally {
    await stranger.close();
  }
});

test('a value cannot be fetched in parts: a request for a range gets the whole', async () => {
  world.world.answer = (message, response) => {
    const { range } = message.headers;
    response.end(range ? latin1(value).slice(3, 9) : latin1(value), 'latin1');
  };
  const answer = await world.fetch('/', { headers: { ...bearer(), range: 'bytes=3-8', 'if-range': '"x"' } });
  assert.equal(answer.body, token);
});

test('an answer that is told bit by bit is not held back', async () => {
  let told: ServerResponse | undefined;
  world.world.answer = (_message, response) => void (told = response).write('data: one\n\n');
  const socket = world.tls();
  socket.write(`GET / HTTP/1.1\r\nHost: api.example.com\r\nAuthorization: Bearer ${token}\r\n\r\n`);
  let text = '';
  socket.on('data', (chunk: Buffer) => (text += chunk.toString()));
  await until('the first event came', () => text.includes('data: one\n\n'));
  told!.write('data: two\n\n');
  await until('the second event came', () => text.includes('data: two\n\n'));
  told!.end();
  await until('the end came', () => text.endsWith('0\r\n\r\n'));
});

test('a new value is sent with the next request of an open connection, and a deleted one is not', async () => {
  const socket = world.tls();
  let text = '';
  socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
  const ask = async () => {
    text = '';
    socket.write(`GET / HTTP/1.1\r\nHost: api.example.com\r\nAuthorization: Bearer ${token}\r\n\r\n`);
    await until('an answer came', () => text.endsWith('\r\n0\r\n\r\n') || text.includes('(placeholder'));
    return Number(text.slice(9, 12));
  };
  const renewed = { ...secrets[0]!, value: bytes('a rotated value') };
  assert.equal(await ask(), 200);
  world.world.secrets = [renewed];
  assert.equal(await ask(), 200);
  assert.deepEqual(
    world.seen.map(({ headers }) => headers.authorization),
    [`Bearer ${latin1(value)}`, 'Bearer a rotated value'],
  );
  assert.equal(text.includes('a rotated value'), false);
  assert.equal(world.dialled.length, 1);
  world.world.secrets = [];
  assert.equal(await ask(), 403);
  assert.equal(world.seen.length, 2);
  world.world.secrets = [{ ...renewed, hosts: ['git.example.com:8443'] }];
  assert.equal((await world.fetch('/', { headers: bearer() })).status, 403);
  assert.deepEqual(reasons(), ['placeholder_to_wrong_host', 'placeholder_to_wrong_host']);
  assert.match(world.reports[0]!.message, /TOKEN .*deleted/);
});

test('while the values cannot be read nothing is sent, and the answer tells nothing', async () => {
  world.world.readError = true;
  const answer = await world.fetch('/', { headers: bearer() });
  assert.equal(answer.status, 502);
  assert.equal(answer.body.includes('database'), false);
  assert.deepEqual(world.seen, []);
});

test('a host whose certificate is not valid for it gets nothing', async () => {
  const evil = await brokerWorld([
    { key: 'TOKEN', hosts: ['api.example.com', 'unnamed.example.com'], value: bytes(value) },
  ]);
  try {
    // The other world's server has an authority of its own, which ours does not trust.
    world.world.dialPort = evil.world.dialPort;
    const untrusted = await world.fetch('/', { headers: bearer() });
    assert.equal(untrusted.status, 502);
    assert.equal(untrusted.headers['x-berth-egress-error'], 'upstream_certificate');
    const misnamed = await evil.fetch('/', {
      host: 'unnamed.example.com',
      headers: bearer(evil.placeholder('TOKEN')),
    });
    assert.equal(misnamed.status, 502);
    assert.match(misnamed.body, /certificate that is not valid/);
    assert.deepEqual(evil.seen, []);
    assert.deepEqual(
      [...reasons(), evil.reports[0]?.reason],
      ['upstream_certificate', 'upstream_certificate'],
    );
  } finally {
    await evil.close();
  }
});

test('a WebSocket passes with the value in its head; what comes back over it is masked without changing its length', async () => {
  world.server.once('upgrade', (message: IncomingMessage, socket) => {
    assert.equal(message.headers.authorization, `Bearer ${latin1(value)}`);
    assert.equal(message.headers['sec-websocket-extensions'], undefined);
    socket.write(
      'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst ',
    );
    socket.on('data', (chunk: Buffer) => socket.write(Buffer.concat([chunk, bytes(`<${value}>`)])));
  });
  const socket = world.tls();
  socket.write(
    'GET /ws HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n' +
      `Sec-WebSocket-Extensions: permessage-deflate\r\nAuthorization: Bearer ${token}\r\n\r\n`,
  );
  let text = '';
  socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
  await until('it has switched', () => text.includes('first '));
  assert.match(text, /^HTTP\/1\.1 101 /);
  socket.write('ping');
  await until('it answered', () => text.endsWith('>'));
  const masked = /ping<(.*)>$/.exec(text)?.[1];
  assert.equal(masked, token.slice(0, latin1(value).length));
  socket.destroy();
});

test('a host that refuses to switch is heard, and its answer is searched', async () => {
  world.server.once('upgrade', (_message: IncomingMessage, socket) => {
    socket.end(
      `HTTP/1.1 401 No\r\nContent-Length: ${bytes(value).length}\r\nConnection: close\r\n\r\n${value}`,
    );
  });
  const socket = world.tls();
  socket.write(
    `GET /ws HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nAuthorization: Bearer ${token}\r\n\r\n`,
  );
  let text = '';
  socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
  await closed(socket);
  assert.match(text, /^HTTP\/1\.1 401 /);
  assert.ok(text.endsWith(token), text);
});

test('large bodies pass in both directions, and with a slow reader no more than buffers wait', async () => {
  const size = 20 * 1024 * 1024;
  const chunk = Buffer.alloc(64 * 1024, 'y');
  let written = 0;
  world.world.answer = (_message, response) => {
    const more = () => {
      while (written < size) {
        written += chunk.length;
        if (!response.write(chunk)) return void response.once('drain', more);
      }
      response.end();
    };
    more();
  };
  const socket = world.tls();
  socket.write(`GET / HTTP/1.1\r\nHost: api.example.com\r\nAuthorization: Bearer ${token}\r\n\r\n`);
  await once(socket, 'readable');
  let last = 0;
  let still = 0;
  await until('the host is held back', () => {
    still = written === last && written > 0 ? still + 1 : 0;
    last = written;
    return still > 20;
  });
  assert.ok(written < size, `the host wrote ${written}`);
  let read = 0;
  socket.on('data', (data: Buffer) => (read += data.length));
  await until('all came', () => read >= size);
  socket.destroy();

  Object.assign(world.world, initial);
  const body = 'z'.repeat(5 * 1024 * 1024);
  const answer = await world.fetch('/', { body, headers: bearer() });
  assert.equal(answer.status, 200);
  assert.equal(world.seen.at(-1)?.body.length, body.length);
});

test('a plain HTTP request or body with a placeholder is refused, to whatever host', () => {
  const at = (host: string) => ({ host, port: 80 });
  const head = (headers: [string, string][], path = '/') => ({ method: 'GET', path, headers });
  const { plainRequest, plainBody } = world.interceptor;
  const refusals = [
    plainRequest(at('evil.example.net'), head([['X-A', token]])),
    plainRequest(at('evil.example.net'), head([['Authorization', `Basic ${base64(`a:${other}`)}`]])),
    plainRequest(at('evil.example.net'), head([], `/${token}`)),
    plainRequest(at('api.example.com'), head([['Authorization', `Bearer ${token}`]])),
    plainRequest(at('git.example.com'), head([['Authorization', `Bearer ${token}`]])),
    plainRequest({ host: 'git.example.com', port: 8443 }, head([], `/${token}`)),
    plainRequest({ host: 'a.example.org', port: 8080 }, head([['X-A', other]])),
    plainBody(at('git.example.com'), bytes(token)),
    plainBody(at('evil.example.net'), bytes(`{"a":"${token}"}`)),
  ];
  for (const verdict of refusals)
    assert.equal(verdict.kind === 'refuse' && verdict.reason, 'placeholder_to_wrong_host');
  const told = refusals.map(
    (verdict) => /none of its hosts|goes over https only/.exec(JSON.stringify(verdict))?.[0],
  );
  const [foreign, own] = ['none of its hosts', 'goes over https only'];
  assert.deepEqual(told, [foreign, foreign, foreign, own, own, own, own, own, foreign]);
  assert.deepEqual(
    plainRequest(
      at('evil.example.net'),
      head([
        ['X-A', 'b'],
        ['Authorization', 'Basic eDp5'],
      ]),
    ),
    { kind: 'pass' },
  );
  assert.deepEqual(plainBody(at('evil.example.net'), bytes('nothing')), { kind: 'pass' });
});
