import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { DomainError } from '../../src/domain/errors.ts';
import { newId } from '../../src/domain/ids.ts';
import { putBudget } from '../../src/store/budgets.ts';
import { recordUsage, type Claim, type LedgerRow } from '../../src/store/lanes.ts';
import { runWorld, send, type RunWorld } from '../support/run-world.ts';
import { untilStopped } from '../support/scripts.ts';
import { until } from '../support/until.ts';

function ledgerRow({ owner }: RunWorld, agentId: string, costMicros: bigint): LedgerRow {
  return {
    id: newId(),
    org_id: owner.orgId,
    agent_id: agentId,
    run_id: null,
    key_id: null,
    meter: 'model.output_tokens',
    model: 'priced/one',
    quantity: 1,
    unit_price: '1',
    price_version: 'test',
    cost_micros: String(costMicros),
    at: new Date().toISOString(),
    reservation_id: null,
  };
}

const spend = (world: RunWorld, agentId: string, costMicros: bigint): Promise<void> =>
  recordUsage(world.db, [ledgerRow(world, agentId, costMicros)]);

/** Everything that a send writes. */
async function written({ db }: RunWorld): Promise<string> {
  const [row] = await db.sql`
    select (select count(*) from conversations)::int as conversations, (select count(*) from lanes)::int as lanes,
      (select count(*) from runs)::int as runs, (select count(*) from messages)::int as messages,
      (select count(*) from events)::int as events, (select count(*) from idempotency)::int as idempotency,
      (select sum(next_seq)::int from lanes) as seq`;
  return JSON.stringify(row);
}

const DAY_MS = 86_400_000;

/** What is used up today is not used up tomorrow: a test that is about today does not begin just before midnight. */
async function awayFromMidnight(): Promise<void> {
  const leftMs = DAY_MS - (Date.now() % DAY_MS);
  if (leftMs < 30_000) await delay(leftMs + 1);
}

const exceeded = (pattern: RegExp) => (error: unknown) => {
  assert.ok(error instanceof DomainError);
  assert.equal(error.code, 'budget_exceeded');
  assert.match(error.message, pattern);
  return true;
};

test('a send to an agent whose budget is used up is refused and records nothing; a replay gets its first answer', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { db, owner, agentId } = world;
  const otherId = await world.addAgent();
  const { runs } = await world.replica();
  await putBudget(db, owner.orgId, agentId, { period: 'day', limitMicros: 100n, onExceeded: 'reject' });
  await awayFromMidnight();
  const idempotency = { key: 'first', requestHash: 'h' };
  const first = await runs.send(owner, send('hello', { agentId, idempotency }));
  await runs.outcome(owner, first.runId, 60_000);
  await spend(world, agentId, 99n);
  const { conversationId } = first;
  const second = await runs.send(owner, send('still enough', { agentId, conversationId }));
  await runs.outcome(owner, second.runId, 60_000);

  await spend(world, agentId, 1n);
  const before = await written(world);
  const busy = ['enqueue', 'interrupt', 'reject'] as const;
  for (const onBusy of busy) {
    for (const place of [null, conversationId]) {
      const input = send('too much', {
        agentId,
        conversationId: place,
        onBusy,
        idempotency: { key: `${onBusy} ${place}`, requestHash: 'h' },
      });
      await assert.rejects(runs.send(owner, input), exceeded(/^The agent's budget of 0\.000100 dollars/));
    }
  }
  assert.equal(await written(world), before);

  const replayed = await runs.send(owner, send('hello', { agentId, idempotency }));
  assert.deepEqual([replayed.replayed, replayed.runId], [true, first.runId]);
  assert.equal((await runs.send(owner, send('hello', { agentId: otherId }))).replayed, false);
});

test('the organisation’s budget holds for all of its agents and for nobody else’s', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { db, owner, agentId } = world;
  const otherId = await world.addAgent();
  const { runs } = await world.replica();
  await awayFromMidnight();
  await spend(world, agentId, 60n);
  await putBudget(db, owner.orgId, owner.orgId, { period: 'month', limitMicros: 100n, onExceeded: 'reject' });
  await runs.send(owner, send('there is some left', { agentId: otherId }));
  await spend(world, otherId, 40n);
  for (const id of [agentId, otherId]) {
    await assert.rejects(
      runs.send(owner, send('too much', { agentId: id })),
      exceeded(/^The organisation's budget/),
    );
  }
});

test('what was spent yesterday does not count today', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { db, owner, agentId } = world;
  const { runs } = await world.replica();
  await putBudget(db, owner.orgId, agentId, { period: 'day', limitMicros: 100n, onExceeded: 'reject' });
  await awayFromMidnight();
  await spend(world, agentId, 100n);
  await assert.rejects(runs.send(owner, send('today', { agentId })), exceeded(/this day is used up/));
  await db.sql`update spending set day = day - 1 where owner_id = ${agentId}`;
  assert.equal((await runs.send(owner, send('a day later', { agentId }))).replayed, false);
});

test('what a turn used counts also when its run was lost to another owner', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { db, owner, agentId } = world;
  const { runs, life } = await world.replica({ script: untilStopped });
  const { conversationId } = await runs.send(owner, send('go', { agentId }));
  await until('it executes', async () => (await life.owned()).length === 1);
  const [lane] = await life.owned();
  const claim = { ...lane!, conversationId, agentId, epoch: '0' } as unknown as Claim;
  const past = life.open(claim);
  const messageId = newId();
  past.append({ type: 'message.delta', data: { runId: lane!.runId, messageId, text: 'from the past' } });
  await past.flushed();
  await until('the earlier owner knows', () => past.lost.aborted);
  past.addUsage([ledgerRow(world, agentId, 77n)], [], { isUrgent: true, isJoined: false });
  await until('it is in the ledger', async () => {
    const rows = await db.sql`select 1 from usage_ledger where agent_id = ${agentId} and cost_micros = 77`;
    return rows.length === 1;
  });
  const [day] = await db.sql`select cost_micros from spending where owner_id = ${agentId}`;
  assert.equal(day!['cost_micros'], 77n);
});
