import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { limits } from '../../src/domain/limits.ts';
import type { ModelUsage } from '../../src/domain/ports/model-gateway.ts';
import type { FakeSandbox } from '../support/fake-sandbox.ts';
import { runWorld, send } from '../support/run-world.ts';
import { gate } from '../support/scripts.ts';
import { until } from '../support/until.ts';

const usage = (sessionId: string | null): ModelUsage => ({
  model: 'demo/guide',
  sessionId,
  reservationId: null,
  priceVersion: '1',
  entries: [
    { meter: 'model.input_tokens', quantity: 10, unitPricePerMillionMicros: 3_000_000n, costMicros: 30n },
    { meter: 'model.cached_input_tokens', quantity: 5, unitPricePerMillionMicros: null, costMicros: 0n },
    { meter: 'model.output_tokens', quantity: 7, unitPricePerMillionMicros: 15_000_000n, costMicros: 105n },
  ],
});

test('model calls are counted for their run: in the answer, the row, the ledger and the log, also what comes late', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const door = gate();
  const seen: { session: string; sandboxId: string }[] = [];
  const { runs, runtime } = await world.replica({
    async script(turn, sandbox) {
      seen.push({ session: `session of ${turn.conversationId}`, sandboxId: sandbox.id });
      await door.opened;
      return { outcome: 'completed' };
    },
  });
  const sent: Awaited<ReturnType<typeof runs.send>>[] = [];
  for (const content of ['1', '2']) {
    sent.push(await runs.send(owner, send(content, { agentId })));
    await until('it is in its turn', () => seen.length === sent.length);
  }
  const caller = {
    orgId: owner.orgId,
    agentId,
    sandboxId: seen[0]!.sandboxId,
    model: '',
    tokenHash: '',
    secretKeys: {},
  };
  runtime.hooks.onUsage(caller, usage(seen[0]!.session));
  runtime.hooks.onUsage(caller, usage(seen[0]!.session));
  runtime.hooks.onUsage(caller, usage(seen[1]!.session));
  runtime.hooks.onUsage(caller, usage(null));
  door.open();
  const [first, second] = await Promise.all(sent.map(({ runId }) => runs.outcome(owner, runId, 60_000)));
  assert.deepEqual(first!.run.usage, { inputTokens: 30, outputTokens: 14, costMicros: 270n });
  assert.deepEqual(second!.run.usage, { inputTokens: 15, outputTokens: 7, costMicros: 135n });
  assert.deepEqual((await runs.get(owner, sent[0]!.runId)).usage, first!.run.usage);
  const log = await world.log(sent[0]!.conversationId);
  assert.equal(log.filter((event) => event.type === 'usage.recorded').length, 6);

  runtime.hooks.onUsage(caller, usage(seen[0]!.session));
  await until('what came late is counted', async () => {
    return (await runs.get(owner, sent[0]!.runId)).usage.costMicros === 405n;
  });
  // What is of no run is written by itself.
  await until('all is in the ledger', async () => {
    const [row] = await world.db.sql`select count(*)::int as n from usage_ledger`;
    return row!['n'] === 15;
  });
  const rows = await world.db.sql`
    select run_id, sum(cost_micros)::int as cost, count(*)::int as n from usage_ledger group by run_id order by n`;
  const sums = rows.map((row) => [row['run_id'], row['cost'], row['n']]);
  const expected = [
    [null, 135, 3],
    [sent[1]!.runId, 135, 3],
    [sent[0]!.runId, 405, 9],
  ];
  assert.deepEqual(new Set(sums.map(String)), new Set(expected.map(String)));
});

