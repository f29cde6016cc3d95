import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { limits } from '../../src/domain/limits.ts';
import { createEgressRecords } from '../../src/services/egress-records.ts';
import type { EdgeWorld } from '../support/edge-world.ts';
import { edgeWorld } from '../support/edge-world.ts';
import { silentLog } from '../support/log.ts';

let world: EdgeWorld;
before(async () => void (world = await edgeWorld()));
after(() => world.close());

interface Answer {
  egress: { mode: string; allow: string[]; presets: string[]; isDefault: boolean; updatedAt: string | null };
  refusals: { host: string; port: number; reason: string; count: number; remedy: string | null }[];
  hosts: { host: string; sentBytes: number; receivedBytes: number; connections: number }[];
  details: { path: string }[];
}
const json = (answer: { json: unknown }) => answer.json as Answer;

test('an agent has the default policy until its owner sets another, and again after that is removed', async () => {
  const path = `/v1/agents/${world.agent.id}/egress`;
  const first = json(await world.call('GET', path)).egress;
  assert.deepEqual(
    [first.mode, first.presets, first.isDefault, first.updatedAt],
    ['list', ['npm'], true, null],
  );
  const body = { mode: 'open', deny: ['*.example.org'], allow: ['db.example:5432/tcp', '[2001:db8::1]:443'] };
  const set = await world.call('PUT', path, { body });
  assert.equal(set.status, 200, set.text);
  assert.deepEqual(json(set).egress, json(await world.call('GET', path)).egress);
  assert.deepEqual([json(set).egress.mode, json(set).egress.allow], ['open', body.allow]);
  assert.deepEqual(world.resources.egressChanges, [world.agent.id]);
  assert.equal((await world.call('DELETE', path)).status, 204);
  assert.equal(json(await world.call('GET', path)).egress.isDefault, true);
  assert.equal(world.resources.egressChanges.length, 2);
});

test('what is no rule and no preset is refused with its place, and changes nothing', async () => {
  const path = `/v1/agents/${world.agent.id}/egress`;
  const bad = [
    'https://a.example',
    'a.example:0',
    'a.example:70000',
    '*',
    '*.*.example',
    'a example',
    '',
    'ex_ämple',
  ];
  const answer = await world.call('PUT', path, {
    body: { mode: 'list', allow: bad, presets: ['npm', 'nope'] },
  });
  assert.equal(answer.status, 400);
  assert.deepEqual(
    json(answer).details.map((detail) => detail.path),
    [...bad.map((_, index) => `allow.${index}`), 'presets.1'],
  );
  const many = Array.from({ length: limits.egressRules + 1 }, (_, index) => `a${index}.example`);
  assert.equal((await world.call('PUT', path, { body: { mode: 'list', deny: many } })).status, 400);
  assert.equal((await world.call('PUT', path, { body: { mode: 'some' } })).status, 400);
  assert.equal(json(await world.call('GET', path)).egress.isDefault, true);
});

test('only edit access changes it, and what is foreign is not there', async () => {
  const path = `/v1/agents/${world.agent.id}/egress`;
  const body = { mode: 'open' };
  assert.equal((await world.call('GET', path, { key: world.keys.use })).status, 200);
  assert.equal((await world.call('PUT', path, { body, key: world.keys.use })).status, 403);
  assert.equal((await world.call('DELETE', path, { key: world.keys.use })).status, 403);
  for (const tail of ['', '/refusals', '/traffic'])
    assert.equal((await world.call('GET', path + tail, { key: world.keys.foreign })).status, 404);
  assert.equal((await world.call('PUT', path, { body, key: world.keys.foreign })).status, 404);
});

test('refusals are counted by kind with a remedy, bytes by host, and both are bounded', async () => {
  const { agent, resources } = world;
  const path = `/v1/agents/${agent.id}/egress`;
  // From noon on, so that no day ends meanwhile.
  let atMs = new Date().setUTCHours(12, 0, 0, 0);
  const records = createEgressRecords({ db: resources.db, log: silentLog, now: () => new Date((atMs += 1)) });
  const owner = { orgId: resources.orgId, agentId: agent.id };
  const refusal = { ...owner, port: 443, reason: 'not_listed' as const, message: 'No.' };
  for (let i = 0; i < 1_000; i += 1) records.refused({ ...refusal, host: 'a.example' });
  await records.flush();
  records.refused({ ...refusal, host: 'a.example' });
  records.refused({ ...refusal, host: 'evil\u001b[31m\n', port: 1, reason: 'private_address' });
  records.passed({ ...owner, host: 'b.example', sentBytes: 10, receivedBytes: 30, connections: 1 });
  records.passed({ ...owner, host: 'b.example', sentBytes: 1, receivedBytes: 2, connections: 0 });
  await records.flush();
  const found = json(await world.call('GET', `${path}/refusals`)).refusals;
  assert.deepEqual(
    found.map(({ host, count, remedy }) => [host, count, remedy]),
    [
      ['evil?[31m?', 1, null],
      ['a.example', 1_001, `berth egress allow ${agent.id} a.example:443`],
    ],
  );
  assert.deepEqual(json(await world.call('GET', `${path}/traffic`)).hosts, [
    { host: 'b.example', sentBytes: 11, receivedBytes: 32, connections: 1 },
  ]);
  const ledger = await resources.db.sql`
    select quantity::int as quantity from usage_ledger where agent_id = ${agent.id} and meter = 'egress.bytes'`;
  assert.deepEqual([...ledger], [{ quantity: 43 }]);
  // Names that a program makes up at will.
  for (let round = 0; round < 4; round += 1) {
    for (let i = 0; i < 300; i += 1) records.refused({ ...refusal, host: `${round}-${i}.example` });
    await records.flush();
  }
  const [count] = await resources.db.sql<{ count: number; total: number }[]>`
    select count(*)::int as count, sum(count)::int as total from egress_refusals where agent_id = ${agent.id}`;
  assert.equal(count!.count, limits.egressRefusals);
  const others = await resources.db.sql<{ count: number }[]>`
    select count::int as count from egress_refusals where agent_id = ${agent.id} and host = '(others)'`;
  assert.equal(others[0]!.count, 4 * 100);
  for (let i = 0; i < 700; i += 1) {
    records.passed({ ...owner, host: `${i}.c.example`, sentBytes: 1, receivedBytes: 0, connections: 1 });
    if (i % 150 === 0) await records.flush();
  }
  await records.flush();
  const [hosts] = await resources.db.sql<{ count: number; sent: number }[]>`
    select count(*)::int as count, sum(sent_bytes)::int as sent from egress_traffic
    where agent_id = ${agent.id} and host <> 'b.example'`;
  assert.deepEqual(hosts, { count: limits.egressHostsPerDay, sent: 700 });
  await records.close();
});
