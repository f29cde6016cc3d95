import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { Agent, request } from 'node:http';
import { text } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { newKeyValue } from '../../src/domain/api-key-value.ts';
import type { EdgeWorld, Reply } from '../support/edge-world.ts';
import { edgeWorld, readReply } from '../support/edge-world.ts';

let world: EdgeWorld;
let origin: string;
/** Reads of agents that were answered from memory. */
let known = 0;
/** Of rate limits. */
let clock: () => number = Date.now;

before(async () => {
  world = await edgeWorld({
    now: () => clock(),
    services: (services) => ({
      ...services,
      agents: {
        ...services.agents,
        known(p, id) {
          const agent = services.agents.known(p, id);
          if (agent) known += 1;
          return agent;
        },
      },
    }),
  });
  origin = await world.listen();
});
after(() => world.close());

async function get(path: string, key: string | null, headers: Record<string, string> = {}): Promise<Reply> {
  const all = key === null ? headers : { authorization: `Bearer ${key}`, ...headers };
  return readReply(await fetch(`${origin}${path}`, { headers: all }));
}

/** Reads until the answer comes from memory; a busy machine may take longer for two reads than it is trusted. */
async function getKnown(path: string, key: string): Promise<Reply> {
  for (let tries = 0; tries < 200; tries += 1) {
    const before = known;
    const reply = await get(path, key);
    assert.equal(reply.status, 200);
    if (known > before) return reply;
  }
  throw new Error('The agent is never known.');
}

const varying = new Set(['x-request-id', 'date', 'ratelimit']);

function sameBytes(reply: Reply): string {
  const headers = [...reply.headers].filter(([name]) => !varying.has(name)).sort();
  return JSON.stringify([reply.status, headers, reply.text]);
}

test('an agent that is known is shown with the same fields and bytes as one that is read, counted and logged the same', async (t) => {
  // Nothing is refilled from one read to the next.
  const startedMs = Date.now();
  clock = () => startedMs;
  t.after(() => (clock = Date.now));
  const path = `/v1/agents/${world.agent.id}`;
  const short = await getKnown(path, world.keys.use);
  const before = known;
  const long = await get(`${path}?`, world.keys.use);
  assert.equal(known, before);
  assert.equal(sameBytes(short), sameBytes(long));
  assert.match(short.headers.get('x-request-id') ?? '', /^[0-9a-f-]{36}$/);
  const left = (reply: Reply) => Number(/r=(\d+)/.exec(reply.headers.get('ratelimit') ?? '')?.[1]);
  assert.equal(left(long), left(short) - 1);
  const lineOf = (reply: Reply) =>
    world.logLines.find((line) => line.fields?.['requestId'] === reply.headers.get('x-request-id'))!;
  assert.deepEqual(Object.keys(lineOf(short).fields!).sort(), Object.keys(lineOf(long).fields!).sort());
  assert.equal(lineOf(short).fields!['path'], path);
  const metrics = world.app.edge.metrics.text({});
  const counted = /requests_total\{method="GET",route="\/v1\/agents\/\{id\}",status="200"\} (\d+)/.exec(
    metrics,
  );
  assert.ok(Number(counted?.[1]) >= known + 1);
});

test('a change, a revoked key and a deleted agent show with the next read of a known one', async () => {
  const made = await world.call('POST', '/v1/agents', { body: { name: 'Brief' } });
  const { id } = (made.json as { agent: { id: string } }).agent;
  const path = `/v1/agents/${id}`;
  const minted = await world.call('POST', `${path}/api-keys`, {
    body: { name: 'short-lived' },
  });
  const { value, key } = minted.json as { value: string; key: { id: string } };
  await getKnown(path, value);
  assert.equal((await world.call('PATCH', path, { body: { name: 'Renamed' } })).status, 200);
  assert.equal(((await get(path, value)).json as { agent: { name: string } }).agent.name, 'Renamed');
  await getKnown(path, value);
  assert.equal((await world.call('DELETE', `${path}/api-keys/${key.id}`)).status, 204);
  assert.equal((await get(path, value)).status, 401);
  await getKnown(path, world.keys.owner);
  assert.equal((await world.call('DELETE', path)).status, 204);
  assert.equal((await get(path, world.keys.owner)).status, 404);
});

test('a known agent is missing for every key that may not see it, byte for byte, and needs a key', async () => {
  const other = await world.call('POST', '/v1/agents', { body: { name: 'Other' } });
  const { id } = (other.json as { agent: { id: string } }).agent;
  const missing = '/v1/agents/0197c2b4-6f7e-7c2a-9d51-3f0a1c9be842';
  await getKnown(`/v1/agents/${id}`, world.keys.owner);
  for (const key of [world.keys.use, world.keys.edit, world.keys.foreign]) {
    const before = known;
    const hidden = await get(`/v1/agents/${id}`, key);
    assert.equal(hidden.status, 404);
    assert.equal(sameBytes(hidden), sameBytes(await get(missing, key)));
    assert.equal(known, before);
  }
  assert.equal((await get(`/v1/agents/${id}`, null)).status, 401);
  assert.equal((await get(`/v1/agents/${id}`, `${world.keys.owner}x`)).status, 401);
  assert.equal((await get(`/v1/agents/${id}`, null, { authorization: 'Basic eDp5' })).status, 401);
});

test('a connection that brought a good key gets nothing by another one, and the same again by the good one', async (t) => {
  const path = `/v1/agents/${world.agent.id}`;
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  t.after(() => agent.destroy());
  const sockets = new Set<unknown>();
  const read = async (key: string): Promise<number | undefined> => {
    const asked = request(`${origin}${path}`, { agent, headers: { authorization: `Bearer ${key}` } });
    const [answer] = (await once(asked.end(), 'response')) as [IncomingMessage];
    sockets.add(answer.socket);
    await text(answer);
    return answer.statusCode;
  };
  const { owner, foreign } = world.keys;
  const readKnown = async (): Promise<void> => {
    for (const before = known; known === before;) assert.equal(await read(owner), 200);
  };
  await readKnown();
  assert.equal(await read(newKeyValue().value), 401);
  await readKnown();
  assert.equal(await read(`${owner.slice(0, -1)}${owner.endsWith('0') ? '1' : '0'}`), 401);
  await readKnown();
  assert.equal(await read(foreign), 404);
  await readKnown();
  assert.equal(sockets.size, 1);
});

test('reads of a known agent count against the limit of the key, and are refused beyond it', async () => {
  const path = `/v1/agents/${world.agent.id}`;
  const { value, keyId } = await limitedKey(3);
  const statuses: number[] = [];
  await getKnown(path, world.keys.owner);
  for (let sent = 0; sent < 5; sent += 1) statuses.push((await get(path, value)).status);
  assert.deepEqual(statuses, [200, 200, 200, 429, 429], keyId);
});

async function limitedKey(quota: number): Promise<{ value: string; keyId: string }> {
  const made = await world.call('POST', `/v1/agents/${world.agent.id}/api-keys`, {
    body: { name: 'limited' },
  });
  const { value, key } = made.json as { value: string; key: { id: string } };
  // A window of an hour: nothing is refilled meanwhile.
  await world.resources.db
    .sql`update api_keys set rate_limit_quota = ${quota}, rate_limit_window_seconds = 3600 where id = ${key.id}`;
  return { value, keyId: key.id };
}
