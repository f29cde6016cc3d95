import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import type { EdgeWorld } from '../support/edge-world.ts';
import { edgeWorld } from '../support/edge-world.ts';

let world: EdgeWorld;
before(async () => void (world = await edgeWorld()));
after(() => world.close());

interface View {
  sandbox: Record<string, unknown>;
  sandboxes: Record<string, unknown>[];
  nextCursor: string | null;
}
const body = (reply: { json: unknown }) => reply.json as View;

test('a sandbox that was never started is stopped, and starting shows what it uses and since when', async () => {
  const path = `/sandbox/${world.agent.id}`;
  const stopped = await world.call('GET', path);
  assert.equal(stopped.status, 200, stopped.text);
  assert.deepEqual(body(stopped).sandbox, {
    agentId: world.agent.id,
    state: 'stopped',
    frozen: false,
    sandboxId: null,
    node: null,
    since: null,
    cpuMicros: null,
    memoryBytes: null,
    processes: null,
    runningTurns: 0,
    costSoFar: '0.000000',
    reason: null,
  });
  const started = await world.call('POST', `${path}/start`);
  assert.equal(started.status, 200, started.text);
  const { sandbox } = body(started);
  assert.deepEqual(
    [sandbox['state'], sandbox['cpuMicros'], sandbox['memoryBytes'], sandbox['processes']],
    ['running', 1235, 4096, 3],
  );
  assert.match(sandbox['since'] as string, /Z$/);
  world.sandboxHost.states.get(world.agent.id)!.state = 'frozen';
  const frozen = body(await world.call('GET', path)).sandbox;
  assert.deepEqual([frozen['state'], frozen['frozen']], ['running', true]);
  for (const verb of ['stop', 'kill']) {
    const reply = await world.call('POST', `${path}/${verb}`);
    assert.deepEqual([reply.status, body(reply).sandbox['state']], [200, 'stopped'], reply.text);
  }
  const restarted = await world.call('POST', `${path}/restart`);
  assert.equal(body(restarted).sandbox['state'], 'running');
});

test('the list has one sandbox for each agent that the key sees, in pages', async () => {
  await world.resources.agents.create(world.resources.owner, { name: 'Second' });
  const first = await world.call('GET', '/sandbox?limit=1');
  assert.equal(first.status, 200, first.text);
  const second = await world.call('GET', `/sandbox?limit=1&cursor=${body(first).nextCursor}`);
  const ids = [...body(first).sandboxes, ...body(second).sandboxes].map((one) => one['agentId']);
  assert.equal(new Set(ids).size, 2);
  assert.equal(ids[1], world.agent.id);
  const bound = body(await world.call('GET', '/sandbox', { key: world.keys.use }));
  assert.deepEqual(
    bound.sandboxes.map((one) => one['agentId']),
    [world.agent.id],
  );
  assert.equal((await world.call('GET', '/sandbox?cursor=nonsense')).status, 400);
});

test('a key of scope use looks and changes nothing; a foreign sandbox is not found', async () => {
  const { keys, agent, sandboxHost } = world;
  const done = sandboxHost.calls.length;
  for (const verb of ['start', 'stop', 'restart', 'kill']) {
    const refused = await world.call('POST', `/sandbox/${agent.id}/${verb}`, { key: keys.use });
    assert.equal(refused.status, 403, refused.text);
    const hidden = await world.call('POST', `/sandbox/${agent.id}/${verb}`, { key: keys.foreign });
    assert.equal(hidden.text, '{"error":"Not found.","code":"not_found"}');
  }
  assert.equal(sandboxHost.calls.length, done);
  assert.equal((await world.call('GET', `/sandbox/${agent.id}`, { key: keys.use })).status, 200);
});

test('a start that is sent twice with one key is done once', async () => {
  const headers = { 'idempotency-key': newId() };
  const path = `/sandbox/${world.agent.id}/start`;
  const first = await world.call('POST', path, { headers });
  const done = world.sandboxHost.calls.length;
  const second = await world.call('POST', path, { headers });
  assert.equal(second.text, first.text);
  assert.equal(second.headers.get('idempotent-replayed'), 'true');
  assert.equal(world.sandboxHost.calls.length, done);
});
