import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { connect, createServer as createRawServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import { limits } from '../../src/domain/limits.ts';
import type { ManifestWeb } from '../../src/domain/manifest.ts';
import { hostMounts } from '../../src/edges/hosts/mounts.ts';
import { webMount } from '../../src/edges/web/mount.ts';
import { createPublicRate } from '../../src/edges/web/public-rate.ts';
import type { EdgeWorld } from '../support/edge-world.ts';
import { inBytes, readChunks } from '../support/chunks.ts';
import { edgeWorld, readReply } from '../support/edge-world.ts';
import { hostControl } from '../support/host-control.ts';
import { hostFetch } from '../support/host-fetch.ts';
import { until } from '../support/until.ts';
import { closed } from '../support/closed.ts';

let world: EdgeWorld;
let port: number;
let at: typeof fetch;
const usual = { answerMs: 120_000, idleMs: 120_000, closeMs: 1_000 };
const times = { ...usual };
/** Of those who ask without a key. */
const rate = { quota: 1_000_000, windowSeconds: 60 };

/** The agent's server. It tells what it got, unless a test says what else it does. */
const server = createServer((request, response) => answer(request, response));
const raw = createRawServer();
const sockets = new WebSocketServer({ noServer: true });
let answer: (request: IncomingMessage, response: ServerResponse) => void;
/** What another server of the agent's does with a connection whose first bytes are there. */
let speak: (socket: Socket, first: string) => void;

function tell(request: IncomingMessage, response: ServerResponse): void {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const { method, url, headers } = request;
    const body = Buffer.concat(chunks);
    response.setHeader('content-type', 'application/json');
    response.end(
      JSON.stringify({ method, url, headers, bytes: body.length, text: body.toString().slice(0, 100) }),
    );
  });
}

before(async () => {
  server.on('upgrade', (request: IncomingMessage, socket: Socket, head) => {
    if (request.url === '/refused')
      return void socket.end('HTTP/1.1 403 Forbidden\r\nX-Why: so\r\nContent-Length: 3\r\n\r\nno!');
    sockets.handleUpgrade(request, socket, head, (client) => {
      client.send(JSON.stringify({ url: request.url, headers: request.headers }));
      client.on('message', (data, isBinary) => client.send(data, { binary: isBinary }));
    });
  });
  raw.on('connection', (socket) => {
    socket.on('error', () => {});
    socket.once('data', (first) => speak(socket, first.toString('latin1')));
  });
  server.listen(0, '127.0.0.1');
  raw.listen(0, '127.0.0.1');
  await Promise.all([once(server, 'listening'), once(raw, 'listening')]);
  world = await edgeWorld({
    app: {
      hostMounts: (edge) => [
        ...hostMounts(edge).filter(({ name }) => name !== 'web'),
        webMount(edge, times, rate),
      ],
    },
  });
  world.sandboxHost.setControl(hostControl('/'));
  port = Number(new URL(await world.listen()).port);
  at = hostFetch(port);
});
beforeEach(async () => {
  answer = tell;
  speak = (socket) => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
  await exposes({ public: false });
});
afterEach(() => Object.assign(times, usual));
after(async () => {
  sockets.close();
  for (const client of sockets.clients) client.terminate();
  server.closeAllConnections();
  server.close();
  raw.close();
  await world.close();
});

const portOf = (one: { address(): unknown }) => (one.address() as AddressInfo).port;

/** Changes what the agent's deployment says of its server. */
async function exposes(web: Partial<ManifestWeb> | null, agentId = world.agent.id): Promise<void> {
  const { sql } = world.resources.db;
  const whole = web && { port: portOf(server), public: false, command: null, ...web };
  const done = await sql`
    update deployments set manifest = jsonb_set(coalesce(manifest, '{}'::jsonb), '{web}', ${JSON.stringify(whole)}::text::jsonb)
    where id = (select deployment_id from agents where id = ${agentId})`;
  assert.equal(done.count, 1);
}

