import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { operations } from '../support/contract.ts';
import type { Operated } from '../support/contract.ts';
import type { World } from '../support/scenario-world.ts';
import { endSharedWorld, sharedWorld } from '../support/scenario-world.ts';
import { channelWithEvent } from '../support/channel-event.ts';
import { madeSchedule } from '../support/schedule.ts';
import { endpointWithDelivery } from '../support/webhook-endpoint.ts';
import type { Api, Reply } from '../support/service.ts';

after(endSharedWorld);

/** May differ between two answers to the same request. */
const varying = new Set(['date', 'x-request-id', 'ratelimit']);

function bytes(reply: Reply): string {
  const headers = [...reply.headers].filter(([name]) => !varying.has(name));
  return JSON.stringify([reply.status, headers, reply.text]);
}

/** Calls about one agent, conversation, run or key, taken from openapi.json so that a new one is among them. */
const underResource = operations.filter(({ template }) => template.includes('{'));

type Ids = Record<
  | 'agents'
  | 'sandbox'
  | 'conversations'
  | 'runs'
  | 'api-keys'
  | 'keyId'
  | 'deploymentId'
  | 'snapshotId'
  | 'channels'
  | 'inbound-events'
  | 'schedules'
  | 'webhook-endpoints'
  | 'deliveryId',
  string
>;

/** Names that are no ids. */
const fixed: Record<string, string> = { key: 'TOKEN', path: 'some/file' };

