import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { recordUsage } from '../../src/store/lanes.ts';
import type { EdgeWorld } from '../support/edge-world.ts';
import { edgeWorld } from '../support/edge-world.ts';

let world: EdgeWorld;
before(async () => void (world = await edgeWorld()));
after(() => world.close());

const month = { period: 'month', limit: '25.5' };

test('a budget is set, read with what is spent, replaced and removed; the organisation’s beside the agent’s', async () => {
  const { resources, agent } = world;
  for (const [path, ownerId] of [
    ['/v1/budget', resources.orgId],
    [`/v1/agents/${agent.id}/budget`, agent.id],
  ] as const) {
    assert.equal((await world.call('GET', path)).text, '{"budget":null}');
    const set = await world.call('PUT', path, { body: month });
    assert.equal(set.status, 200, set.text);
    const now = new Date();
    const resetsAt = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1)).toISOString();
    const budget = {
      period: 'month',
      limit: '25.500000',
      onExceeded: 'reject',
      spent: '0.000000',
      reserved: '0.000000',
      resetsAt,
    };
    assert.deepEqual(set.json, { budget });
    assert.equal(resources.budgetChanges.at(-1), ownerId);
    assert.deepEqual((await world.call('GET', path)).json, { budget });
    const day = await world.call('PUT', path, { body: { period: 'day', limit: '0', onExceeded: 'reject' } });
    assert.equal((day.json as { budget: { limit: string } }).budget.limit, '0.000000');
    const told = resources.budgetChanges.length;
    for (let twice = 0; twice < 2; twice += 1) assert.equal((await world.call('DELETE', path)).status, 204);
    assert.equal(resources.budgetChanges.length, told + 2);
    assert.equal((await world.call('GET', path)).text, '{"budget":null}');
  }
});

test('what was spent before the budget was set counts, and both sums are told to the micro-dollar', async () => {
  const { resources, agent } = world;
  const rows = ['999999', '1', '2'].map((cost_micros, index) => ({
    id: newId(),
    org_id: resources.orgId,
    agent_id: index === 2 ? newId() : agent.id,
    run_id: null,
    key_id: null,
    meter: 'model.output_tokens',
    model: 'priced/one',
    quantity: 1,
    unit_price: '1',
    price_version: 'test',
    cost_micros,
    at: new Date().toISOString(),
    reservation_id: null,
  }));
  await recordUsage(resources.db, rows);
  const spent = async (path: string) => {
    const reply = await world.call('PUT', path, { body: month });
    return (reply.json as { budget: { spent: string } }).budget.spent;
  };
  assert.equal(await spent(`/v1/agents/${agent.id}/budget`), '1.000000');
  assert.equal(await spent('/v1/budget'), '1.000002');
});

test('a limit that is no exact amount, or a period that is none, is refused by the field', async () => {
  const path = `/v1/agents/${world.agent.id}/budget`;
  const before = (await world.call('GET', path)).text;
  const bad = ['', '-1', '1.0000001', '1e3', ' 1', '1 ', '.5', '1.', '1,5', 'NaN', '9999999999', '٣', '1\n'];
  for (const limit of [...bad, 5, 0.1, null, undefined]) {
    const reply = await world.call('PUT', path, { body: { period: 'day', limit } });
    assert.equal(reply.status, 400, `${limit} ${reply.text}`);
    assert.equal((reply.json as { details: { path: string }[] }).details[0]!.path, 'limit', String(limit));
  }
  for (const [field, value] of [
    ['period', 'week'],
    ['period', undefined],
    ['onExceeded', 'warn'],
    ['spent', '0'],
  ] as const) {
    const reply = await world.call('PUT', path, { body: { ...month, [field]: value } });
    assert.equal(reply.status, 400, `${field} ${reply.text}`);
    assert.equal((reply.json as { details: { path: string }[] }).details[0]!.path, field);
  }
  assert.equal((await world.call('GET', path)).text, before);
});

test('an agent-bound key may read and set its agent’s budget as its scope says, and sees nothing of the organisation’s', async () => {
  const { keys, agent } = world;
  const own = `/v1/agents/${agent.id}/budget`;
  assert.equal((await world.call('PUT', own, { key: keys.edit, body: month })).status, 200);
  assert.equal((await world.call('GET', own, { key: keys.use })).status, 200);
  const refused = async (method: string, path: string, key: string, code: string) => {
    const reply = await world.call(method, path, method === 'PUT' ? { key, body: month } : { key });
    assert.deepEqual([reply.status, (reply.json as { code: string }).code], [403, code], reply.text);
    assert.ok(!/\d\.\d/.test(reply.text));
  };
  await refused('PUT', own, keys.use, 'scope_insufficient');
  await refused('DELETE', own, keys.use, 'scope_insufficient');
  await refused('GET', '/v1/budget', keys.edit, 'binding_insufficient');
  await refused('PUT', '/v1/budget', keys.edit, 'binding_insufficient');
  await refused('PUT', '/v1/budget', keys.orgUse, 'scope_insufficient');
  assert.equal((await world.call('GET', '/v1/budget', { key: keys.orgUse })).status, 200);
});