const origin = () => `http://${world.agent.id}.agents.localhost:8080`;
const keyed = () => ({ authorization: `Bearer ${world.keys.use}` });
const ask = async (path: string, init: RequestInit = {}) => readReply(await at(`${origin()}${path}`, init));
// oxlint-disable-next-line no-explicit-any -- what the server was told
const toldOf = async (path: string, init: RequestInit = {}): Promise<any> => (await ask(path, init)).json;

/** What comes on a connection of its own, until it ends. */
async function exchange(text: string): Promise<string> {
  const socket = connect({ host: '127.0.0.1', port });
  const chunks: Buffer[] = [];
  socket.on('data', (chunk) => chunks.push(chunk)).on('error', () => {});
  socket.write(text.replaceAll('HOST', `${world.agent.id}.agents.localhost`));
  await closed(socket);
  return Buffer.concat(chunks).toString('latin1');
}

test('a request goes to the agent’s server as it was sent, and its answer comes back as it is', async () => {
  const path = '/a//b/../c/%2e%2e/%zz?x=1&y=%00#';
  const told = await toldOf(path.slice(0, -1), { headers: { ...keyed(), 'x-own': 'so', te: 'trailers' } });
  assert.equal(told.method, 'GET');
  assert.ok(told.url.endsWith('x=1&y=%00'), told.url);
  assert.equal(told.headers['x-own'], 'so');
  const put = await toldOf('/upload', { method: 'PUT', headers: keyed(), body: 'x'.repeat(3_000_000) });
  assert.deepEqual([put.method, put.bytes, put.headers['content-length']], ['PUT', 3_000_000, '3000000']);
  answer = (_request, response) => {
    response.writeHead(418, {
      'X-Tea': 'yes',
      'Cache-Control': 'max-age=60',
      Connection: 'X-Hop',
      'X-Hop': '1',
    });
    response.end('teapot');
  };
  const reply = await ask('/tea', { headers: keyed() });
  assert.deepEqual([reply.status, reply.text, reply.headers.get('x-tea')], [418, 'teapot', 'yes']);
  assert.equal(reply.headers.get('cache-control'), 'max-age=60');
  assert.equal(reply.headers.get('x-hop'), null);
  assert.match(reply.headers.get('ratelimit') ?? '', /r=\d+/);
  assert.match(reply.headers.get('x-request-id') ?? '', /^[0-9a-f-]{36}$/);
});

test('paths as sent reach the server byte for byte', async () => {
  const got = await exchange(
    `GET /a//b/../%2e%2e/%zz?q=%00 HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer ${world.keys.use}\r\nConnection: close\r\n\r\n`,
  );
  assert.match(got, /"url":"\/a\/\/b\/\.\.\/%2e%2e\/%zz\?q=%00"/);
});

const escaped = (text: string) => text.replaceAll('_', '%5F');
const coded = (text: string) => Buffer.from(text).toString('base64url');