function pathOf({ template }: Operated, ids: Ids): string {
  const noun = /^\/(?:v1\/)?([\w-]+)\/\{/.exec(template)?.[1] as keyof Ids | undefined;
  assert.ok(noun !== undefined && noun in ids, `${template}: this test does not know its resource; add it`);
  let first = true;
  return template.replace(/\{(\w+)\}/g, (_, name: string) => {
    const id = first ? ids[noun] : (fixed[name] ?? ids[name as keyof Ids]);
    first = false;
    assert.ok(id, `${template}: this test does not know {${name}}; add it`);
    return id;
  });
}

/** The ids in a path after the first one. */
const innerNames = (template: string) =>
  [...template.matchAll(/\{(\w+)\}/g)]
    .slice(1)
    .map(([, name]) => name!)
    .filter((name): name is keyof Ids & string => !(name in fixed));

interface Variant {
  body?: unknown;
  headers?: Record<string, string>;
  query?: string;
}

/** A good request, and one for each way in which its input can be bad: none may tell more than another. */
function variants({ method, operation }: Operated): Variant[] {
  const list: Variant[] = [{}, { query: '?unknown=1' }, { headers: { accept: 'text/event-stream' } }];
  const example = operation.requestBody?.content['application/json']?.example;
  if (method === 'GET') return [...list, { query: '?limit=0' }, { query: '?cursor=bad' }];
  if (method === 'DELETE') return list;
  list.push({ body: example ?? {} }, { body: { unknown: 1 } }, { body: '{broken' });
  list.push({ body: 'text', headers: { 'content-type': 'text/plain' } });
  list.push({ body: `"${'a'.repeat(1024 * 1024)}"` });
  if (method !== 'POST') return list;
  list.push({ body: example ?? {}, headers: { 'idempotency-key': 'a'.repeat(256) } });
  list.push({
    body: example ?? {},
    headers: {
      // Another one each time: the same on another path would be a reuse.
      get 'idempotency-key'() {
        return newId();
      },
    },
  });
  return list;
}

const malformed = ['x', '00000000', '../agents', '\0', '%', "'; drop table agents; --", 'A'.repeat(300)];

/** Everything that the agent has, made with a key that may. */
async function idsOf(call: Api, serviceUrl: string, agentId: string): Promise<Ids> {
  const sent = await call('POST', '/api/v1/chat/send', { agentId, content: 'theirs' });
  assert.equal(sent.status, 200, sent.text);
  const key = await call('POST', `/v1/agents/${agentId}/api-keys`, { name: 'theirs' });
  await call('PUT', `/v1/agents/${agentId}/secrets/TOKEN`, { value: 'theirs' });
  const snapshot = await call('POST', `/sandbox/${agentId}/snapshots`, {});
  assert.ok(snapshot.status < 300, snapshot.text);
  const deployments = await call('GET', `/v1/agents/${agentId}/deployments`);
  const { channelId, inboundEventId } = await channelWithEvent(call, serviceUrl, agentId);
  const { endpointId, deliveryId } = await endpointWithDelivery(call);
  return {
    agents: agentId,
    sandbox: agentId,
    conversations: sent.body.conversationId,
    runs: sent.body.runId,
    'api-keys': key.body.key.id,
    keyId: key.body.key.id,
    snapshotId: snapshot.body.snapshot.id,
    channels: channelId,
    'inbound-events': inboundEventId,
    schedules: await madeSchedule(call, agentId),
    'webhook-endpoints': endpointId,
    deliveryId,
    deploymentId: deployments.body.deployments[0].id,
  };
}

async function assertHidden(world: World, caller: string, theirs: Ids, calls: Operated[]): Promise<void> {
  const call = world.as(caller);
  const missing = Object.fromEntries(Object.keys(theirs).map((name) => [name, newId()])) as Ids;
  for (const one of calls) {
    for (const { body, headers, query = '' } of variants(one)) {
      const ask = (ids: Ids) =>
        // A getter among the headers gives another value each time it is copied.
        call(one.method, `${pathOf(one, ids)}${query}`, body, { ...headers });
      const expected = await ask(missing);
      const name = `${one.method} ${one.template}${query} ${JSON.stringify(body ?? '').slice(0, 40)}`;
      // Of a key nothing is looked up when the request is bad anyway.
      if (!name.includes('/v1/api-keys/{id}?')) {
        assert.equal(expected.status, 404, `${name}: ${expected.text}`);
        assert.equal(expected.text, '{"error":"Not found.","code":"not_found"}', name);
      }
      assert.equal(bytes(await ask(theirs)), bytes(expected), name);
    }
    for (const bad of malformed) {
      const ids = Object.fromEntries(
        Object.keys(theirs).map((name) => [name, encodeURIComponent(bad)]),
      ) as Ids;
      const reply = await call(one.method, pathOf(one, ids));
      const expected = await call(one.method, pathOf(one, missing));
      assert.equal(bytes(reply), bytes(expected), `${one.method} ${one.template} with ${bad}`);
    }
  }
}

test('404: of another organisation everything is as if it did not exist, byte for byte, on every call', async () => {
  const world = await sharedWorld();
  const theirs = await idsOf(world.as(world.keys.foreign), world.service.url, world.foreignAgentId);
  await assertHidden(world, world.keys.owner, theirs, underResource);
  const still = await world.as(world.keys.foreign)('GET', `/v1/agents/${world.foreignAgentId}`);
  assert.equal(still.status, 200);
});

test('404: to a key of one agent another agent of its organisation is as if it did not exist, on every call', async () => {
  const world = await sharedWorld();
  const theirs = await idsOf(world.call, world.service.url, world.agentId);
  // What is the organisation's is beyond such a key by its binding, whichever it is.
  const calls = underResource.filter(({ template }) => !/^\/v1\/(api-keys|webhook-endpoints)/.test(template));
  await assertHidden(world, world.keys.otherAgent, theirs, calls);
  assert.equal((await world.call('GET', `/v1/runs/${theirs.runs}`)).status, 200);
});

test('404: what belongs to another agent is not found under an agent that is seen', async () => {
  const world = await sharedWorld();
  const own = await idsOf(world.call, world.service.url, world.agentId);
  const others = [
    await idsOf(world.call, world.service.url, world.otherAgentId),
    await idsOf(world.as(world.keys.foreign), world.service.url, world.foreignAgentId),
  ];
  // Calls with an id beneath another one, which is the caller's own.
  const calls = underResource.filter(({ template }) => innerNames(template).length > 0);
  const known = new Set<string>(calls.flatMap(({ template }) => innerNames(template)));
  for (const name of ['keyId', 'deploymentId', 'snapshotId', 'deliveryId']) assert.ok(known.has(name), name);
  for (const one of calls) {
    const names = innerNames(one.template);
    const under = (pick: (name: keyof Ids) => string) =>
      pathOf(one, { ...own, ...Object.fromEntries(names.map((name) => [name, pick(name)])) });
    const expected = await world.call(one.method, under(newId));
    assert.equal(expected.status, 404, `${one.method} ${one.template}: ${expected.text}`);
    for (const theirs of others) {
      const reply = await world.call(
        one.method,
        under((name) => theirs[name]),
      );
      assert.equal(bytes(reply), bytes(expected), `${one.method} ${one.template}`);
    }
  }
});

test('404: a body names a foreign agent or conversation with no other answer than a missing one gets', async () => {
  const world = await sharedWorld();
  const { agentId, otherAgentId, foreignAgentId } = world;
  const foreign = await idsOf(world.as(world.keys.foreign), world.service.url, foreignAgentId);
  const other = await idsOf(world.call, world.service.url, otherAgentId);
  const send = (body: object, key = world.keys.owner) => {
    const headers = { 'idempotency-key': newId() };
    return world.as(key)('POST', '/api/v1/chat/send', { content: 'x', ...body }, headers);
  };
  const expected = await send({ agentId: newId() });
  assert.equal(expected.status, 404);
  const hidden: [string, object, string?][] = [
    ['foreign agent', { agentId: foreignAgentId }],
    ['malformed agent', { agentId: 'x' }],
    ['foreign agent, streamed', { agentId: foreignAgentId, stream: true }],
    ['foreign conversation', { agentId, conversationId: foreign.conversations }],
    ['missing conversation', { agentId, conversationId: newId() }],
    ['malformed conversation', { agentId, conversationId: 'x' }],
    ['conversation of another agent', { agentId, conversationId: other.conversations }],
    [
      'foreign agent and its conversation',
      { agentId: foreignAgentId, conversationId: foreign.conversations },
    ],
    ['agent of another key', { agentId }, world.keys.otherAgent],
  ];
  for (const [name, body, key] of hidden) assert.equal(bytes(await send(body, key)), bytes(expected), name);
  const mint = (id: string) =>
    world.call('POST', '/v1/api-keys', { name: 'x', scope: 'use', binding: 'agent-bound', agentId: id });
  const unknown = await mint(newId());
  assert.equal(unknown.status, 404);
  for (const id of [foreignAgentId, 'x']) assert.equal(bytes(await mint(id)), bytes(unknown));
});

test('404: git tells nothing of a foreign repository', async () => {
  const world = await sharedWorld();
  const ask = async (agentId: string, key: string, service: string) => {
    const authorization = `Basic ${Buffer.from(`berth:${key}`).toString('base64')}`;
    const url = `${world.service.url}/git/${agentId}.git/info/refs?service=${service}`;
    const response = await fetch(url, { headers: { authorization } });
    const headers = [...response.headers].filter(([name]) => !varying.has(name));
    return JSON.stringify([response.status, headers, await response.text()]);
  };
  for (const service of ['git-upload-pack', 'git-receive-pack']) {
    const expected = await ask(newId(), world.keys.owner, service);
    assert.match(expected, /^\[404,/);
    assert.equal(await ask(world.foreignAgentId, world.keys.owner, service), expected);
    assert.equal(await ask(world.agentId, world.keys.otherAgent, service), expected);
    assert.equal(await ask('x', world.keys.owner, service), expected);
    assert.match(await ask(world.agentId, world.keys.owner, service), /^\[200,/);
  }
});
