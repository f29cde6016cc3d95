import { deepEqual, equal, match, ok, rejects } from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import type { ModelCaller } from '../../src/domain/ports/model-gateway.ts';
import { createBudgetGuard, type BudgetGuardDependencies } from '../../src/services/budget-guard.ts';
import { putBudget, removeBudget } from '../../src/store/budgets.ts';
import type { Database, Sql } from '../../src/store/database.ts';
import { recordUsage } from '../../src/store/lanes.ts';
import { createOrgStore } from '../../src/store/orgs.ts';
import { testDatabase, type TestDatabase } from '../support/database.ts';
import { silentLog } from '../support/log.ts';
import { memoryBells } from '../support/memory-doorbell.ts';
import { until } from '../support/until.ts';

let world: TestDatabase;
before(async () => void (world = await testDatabase()));
after(() => world.close());

/** The database, with a count of the statements that were made of it. */
function counted(db: Database) {
  const count = { statements: 0 };
  const sql = new Proxy(db.sql, {
    apply(target, self, args) {
      count.statements += 1;
      return Reflect.apply(target as unknown as (...all: unknown[]) => unknown, self, args);
    },
  }) as Sql;
  const wrapped: Database = {
    ...db,
    get sql() {
      return sql;
    },
    get inTransaction() {
      return false;
    },
  };
  return { db: wrapped, count };
}

async function agentOf(): Promise<ModelCaller> {
  const orgId = newId();
  await createOrgStore(world.db).insert({ id: orgId, name: 'Ours' });
  return { orgId, agentId: newId(), sandboxId: newId(), model: 'priced/one', tokenHash: '', secretKeys: {} };
}

function guard(more: Partial<BudgetGuardDependencies> = {}) {
  const nodeId = more.nodeId ?? newId();
  return createBudgetGuard({ db: world.db, doorbell: memoryBells().join(), nodeId, log: silentLog, ...more });
}

const dayOf = (limitMicros: bigint) => ({ period: 'day', limitMicros, onExceeded: 'reject' }) as const;

async function spend(caller: ModelCaller, costMicros: bigint, reservationId: string | null): Promise<void> {
  const { orgId, agentId } = caller;
  await recordUsage(world.db, [
    {
      id: newId(),
      org_id: orgId,
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
      reservation_id: reservationId,
    },
  ]);
}

async function reservations(caller: ModelCaller): Promise<number> {
  return (await world.db.sql`select 1 from budget_reservations where agent_id = ${caller.agentId}`).length;
}

test('without a budget a thousand calls within a second cost one statement', async () => {
  const caller = await agentOf();
  const { db, count } = counted(world.db);
  let nowMs = Date.now();
  const { reserve } = guard({ db, now: () => nowMs });
  for (let call = 0; call < 1_000; call += 1) {
    const answer = await reserve(caller, 10n);
    ok(answer.ok && answer.id === null);
  }
  equal(count.statements, 1);
  nowMs += 1_000;
  await reserve(caller, 10n);
  equal(count.statements, 2);
});

test('a new budget holds at once where it was set and on other replicas, and after a second when no ring arrives', async () => {
  const caller = await agentOf();
  const bells = memoryBells();
  let nowMs = Date.now();
  const [here, there] = [1, 2].map(() => guard({ doorbell: bells.join(), now: () => nowMs }));
  const isLimited = async (one = here!) => {
    const answer = await one.reserve(caller, 10n);
    if (!answer.ok) return true;
    ok(answer.id === null);
    return false;
  };
  deepEqual([await isLimited(here), await isLimited(there)], [false, false]);
  await putBudget(world.db, caller.orgId, caller.orgId, dayOf(0n));
  here!.changed(caller.orgId);
  deepEqual([await isLimited(here), await isLimited(there)], [true, true]);
  await removeBudget(world.db, caller.orgId);
  deepEqual([await isLimited(here), await isLimited(there)], [false, false]);
  bells.broken = true;
  await putBudget(world.db, caller.orgId, caller.agentId, dayOf(0n));
  here!.changed(caller.agentId);
  deepEqual([await isLimited(here), await isLimited(there)], [true, false]);
  nowMs += 1_000;
  equal(await isLimited(there), true);
});

