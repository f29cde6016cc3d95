import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, test } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import { parseNetwork } from '../../src/domain/address-ranges.ts';
import { newId } from '../../src/domain/ids.ts';
import type { Agent } from '../../src/domain/nouns.ts';
import type { HostMount } from '../../src/edges/hosts/host-edge.ts';
import type { EdgeWorld } from '../support/edge-world.ts';
import { edgeWorld, readReply } from '../support/edge-world.ts';
import { hostFetch } from '../support/host-fetch.ts';

let world: EdgeWorld;
let other: Agent;
let at: typeof fetch;
let port: number;
const sockets: WebSocket[] = [];

/** A mount that tells what it was given. */
function echo(): HostMount {
  const server = new WebSocketServer({ noServer: true });
  return {
    name: 'echo',
    owns: (path) => path === '/echo' || path.startsWith('/echo/') || path === '/v1/agents',
    isPublic: (_method, path) => path === '/echo/public',
    handlePublic: async (call) => call.adopt(Response.json({ public: call.agent.name })),
    async handle(call) {
      if (call.path === '/echo/stream') {
        const accepted = await call.services.runs.send(call.caller, {
          agentId: call.agent.id,
          conversationId: null,
          content: 'hello',
          onBusy: 'enqueue',
          source: 'echo',
          idempotency: null,
        });
        queueMicrotask(() => world.core.settle(accepted.runId, { message: 'whole' }));
        return call.stream(
          (event) => (event.type === 'run.completed' ? 'data: [DONE]\n\n' : `data: ${event.type}\n\n`),
          async (sink) => {
            sink.raw('data: first\n\n');
            return call.services.events.follow(call.caller, { runId: accepted.runId }, 0, sink);
          },
        );
      }
      if (call.path === '/echo/run') {
        const run = await call.services.runs.get(call.caller, new URLSearchParams(call.query).get('id')!);
        return call.adopt(Response.json({ run: run.id }));
      }
      const body = call.method === 'POST' ? await call.json({ mediaTypes: ['application/x+json'] }) : null;
      return call.adopt(
        Response.json({ agent: call.agent.id, origin: call.origin, keyId: call.caller.keyId, body }),
      );
    },
    refuse: (error, requestId) => ({ body: { oops: error.code, requestId } }),
    upgrade: {
      matches: (path) => path === '/echo/socket',
      handle: async (call) =>
        server.handleUpgrade(call.request, call.socket, call.firstBytes, (socket) =>
          socket.send(call.agent.id),
        ),
      close: () => {
        for (const client of server.clients) client.terminate();
      },
    },
  };
}

before(async () => {
  world = await edgeWorld({
    app: { hostMounts: () => [echo()], trustedProxies: [parseNetwork('127.0.0.0/8')!] },
  });
  other = await world.services.agents.create(world.resources.owner, { name: 'Other' });
  port = Number(new URL(await world.listen()).port);
  at = hostFetch(port);
});
after(async () => {
  for (const socket of sockets) socket.terminate();
  await world.close();
});

const address = (label: string, path = '/echo') => `http://${label}.agents.localhost:8080${path}`;
const key = (value: string) => ({ authorization: `Bearer ${value}` });
const get = async (url: string, headers: Record<string, string> = key(world.keys.owner)) =>
  readReply(await at(url, { headers }));

test('a host below the app domain is the agent that it names, whatever the port or the case', async () => {
  const reply = await get(address(world.agent.id));
  assert.equal(reply.status, 200, reply.text);
  const told = reply.json as Record<string, unknown>;
  assert.deepEqual(
    [told['agent'], told['origin']],
    [world.agent.id, `http://${world.agent.id}.agents.localhost:8080`],
  );
  assert.match(reply.headers.get('ratelimit') ?? '', /^"default";r=\d+;t=\d+$/);
  assert.match(reply.headers.get('x-request-id') ?? '', /^[0-9a-f-]{36}$/);
  for (const host of [
    `${world.agent.id.toUpperCase()}.Agents.Localhost`,
    `${world.agent.id}.agents.localhost:1`,
    `${world.agent.id}.agents.localhost.:8080`,
  ]) {
    const same = await readReply(
      await at(`http://localhost:8080/echo`, {
        headers: { ...key(world.keys.owner), 'x-forwarded-host': host },
      }),
    );
    assert.equal(same.status, 200, `${host}: ${same.text}`);
  }
});