test('no key of the service ever reaches the server, wherever it stood', async () => {
  const { use, owner } = world.keys;
  const basic = `Basic ${Buffer.from(`x:${owner}`).toString('base64')}`;
  const wheres: Record<string, string>[] = [
    { authorization: `Bearer ${use}` },
    { 'x-api-key': use },
    { authorization: `Bearer ${use}`, 'x-api-key': owner, cookie: `k=${owner}`, 'x-any': `a ${owner} b` },
    {
      authorization: `Bearer ${use}`,
      'x-any': escaped(owner),
      referer: `https://a.example/?k=${coded(owner)}`,
    },
  ];
  const held = (text: string) =>
    [owner, escaped(owner), coded(owner), coded(`x:${owner}`)].some((one) => text.includes(one));
  for (const headers of wheres) {
    const told = JSON.stringify(await toldOf('/', { headers }));
    assert.ok(told.includes('"url":"/"') && !told.includes('svc_live_') && !held(told), told);
  }
  await exposes({ public: true });
  for (const one of [owner, escaped(owner), coded(owner), coded(`x:${owner}`)]) {
    for (const path of [`/?key=${one}`, `/a/${one}/b`, `/?a=1&${one}=1`]) {
      const { status, json } = await ask(path);
      assert.deepEqual([status, (json as { code: string }).code], [400, 'invalid_request'], path);
    }
    const head = `GET /?key=${one} HTTP/1.1\r\nHost: HOST\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n`;
    assert.match(await exchange(head), /^HTTP\/1\.1 400 /);
  }
  assert.equal((await ask(`/?token=${'A'.repeat(200)}&svc_live_=1&x=%zz`)).status, 200);
  for (const headers of [...wheres, { authorization: basic }]) {
    const told = await toldOf('/', { headers });
    const text = JSON.stringify(told);
    assert.ok(!text.includes('svc_live_') && !held(text), text);
    assert.equal(told.headers.authorization, undefined);
  }
  const own = await toldOf('/', { headers: { authorization: 'Bearer of-its-own', 'x-api-key': 'too' } });
  assert.deepEqual([own.headers.authorization, own.headers['x-api-key']], ['Bearer of-its-own', 'too']);
});

test('who asked, and by which address, is what the service says of it', async () => {
  const lies = {
    'x-forwarded-for': '8.8.8.8',
    'x-forwarded-host': 'evil.example',
    'x-real-ip': '8.8.8.8',
    forwarded: 'for=8.8.8.8',
  };
  const { headers } = await toldOf('/', { headers: { ...keyed(), ...lies } });
  const host = `${world.agent.id}.agents.localhost:8080`;
  assert.equal(headers.host, host);
  assert.equal(headers['x-forwarded-host'], host);
  assert.equal(headers['x-forwarded-proto'], 'http');
  assert.equal(headers['x-forwarded-for'], '127.0.0.1');
  assert.ok(!JSON.stringify(headers).includes('8.8.8.8'));
});

test('a key is needed unless the agent says that everybody may ask; without a server there is nothing', async () => {
  const { status, json } = await ask('/');
  assert.deepEqual([status, (json as { code: string }).code], [401, 'key_missing']);
  assert.equal((await ask('/', { headers: { authorization: `Bearer ${world.keys.foreign}` } })).status, 404);
  await exposes({ public: true });
  assert.equal((await ask('/')).status, 200);
  const post = await ask('/', { method: 'POST', body: 'x' });
  assert.deepEqual([post.status, (post.json as { bytes: number }).bytes], [200, 1]);
  // The protocols keep their paths and their keys.
  assert.equal((await ask('/v1/models')).status, 401);
  assert.equal((await ask('/a2a', { method: 'POST' })).status, 401);
  await exposes(null);
  assert.equal((await ask('/')).status, 401);
  assert.equal((await ask('/', { headers: keyed() })).status, 404);
});

test('pages of other origins: the owner’s list speaks for a server with keys, and a public one for itself', async () => {
  const page = { origin: 'https://page.example' };
  answer = (_request, response) => {
    response.setHeader('Access-Control-Allow-Origin', 'https://page.example');
    response.end();
  };
  assert.equal(
    (await ask('/', { headers: { ...keyed(), ...page } })).headers.get('access-control-allow-origin'),
    null,
  );
  await exposes({ public: true });
  const preflight = await ask('/', {
    method: 'OPTIONS',
    headers: { ...page, 'access-control-request-method': 'PUT' },
  });
  assert.equal(preflight.status, 200);
  assert.equal(preflight.headers.get('access-control-allow-origin'), 'https://page.example');
});

