import assert from 'node:assert/strict';
import { test } from 'node:test';
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