test('the service itself is what it was under every other host, and nothing of it is at an agent’s', async () => {
  for (const url of ['http://localhost:8080/v1/agents', 'http://agents.localhost:8080/v1/agents']) {
    const reply = await get(url);
    assert.ok(Array.isArray((reply.json as { agents: unknown[] }).agents), url);
  }
  assert.equal((await get('http://10.1.2.3/echo')).status, 404);
  const own = await get(address(world.agent.id, '/v1/agents'));
  assert.equal((own.json as { agent: string }).agent, world.agent.id);
  for (const path of ['/v1/limits', '/docs', '/metrics', '/readyz', '/git/x.git/info/refs', '/'])
    assert.equal((await get(address(world.agent.id, path))).status, 404, path);
});

test('a missing agent, a foreign one and a host of nonsense give the same 404, byte for byte', async () => {
  const missing = await world.call('GET', `/v1/agents/${newId()}`);
  for (const [label, path] of [
    [newId(), '/none'],
    ['nonsense', '/none'],
    ['a.b', '/none'],
    [world.agent.id, '/none'],
  ] as const) {
    const reply = await get(address(label, path));
    assert.deepEqual([reply.status, reply.text], [404, missing.text], label);
  }
  const foreign = await get(address(world.agent.id, '/none'), key(world.keys.foreign));
  assert.deepEqual([foreign.status, foreign.text], [404, missing.text]);
  const bound = await get(address(other.id, '/none'), key(world.keys.use));
  assert.deepEqual([bound.status, bound.text], [404, missing.text]);
});

test('a protocol says its errors in its own form, and without a key there is no telling which agents are', async () => {
  for (const label of [world.agent.id, newId()]) {
    const reply = await get(address(label), {});
    assert.equal(reply.status, 401);
    assert.equal((reply.json as { oops: string }).oops, 'key_missing');
    assert.match(reply.headers.get('www-authenticate') ?? '', /^Bearer/);
  }
  const foreign = await get(address(world.agent.id), key(world.keys.foreign));
  assert.deepEqual([foreign.status, (foreign.json as { oops: string }).oops], [404, 'not_found']);
});

test('a key may come as X-API-Key too, and what is public needs none', async () => {
  const reply = await get(address(world.agent.id), { 'x-api-key': world.keys.use });
  assert.equal(reply.status, 200);
  assert.equal((await get(address(world.agent.id), { 'x-api-key': 'svc_live_no' })).status, 401);
  const open = await get(address(world.agent.id, '/echo/public'), {});
  assert.deepEqual(open.json, { public: 'Ours' });
  assert.equal((await get(address(newId(), '/echo/public'), {})).status, 404);
});

test('a key that may see every agent finds on a host only what is of its agent', async () => {
  const sent = await world.services.runs.send(world.resources.owner, {
    agentId: other.id,
    conversationId: null,
    content: 'x',
    onBusy: 'enqueue',
    source: 'api',
    idempotency: null,
  });
  const path = `/echo/run?id=${sent.runId}`;
  assert.equal((await get(address(other.id, path))).status, 200);
  assert.equal((await get(address(world.agent.id, path))).status, 404);
});

test('bodies are JSON of the media types that the protocol names, and end at the limit', async () => {
  const post = async (body: string, type: string) =>
    readReply(
      await at(address(world.agent.id), {
        method: 'POST',
        body,
        headers: { ...key(world.keys.owner), 'content-type': type },
      }),
    );
  assert.deepEqual(((await post('{"a":1}', 'application/x+json')).json as { body: unknown }).body, { a: 1 });
  for (const [body, type, status, code] of [
    ['{"a":1}', 'text/plain', 415, 'unsupported_media_type'],
    ['{"a":', 'application/json', 400, 'invalid_json'],
    [`"${'x'.repeat(1_100_000)}"`, 'application/json', 413, 'body_too_large'],
  ] as const) {
    const reply = await post(body, type);
    assert.deepEqual([reply.status, (reply.json as { oops: string }).oops], [status, code]);
  }
});

test('a stream has the events as the protocol frames them, and text of its own', async () => {
  const reply = await at(address(world.agent.id, '/echo/stream'), { headers: key(world.keys.owner) });
  assert.equal(reply.headers.get('content-type'), 'text/event-stream; charset=utf-8');
  const text = await reply.text();
  assert.match(text, /^data: first\n\n/);
  assert.match(text, /data: \[DONE\]\n\n$/);
});

test('X-Forwarded-Host counts from a trusted proxy alone', async () => {
  const strict = await edgeWorld({ app: { hostMounts: () => [echo()] } });
  try {
    const strictAt = hostFetch(Number(new URL(await strict.listen()).port));
    const reply = await strictAt('http://localhost/echo', {
      headers: {
        ...key(strict.keys.owner),
        'x-forwarded-host': `${strict.agent.id}.agents.localhost`,
      },
    });
    assert.equal(reply.status, 404);
    assert.match(await reply.text(), /There is nothing here/);
  } finally {
    await strict.close();
  }
});

