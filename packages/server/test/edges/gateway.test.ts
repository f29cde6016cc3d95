import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { routes } from '../../src/edges/routes.ts';
import type { EdgeWorld } from '../support/edge-world.ts';
import { edgeWorld } from '../support/edge-world.ts';

let world: EdgeWorld;
/** Nothing is refilled however long the requests take: the numbers are exact. */
const startedMs = Date.now();
const now = () => startedMs;
before(async () => void (world = await edgeWorld({ now })));
after(() => world.close());

const fill = (path: string, id: string) => path.replace('{key}', 'NAME').replace(/\{\w+\}/g, id);

test('401 on every call without a key, with the challenge and nothing else', async () => {
  for (const route of routes) {
    const reply = await world.call(route.method.toUpperCase(), fill(route.path, world.agent.id), {
      key: null,
    });
    assert.equal(reply.status, 401, route.id);
    assert.equal((reply.json as { code: string }).code, 'key_missing');
    assert.equal(reply.headers.get('www-authenticate'), 'Bearer realm="berth"');
    assert.match(reply.headers.get('x-request-id') ?? '', /^[0-9a-f-]{36}$/);
    assert.equal(reply.headers.get('ratelimit'), null);
    assert.ok(!reply.text.includes(world.agent.id));
  }
});

test('401 for malformed, unknown, revoked keys and other schemes, and the value is not repeated', async () => {
  const { resources, agent } = world;
  const revoked = await resources.apiKeys.mintForAgent(resources.owner, agent.id, { name: 'gone' });
  await resources.apiKeys.revokeForAgent(resources.owner, agent.id, revoked.key.id);
  const unknown = `svc_live_${'a'.repeat(49)}`;
  for (const header of [
    `Bearer ${revoked.value}`,
    `Bearer ${unknown}`,
    'Bearer nonsense',
    'Basic dXNlcjpwYXNz',
  ]) {
    const reply = await world.call('GET', '/v1/agents', { key: null, headers: { authorization: header } });
    assert.equal(reply.status, 401, header);
    assert.equal((reply.json as { code: string }).code, 'key_invalid');
    assert.equal(reply.headers.get('www-authenticate'), 'Bearer realm="berth", error="invalid_token"');
    assert.ok(!reply.text.includes(header.split(' ')[1]!));
  }
  for (const header of ['', 'Bearer', 'Bearer ']) {
    const reply = await world.call('GET', '/v1/agents', { key: null, headers: { authorization: header } });
    assert.equal((reply.json as { code: string }).code, 'key_missing');
  }
});

test('every answer to a keyed request tells the rate limit, errors too', async () => {
  for (const path of ['/v1/agents', '/v1/agents?limit=0', `/v1/agents/${world.agent.id}/deployments/x`]) {
    const reply = await world.call('GET', path);
    assert.equal(reply.headers.get('ratelimit-policy'), '"default";q=600;w=60');
    assert.match(reply.headers.get('ratelimit') ?? '', /^"default";r=\d+;t=\d+$/);
  }
});

test('GET /v1/limits tells what the headers tell', async () => {
  const reply = await world.call('GET', '/v1/limits', { key: world.keys.orgUse });
  const { key, rateLimit } = reply.json as {
    key: Record<string, unknown>;
    rateLimit: Record<string, number>;
  };
  assert.deepEqual([key['scope'], key['binding'], key['agentId']], ['use', 'org-bound', null]);
  assert.deepEqual(rateLimit, { quota: 600, windowSeconds: 60, used: 1, remaining: 599, resetSeconds: 1 });
  assert.equal(reply.headers.get('ratelimit'), '"default";r=599;t=1');
});

test('GET /v1/limits tells what the headers tell also when a request is given back meanwhile', async (t) => {
  const slow = await edgeWorld({
    services: (made) => ({
      ...made,
      rateLimit: {
        ...made.rateLimit,
        peek: (keyId, limit) => ({ ...made.rateLimit.peek(keyId, limit), remaining: 600, resetSeconds: 0 }),
      },
    }),
  });
  t.after(() => slow.close());
  const reply = await slow.call('GET', '/v1/limits');
  const { rateLimit } = reply.json as { rateLimit: Record<string, number> };
  assert.deepEqual([rateLimit['remaining'], rateLimit['resetSeconds']], [600, 0]);
  assert.equal(reply.headers.get('ratelimit'), '"default";r=600;t=0');
});

test('429 with Retry-After over the limit, before the body is looked at', async () => {
  const { resources, agent } = world;
  const key = await resources.caller('edit', 'agent-bound', agent);
  await resources.db.sql`
    update api_keys set rate_limit_quota = 2, rate_limit_window_seconds = 60 where id = ${key.keyId}`;
  const call = (body?: unknown) =>
    world.call('POST', `/v1/agents/${agent.id}/api-keys`, {
      key: key.value,
      body: body ?? '{broken',
    });
  assert.equal((await call()).status, 400);
  assert.equal((await call()).status, 400);
  const refused = await call();
  assert.equal(refused.status, 429);
  assert.equal((refused.json as { code: string }).code, 'rate_limited');
  assert.equal(refused.headers.get('retry-after'), '30');
  assert.equal(refused.headers.get('ratelimit'), '"default";r=0;t=60');
  assert.equal(refused.headers.get('ratelimit-policy'), '"default";q=2;w=60');
});

test('failed authentication is limited by client address, and a good key still passes', async () => {
  const limited = await edgeWorld({ authFailures: { quota: 3, windowSeconds: 60 }, now });
  try {
    const statuses: number[] = [];
    for (let i = 0; i < 4; i += 1)
      statuses.push((await limited.call('GET', '/v1/agents', { key: 'bad' })).status);
    assert.deepEqual(statuses, [401, 401, 401, 429]);
    const refused = await limited.call('GET', '/v1/agents', { key: null });
    assert.equal(refused.headers.get('retry-after'), '20');
    assert.equal((await limited.call('GET', '/v1/agents')).status, 200);
  } finally {
    await limited.close();
  }
});

test('no forwarding header and no request id of a client is believed, and no origin is allowed in', async () => {
  const reply = await world.call('GET', '/v1/agents', {
    headers: { 'x-request-id': 'mine', 'x-forwarded-for': '1.2.3.4', origin: 'https://evil.example' },
  });
  assert.notEqual(reply.headers.get('x-request-id'), 'mine');
  assert.equal(reply.headers.get('access-control-allow-origin'), null);
  assert.equal(reply.headers.get('cache-control'), 'no-store');
  assert.equal(reply.headers.get('x-content-type-options'), 'nosniff');
});