test('a refusal says whose budget it is and when it begins anew, and tells nothing of the organisation’s', async () => {
  const caller = await agentOf();
  const now = () => Date.parse('2026-11-28T10:00:00Z');
  const { reserve } = guard({ now });
  await putBudget(world.db, caller.orgId, caller.orgId, {
    period: 'month',
    limitMicros: 0n,
    onExceeded: 'reject',
  });
  const org = await reserve(caller, 1n);
  ok(!org.ok);
  match(org.message, /organisation's budget for this month is used up.*2026-12-01T00:00:00\.000Z/);
  ok(!/dollar/.test(org.message));
  await putBudget(world.db, caller.orgId, caller.agentId, dayOf(0n));
  const agent = await reserve(caller, 1n);
  ok(!agent.ok);
  match(agent.message, /agent's budget of 0\.000000 dollars for this day.*2026-11-29T00:00:00\.000Z/);
});

test('a call waits for those that have set aside what is left, and goes on when they cost less', async () => {
  const caller = await agentOf();
  await putBudget(world.db, caller.orgId, caller.agentId, dayOf(1_000n));
  const { reserve } = guard();
  const first = await reserve(caller, 5_000n);
  ok(first.ok && first.id !== null);
  const settled: string[] = [];
  const waiting = Array.from({ length: 3 }, async (_, index) => {
    const answer = await reserve(caller, 100n);
    settled.push(answer.ok ? `${index}` : answer.message);
  });
  equal(settled.length, 0);
  await spend(caller, 400n, first.id);
  await Promise.all(waiting);
  deepEqual(settled.sort(), ['0', '1', '2']);
  equal(await reservations(caller), 3);
});

test('a call that waits is refused when the budget is used up meanwhile, and when nothing ends in time', async () => {
  const caller = await agentOf();
  await putBudget(world.db, caller.orgId, caller.agentId, dayOf(1_000n));
  const { reserve } = guard({ maxWaitMs: 20 });
  const first = await reserve(caller, 5_000n);
  ok(first.ok);
  const late = await reserve(caller, 1n);
  ok(!late.ok);
  match(late.message, /set aside for model calls that are under way/);
  const patient = guard();
  const waiting = patient.reserve(caller, 1n);
  await spend(caller, 1_500n, first.id);
  const answer = await waiting;
  ok(!answer.ok);
  match(answer.message, /used up/);
});

test('a call without a use frees what was set aside, and a new start frees what a killed process left', async () => {
  const caller = await agentOf();
  await putBudget(world.db, caller.orgId, caller.agentId, dayOf(10_000n));
  const nodeId = newId();
  const { reserve } = guard({ nodeId });
  const first = await reserve(caller, 10n);
  ok(first.ok);
  first.release();
  await until('nothing is set aside', async () => (await reservations(caller)) === 0);
  await reserve(caller, 10n);
  await guard({ nodeId: newId() }).begin();
  equal(await reservations(caller), 1);
  await guard({ nodeId }).begin();
  equal(await reservations(caller), 0);
});

test('an estimate beyond all measure is set aside as a number that the database can hold', async () => {
  const caller = await agentOf();
  await putBudget(world.db, caller.orgId, caller.agentId, dayOf(10n));
  const answer = await guard().reserve(caller, 10n ** 40n);
  ok(answer.ok && answer.id !== null);
});

test('a database that is away for a moment makes a call wait; another error is passed on', async () => {
  const caller = await agentOf();
  let failures = 3;
  let code = 'ECONNREFUSED';
  const sql = new Proxy(world.db.sql, {
    apply(target, self, args) {
      if (failures-- > 0) return Promise.reject(Object.assign(new Error('no'), { code }));
      return Reflect.apply(target as unknown as (...all: unknown[]) => unknown, self, args);
    },
  }) as Sql;
  const db: Database = { ...world.db, sql, inTransaction: false };
  equal((await guard({ db }).reserve(caller, 1n)).ok, true);
  equal(failures, -1);
  failures = 1;
  code = 'ECONNREFUSED';
  await rejects(guard({ db, maxWaitMs: 0 }).reserve(caller, 1n), { code });
  failures = 1;
  code = '42601';
  await rejects(guard({ db }).reserve(caller, 1n), { code });
});