test('failed keys are counted by the client that a trusted proxy names', async () => {
  const limited = await edgeWorld({
    authFailures: { quota: 1, windowSeconds: 60 },
    app: { hostMounts: () => [echo()], trustedProxies: [parseNetwork('127.0.0.1/32')!] },
  });
  try {
    const limitedAt = hostFetch(Number(new URL(await limited.listen()).port));
    const fail = async (client: string) =>
      (await limitedAt(address(limited.agent.id), { headers: { 'x-forwarded-for': client } })).status;
    assert.deepEqual([await fail('9.9.9.9'), await fail('9.9.9.9'), await fail('8.8.8.8')], [401, 429, 401]);
    assert.equal(await fail('1.2.3.4, 8.8.8.8'), 429, 'what the client wrote itself does not count');
  } finally {
    await limited.close();
  }
});

test('pages of the origins that the owner allows may read answers, and no others, never with credentials', async () => {
  const allow = (allowedOrigins: string[]) =>
    world.call('PATCH', `/v1/agents/${other.id}`, { body: { allowedOrigins } });
  const ask = async (origin: string, url = address(other.id), headers = key(world.keys.owner)) =>
    (await get(url, { ...headers, origin })).headers;
  const preflight = async (origin: string, label = other.id) =>
    readReply(
      await at(address(label), {
        method: 'OPTIONS',
        headers: {
          origin,
          'access-control-request-method': 'POST',
          'access-control-request-headers': 'authorization,content-type',
        },
      }),
    );
  const page = 'https://app.example.com';
  assert.equal((await ask(page)).get('access-control-allow-origin'), null);
  assert.equal((await preflight(page)).headers.get('access-control-allow-headers'), null);
  const changed = await allow(['https://APP.example.com', page]);
  assert.deepEqual((changed.json as { agent: { allowedOrigins: string[] } }).agent.allowedOrigins, [page]);
  const allowed = await preflight(page);
  assert.deepEqual(
    [allowed.status, allowed.text, allowed.headers.get('access-control-allow-origin')],
    [204, '', page],
  );
  assert.equal(allowed.headers.get('access-control-allow-headers'), 'authorization,content-type');
  assert.match(allowed.headers.get('access-control-allow-methods') ?? '', /POST/);
  const refused = await ask(page, address(other.id), { authorization: 'Bearer no' });
  assert.equal(refused.get('access-control-allow-origin'), page, 'a page may read why it is refused');
  assert.match((await ask(page)).get('access-control-expose-headers') ?? '', /X-Request-Id/);
  assert.match((await ask(page)).get('vary') ?? '', /Origin/);
  assert.equal((await ask('https://evil.example')).get('access-control-allow-origin'), null);
  await allow(['*']);
  const all = await ask('https://evil.example');
  assert.equal(all.get('access-control-allow-origin'), '*');
  for (const headers of [allowed.headers, all, (await preflight('https://evil.example')).headers])
    assert.equal(headers.get('access-control-allow-credentials'), null);
  assert.equal((await preflight(page, newId())).status, 404);
  for (const bad of [['app.example.com'], ['https://a.example/path'], ['null'], Array(21).fill(page)])
    assert.equal((await allow(bad as string[])).status, 400, String(bad));
});

test('a WebSocket is opened under the same rules, with the key in a subprotocol for browsers', async () => {
  const connect = (label: string, headers: Record<string, string>, protocols: string[] = []) => {
    const socket = new WebSocket(`ws://127.0.0.1:${port}/echo/socket`, protocols, {
      headers: { host: `${label}.agents.localhost:8080`, ...headers },
    });
    sockets.push(socket);
    socket.on('error', () => {});
    return socket;
  };
  const [message] = await once(connect(world.agent.id, key(world.keys.use)), 'message');
  assert.equal(String(message), world.agent.id);
  const browser = connect(world.agent.id, {}, ['chat', `berth.key.${world.keys.use}`]);
  assert.equal(String((await once(browser, 'message'))[0]), world.agent.id);
  for (const [label, headers, status] of [
    [world.agent.id, {}, 401],
    [newId(), key(world.keys.use), 404],
    [world.agent.id, key(world.keys.foreign), 404],
    [world.agent.id, { ...key(world.keys.use), origin: 'https://evil.example' }, 403],
  ] as const) {
    const [, response] = (await once(connect(label, headers), 'unexpected-response')) as [
      unknown,
      { statusCode: number; resume(): void },
    ];
    response.resume();
    assert.equal(response.statusCode, status);
  }
});