test('a cookie is the host’s alone, and no browser is led to another server', async () => {
  answer = (_request, response) => {
    response.setHeader('Set-Cookie', ['a=1; Domain=agents.localhost; Path=/', 'b=2; domain = .localhost']);
    response.setHeader('Alt-Svc', 'h2="evil.example:443"');
    response.end();
  };
  const { headers } = await ask('/', { headers: keyed() });
  assert.deepEqual(headers.getSetCookie(), ['a=1; Path=/', 'b=2']);
  assert.equal(headers.get('alt-svc'), null);
});

test('an answer in pieces of one byte reaches the client whole, in few pieces', async () => {
  await exposes({ public: true, port: portOf(raw) });
  const body = 'abcdefghij'.repeat(6_000);
  speak = (socket) => socket.end(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${inBytes(body)}`);
  const got = await exchange('GET / HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n');
  const answer = readChunks(Buffer.from(got, 'latin1'))!;
  assert.ok(answer.body.toString() === body);
  assert.ok(answer.chunks < 600, `${answer.chunks} pieces`);
});

test('an answer is streamed as it comes, and a client that goes away ends it within', async () => {
  let isLeft = false;
  answer = (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write('data: 1\n\n');
    response.on('close', () => (isLeft = true));
  };
  const stop = new AbortController();
  const response = await at(`${origin()}/events`, { headers: keyed(), signal: stop.signal });
  const first = await response.body!.getReader().read();
  assert.equal(Buffer.from(first.value!).toString(), 'data: 1\n\n');
  stop.abort();
  await until('the server was left', () => isLeft);
});

test('a request body is streamed: the server has its begin before the client has sent its end', async () => {
  const seen: string[] = [];
  answer = (request, response) => {
    request.on('data', (chunk: Buffer) => seen.push(chunk.toString()));
    request.on('end', () => response.end('whole'));
  };
  const socket = connect({ host: '127.0.0.1', port });
  socket.write(
    `POST / HTTP/1.1\r\nHost: ${world.agent.id}.agents.localhost\r\nAuthorization: Bearer ${world.keys.use}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nbegin\r\n`,
  );
  await until('the begin is there', () => seen.join('') === 'begin');
  socket.write('3\r\nend\r\n0\r\n\r\n');
  const [chunk] = (await once(socket, 'data')) as [Buffer];
  assert.match(chunk.toString(), /^HTTP\/1\.1 200/);
  socket.destroy();
});

test('a WebSocket goes through to the server, and ends with either side', async () => {
  const url = `ws://127.0.0.1:${port}/live?room=1`;
  const host = `${world.agent.id}.agents.localhost`;
  const client = new WebSocket(url, ['chat', `berth.key.${world.keys.use}`], { headers: { host } });
  const [first] = (await once(client, 'message')) as [Buffer];
  const told = JSON.parse(first.toString());
  assert.equal(told.url, '/live?room=1');
  assert.equal(told.headers['sec-websocket-protocol'], 'chat');
  assert.ok(!first.toString().includes('svc_live_'));
  const bytes = Buffer.alloc(1_000_000, 7);
  client.send(bytes);
  const [echoed] = (await once(client, 'message')) as [Buffer];
  assert.ok(bytes.equals(echoed));
  client.close(1000);
  await closed(client);
  await until('the server has none any more', () => sockets.clients.size === 0);

  const left = new WebSocket(url, { headers: { host, ...keyed() } });
  await once(left, 'message');
  for (const one of sockets.clients) one.close(4001, 'enough');
  const [code, reason] = (await closed(left)) as [number, Buffer];
  assert.deepEqual([code, reason.toString()], [4001, 'enough']);
});

test('a WebSocket without a key is refused, to a public server let through, and a server may refuse it itself', async () => {
  const headers = { host: `${world.agent.id}.agents.localhost` };
  const refused = async (path: string, more: Record<string, string> = {}) => {
    const client = new WebSocket(`ws://127.0.0.1:${port}${path}`, { headers: { ...headers, ...more } });
    client.on('error', () => {});
    const [, response] = (await once(client, 'unexpected-response')) as [unknown, IncomingMessage];
    const chunks: Buffer[] = [];
    for await (const chunk of response) chunks.push(chunk as Buffer);
    return {
      status: response.statusCode,
      why: response.headers['x-why'],
      text: Buffer.concat(chunks).toString(),
    };
  };
  assert.equal((await refused('/live')).status, 401);
  assert.equal((await refused('/live', { ...keyed(), origin: 'https://page.example' })).status, 403);
  assert.deepEqual(await refused('/refused', keyed()), { status: 403, why: 'so', text: 'no!' });
  await exposes({ public: true });
  const client = new WebSocket(`ws://127.0.0.1:${port}/live`, {
    headers: { ...headers, origin: 'https://page.example' },
  });
  await once(client, 'message');
  client.terminate();
  await exposes(null);
  assert.equal((await refused('/live', keyed())).status, 404);
});

test('what the server does wrong is 502 or 504 in the service’s own form, never half an answer taken for a whole one', async () => {
  const ours = async (path = '/') => {
    const { status, json } = await ask(path, { headers: keyed() });
    return [status, (json as { code: string } | undefined)?.code];
  };
  await exposes({ port: 1 });
  assert.deepEqual(await ours(), [502, 'bad_gateway']);
  await exposes({ port: portOf(raw) });
  const nonsense = [
    'no http at all\r\n\r\n',
    'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!',
    'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n',
    `HTTP/1.1 200 OK\r\nX-Long: ${'x'.repeat(limits.webHeadBytes)}\r\n\r\n`,
    'HTTP/1.1 200 OK\r\nX-Bad: a\0b\r\n\r\n',
    '',
  ];
  for (const text of nonsense) {
    speak = (socket) => socket.end(text);
    assert.deepEqual(await ours(), [502, 'bad_gateway'], JSON.stringify(text.slice(0, 60)));
  }
  for (const cut of ['Content-Length: 10\r\n\r\nhello', 'Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n']) {
    speak = (socket) => socket.end(`HTTP/1.1 200 OK\r\n${cut}`);
    await assert.rejects(ask('/', { headers: keyed() }), cut);
  }
  speak = () => {};
  times.answerMs = 100;
  assert.deepEqual(await ours(), [504, 'gateway_timeout']);
  assert.equal(world.logLines.filter(({ level }) => level === 'error').length, 0);
});

test('a connection on which nothing passes is ended', async () => {
  times.idleMs = 100;
  answer = (_request, response) => void response.writeHead(200).write('begin');
  await assert.rejects(ask('/', { headers: keyed() }));
  const client = new WebSocket(`ws://127.0.0.1:${port}/live`, {
    headers: { host: `${world.agent.id}.agents.localhost`, ...keyed() },
  });
  await closed(client);
});

test('so many connections and no more are open at once; the next is 503, and welcome when one has ended', async () => {
  const held: ServerResponse[] = [];
  answer = (_request, response) => void (held.push(response), response.writeHead(200).write('held'));
  const open = await Promise.all(
    Array.from({ length: limits.webConnections.ofAgent }, () => at(`${origin()}/`, { headers: keyed() })),
  );
  const refused = await ask('/', { headers: keyed() });
  assert.deepEqual([refused.status, (refused.json as { code: string }).code], [503, 'unavailable']);
  assert.equal(refused.headers.get('retry-after'), '5');
  for (const response of held) response.end();
  await Promise.all(open.map((response) => response.text()));
  answer = tell;
  await until('there is room again', async () => (await ask('/', { headers: keyed() })).status === 200);
});

test('a public server is asked so often a minute from one address, and a key has its own limit', async (t) => {
  await exposes({ public: true });
  Object.assign(rate, { quota: 3 });
  t.after(() => Object.assign(rate, { quota: 1_000_000 }));
  const statuses: number[] = [];
  for (let count = 0; count < 4; count += 1) statuses.push((await ask('/')).status);
  assert.deepEqual(statuses, [200, 200, 200, 429]);
  const { json, headers } = await ask('/');
  assert.equal((json as { code: string }).code, 'rate_limited');
  assert.ok(Number(headers.get('retry-after')) > 0);
  const head =
    'GET / HTTP/1.1\r\nHost: HOST\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n';
  assert.match(await exchange(head), /^HTTP\/1\.1 429 /);
  await exposes({ public: false });
  assert.equal((await ask('/', { headers: keyed() })).status, 200);
});

test('the limit of a public server counts by agent, and by the network of an IPv6 client', () => {
  let nowMs = 0;
  const take = createPublicRate({ quota: 2, windowSeconds: 2 }, () => nowMs);
  const isLetIn = (agentId: string, address: string) => {
    try {
      take(agentId, address);
      return true;
    } catch (error) {
      assert.equal((error as { code: string }).code, 'rate_limited');
      return false;
    }
  };
  assert.deepEqual(
    ['2001:db8::1', '2001:db8::2', '2001:db8::3', '2001:db8:0:1::1', '192.0.2.1', '192.0.2.2'].map((one) =>
      isLetIn('a', one),
    ),
    [true, true, false, true, true, true],
  );
  assert.ok(isLetIn('b', '2001:db8::1'));
  nowMs = 1_000;
  assert.deepEqual([isLetIn('a', '2001:db8::3'), isLetIn('a', '2001:db8::4')], [true, false]);
});

test('a connection ends with the key that opened it', async () => {
  const { services, resources } = world;
  const made = await services.apiKeys.mintForAgent(resources.owner, world.agent.id, { name: 'short' });
  answer = (_request, response) => void response.writeHead(200).write('begin');
  const response = await at(`${origin()}/`, { headers: { authorization: `Bearer ${made.value}` } });
  const rest = assert.rejects(response.text());
  await services.apiKeys.revokeForAgent(resources.owner, world.agent.id, made.key.id);
  await rest;
});

test('requests that two readers could read in two ways go nowhere', async () => {
  const seen: string[] = [];
  answer = (request, response) => {
    seen.push(request.url!);
    tell(request, response);
  };
  const head = (more: string) =>
    `POST /first HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer ${world.keys.use}\r\n${more}\r\n`;
  const smuggled = 'GET /smuggled HTTP/1.1\r\nHost: HOST\r\n\r\n';
  for (const more of [
    `Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${smuggled}`,
    `Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n${smuggled}`,
    `Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n${smuggled}`,
    `Transfer-Encoding: gzip, chunked\r\nConnection: close\r\n\r\n0\r\n\r\n`,
    `Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd${smuggled}`,
    `Content-Length: +4\r\n\r\nabcd${smuggled}`,
    `Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n${smuggled}`,
    `X: a\r\n Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n${smuggled}`,
    `X: a\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n${smuggled}`,
    `X: a\0b\r\nConnection: close\r\n\r\n`,
  ]) {
    const got = await exchange(head(more));
    const statuses = [...got.matchAll(/^HTTP\/1\.1 (\d+)/gm)].map((match) => Number(match[1]));
    assert.ok(
      statuses.every((status) => status === 400 || status === 200),
      `${JSON.stringify(more)}: ${got}`,
    );
  }
  assert.ok(!seen.includes('/smuggled'), seen.join(' '));
  // An absolute target names the agent by its path only; the Host says where it goes.
  const absolute = await exchange(
    `GET http://elsewhere.example/abs HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer ${world.keys.use}\r\nConnection: close\r\n\r\n`,
  );
  assert.match(absolute, /"url":"\/abs"/);
  // What `Connection` names goes no further, and cannot take the service's own word with it.
  const hop = await exchange(
    `GET /hop HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer ${world.keys.use}\r\nX-Mine: 1\r\nConnection: close, x-mine, x-forwarded-for, host\r\n\r\n`,
  );
  assert.ok(!hop.includes('x-mine') && hop.includes('"x-forwarded-for":"127.0.0.1"'), hop);
});