test('a turn of very many model calls tells the later ones joined, and nothing of them is lost or counted twice', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const door = gate();
  let sandboxId = '';
  const { runs, runtime } = await world.replica({
    async script(_turn, sandbox) {
      sandboxId = sandbox.id;
      await door.opened;
      return { outcome: 'completed' };
    },
  });
  const { runId, conversationId } = await runs.send(owner, send('1', { agentId }));
  await until('it is in its turn', () => sandboxId !== '');
  const caller = { orgId: owner.orgId, agentId, sandboxId, model: '', tokenHash: '', secretKeys: {} };
  const call = (model: string, reservationId: string | null = null) =>
    runtime.hooks.onUsage(caller, { ...usage(null), model, reservationId });
  const calls = 5_000;
  for (let i = 0; i < calls; i += 1) call(i < 4_000 ? 'demo/guide' : `demo/model-${i}`);
  // What was set aside for a call ends with its own row.
  const set = newId();
  await world.db.sql`
    insert into budget_reservations (id, org_id, agent_id, node_id, cost_micros, expires_at)
    values (${set}, ${owner.orgId}, ${agentId}, ${newId()}, 1, now() + interval '1 day')`;
  call('demo/guide', set);
  door.open();
  const { run } = await runs.outcome(owner, runId, 60_000);
  const all = {
    inputTokens: 15 * (calls + 1),
    outputTokens: 7 * (calls + 1),
    costMicros: 135n * BigInt(calls + 1),
  };
  assert.deepEqual(run.usage, all);
  assert.deepEqual((await runs.get(owner, runId)).usage, all);
  const [ledger] = await world.db.sql`
    select sum(quantity)::int as quantity, sum(cost_micros)::int as cost, count(*)::int as rows from usage_ledger`;
  assert.deepEqual([ledger!['quantity'], ledger!['cost']], [22 * (calls + 1), 135 * (calls + 1)]);
  // A thousand models have rows of their own; of the calls of one model, the joined ones share a few.
  assert.ok(ledger!['rows'] < 5_000, `${ledger!['rows']}`);
  const [spent] = await world.db
    .sql`select sum(cost_micros)::int as cost from spending where owner_id = ${agentId}`;
  assert.equal(spent!['cost'], 135 * (calls + 1));

  const log = await world.log(conversationId);
  assert.equal((await world.db.sql`select 1 from budget_reservations where id = ${set}`).length, 0);
  const told = log.filter((event) => event.type === 'usage.recorded').map(({ data }) => data);
  assert.ok(
    told.length > limits.usageEventsPerTurn.alone && told.length <= limits.usageEventsPerTurn.told,
    `${told.length}`,
  );
  const quantity = told.reduce((sum, data) => sum + Number(data['quantity']), 0);
  const micros = told.reduce((sum, data) => sum + Math.round(Number(data['cost']) * 1e6), 0);
  assert.deepEqual([quantity, micros], [22 * (calls + 1), 135 * (calls + 1)]);
  assert.ok(told.some((data) => data['model'] === 'others'));
  assert.equal(log.at(-1)!.type, 'run.completed');
});

test('a session that a harness names after the conversation of another agent counts for its own agent alone', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { owner, agentId } = world;
  const door = gate();
  const sandboxes: FakeSandbox[] = [];
  const { runs, runtime } = await world.replica({
    async script(_turn, sandbox) {
      sandboxes.push(sandbox);
      await door.opened;
      return { outcome: 'completed' };
    },
  });
  const victim = await runs.send(owner, send('1', { agentId }));
  await until('it is in its turn', () => sandboxes.length === 1);
  const other = await world.addAgent();
  const own = await runs.send(owner, send('2', { agentId: other }));
  await until('the other is in its turn', () => sandboxes.length === 2);
  sandboxes[1]!.sessions.set('forged', victim.conversationId);
  const caller = {
    orgId: owner.orgId,
    agentId: other,
    sandboxId: sandboxes[1]!.id,
    model: '',
    tokenHash: '',
    secretKeys: {},
  };
  runtime.hooks.onUsage(caller, usage('forged'));
  door.open();
  const [first, second] = await Promise.all(
    [victim, own].map(({ runId }) => runs.outcome(owner, runId, 60_000)),
  );
  assert.deepEqual(first!.run.usage, { inputTokens: 0, outputTokens: 0, costMicros: 0n });
  assert.deepEqual(second!.run.usage, { inputTokens: 0, outputTokens: 0, costMicros: 0n });
  const log = await world.log(victim.conversationId);
  assert.ok(log.every((event) => event.type !== 'usage.recorded'));
  await until('it is in the ledger', async () => {
    const rows = await world.db.sql`select agent_id, run_id from usage_ledger`;
    return rows.length === 3 && rows.every((row) => row['agent_id'] === other && row['run_id'] === null);
  });
});
