import { deepEqual, equal, ok } from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { endOfPeriod } from '../../src/domain/budget.ts';
import { newId } from '../../src/domain/ids.ts';
import { formatMicros, parseDollars } from '../../src/domain/money.ts';
import { budgetsOf, putBudget, releaseReservation, reserveBudget } from '../../src/store/budgets.ts';
import { recordUsage, type LedgerRow } from '../../src/store/lanes.ts';
import { createOrgStore } from '../../src/store/orgs.ts';
import { testDatabase, type TestDatabase } from '../support/database.ts';
import { seeded } from '../support/scripts.ts';

let world: TestDatabase;
before(async () => void (world = await testDatabase()));
after(() => world.close());

/** Whole numbers below a bound, the same for the same seed. */
function numbers(seed: number): (end: number) => number {
  const next = seeded(seed);
  return (end) => Math.floor(next() * end);
}

async function organisation(): Promise<string> {
  const id = newId();
  await createOrgStore(world.db).insert({ id, name: 'Ours' });
  return id;
}

function ledgerRow(orgId: string, agentId: string, costMicros: bigint, at: Date): LedgerRow {
  return {
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
    at: at.toISOString(),
    reservation_id: null,
  };
}

async function spentOf(ownerId: string, at: Date): Promise<bigint> {
  const [budget] = await budgetsOf(world.db, [ownerId], at);
  return budget!.spentMicros;
}

const cap = (period: 'day' | 'month', limitMicros: bigint) =>
  ({ period, limitMicros, onExceeded: 'reject' }) as const;

function wish(orgId: string, agentId: string, costMicros: bigint, at: Date) {
  const expiresAt = new Date(at.getTime() + 60_000);
  return { id: newId(), orgId, agentId, nodeId: newId(), costMicros, at, expiresAt };
}

test('money is the same after it was written and read, to the last micro-dollar', () => {
  const below = numbers(2026);
  for (let round = 0; round < 2_000; round += 1) {
    const micros = BigInt(below(2 ** 31)) * BigInt(below(400_000)) + BigInt(below(1000));
    equal(parseDollars(formatMicros(micros)), micros);
  }
  equal(formatMicros(999_999_999_999_999n), '999999999.999999');
});

test("sums over agents equal the organisation's and the ledger's, in each period, whatever is written twice or at once", async () => {
  const below = numbers(7);
  const { db } = world;
  const orgId = await organisation();
  const agents = Array.from({ length: 7 }, newId);
  await putBudget(db, orgId, orgId, cap('month', 1n));
  for (const [index, id] of agents.entries()) {
    await putBudget(db, orgId, id, cap(index % 2 ? 'day' : 'month', 1n));
  }
  // From the last days of one month to the first of the next, in other time zones' midnights too.
  const first = Date.UTC(2026, 1, 26, 22);
  const rows = Array.from({ length: 900 }, () => {
    const cost = BigInt(below(2 ** 31)) * BigInt(below(3)) + BigInt(below(3));
    const at = new Date(first + below(4 * 86_400_000));
    return ledgerRow(orgId, agents[below(agents.length)]!, cost, at);
  });
  const batches: LedgerRow[][] = [];
  for (let start = 0; start < rows.length;) {
    const size = 1 + below(20);
    batches.push(rows.slice(start, start + size));
    // Now and then a write whose answer was lost, tried again together with others.
    if (below(5) === 0) batches.push(rows.slice(Math.max(0, start - 5), start + size));
    start += size;
  }
  await Promise.all(batches.map((batch) => recordUsage(db, batch)));

  for (const at of [
    new Date(first + 3_600_000),
    new Date('2026-02-28T23:59:59.999Z'),
    new Date('2026-03-01T00:00:00Z'),
  ]) {
    const inPeriod = (period: 'day' | 'month') => (row: LedgerRow) => {
      const when = new Date(row.at);
      return (
        endOfPeriod(period, when).getTime() === endOfPeriod(period, at).getTime() &&
        row.at.slice(0, 10) <= at.toISOString().slice(0, 10)
      );
    };
    const sum = (some: LedgerRow[]) => some.reduce((total, row) => total + BigInt(row.cost_micros), 0n);
    equal(await spentOf(orgId, at), sum(rows.filter(inPeriod('month'))));
    for (const [index, id] of agents.entries()) {
      const own = rows.filter((row) => row.agent_id === id).filter(inPeriod(index % 2 ? 'day' : 'month'));
      equal(await spentOf(id, at), sum(own));
    }
  }
  const days = await db.sql<{ day: string; org: bigint; agents: bigint; ledger: bigint }[]>`
    select s.day::text, s.cost_micros as org,
      (select sum(a.cost_micros)::bigint from spending a where a.owner_id = any (${agents}) and a.day = s.day) as agents,
      (select sum(l.cost_micros)::bigint from usage_ledger l
        where l.org_id = ${orgId} and (l.at at time zone 'UTC')::date = s.day) as ledger
    from spending s where s.owner_id = ${orgId} order by s.day`;
  equal(days.length, 5);
  for (const day of days) deepEqual([day.agents, day.ledger], [day.org, day.org], day.day);
});

test('a row without a cost writes no sum', async () => {
  const orgId = await organisation();
  await recordUsage(world.db, [ledgerRow(orgId, newId(), 0n, new Date())]);
  equal((await world.db.sql`select 1 from spending where owner_id = ${orgId}`).length, 0);
});

test('a new day and a new month begin anew, at midnight UTC', async () => {
  const { db } = world;
  const orgId = await organisation();
  const agentId = newId();
  await putBudget(db, orgId, agentId, cap('day', 100n));
  await putBudget(db, orgId, orgId, cap('month', 150n));
  const at = (text: string) => new Date(text);
  const outcome = async (text: string) => {
    const asked = wish(orgId, agentId, 1n, at(text));
    const answer = await reserveBudget(db, asked);
    await releaseReservation(db, asked.id);
    return answer.outcome === 'used_up'
      ? `used_up ${answer.ownerId === orgId ? 'org' : 'agent'}`
      : answer.outcome;
  };
  await recordUsage(db, [ledgerRow(orgId, agentId, 100n, at('2026-11-29T23:59:59.999Z'))]);
  equal(await outcome('2026-11-29T23:59:59.999Z'), 'used_up agent');
  equal(await outcome('2026-11-30T00:00:00.000Z'), 'reserved');
  await recordUsage(db, [ledgerRow(orgId, agentId, 50n, at('2026-11-30T12:00:00Z'))]);
  equal(await outcome('2026-11-30T12:00:01Z'), 'used_up org');
  equal(await outcome('2026-12-01T00:00:00Z'), 'reserved');
  equal(endOfPeriod('day', at('2026-12-31T23:59:59.999Z')).toISOString(), '2027-01-01T00:00:00.000Z');
  equal(endOfPeriod('month', at('2028-02-29T00:00:00Z')).toISOString(), '2028-03-01T00:00:00.000Z');
});

test('calls at the same moment overshoot by no more than the last one that was let in', async () => {
  const below = numbers(99);
  const { db } = world;
  for (let round = 0; round < 6; round += 1) {
    const orgId = await organisation();
    const agents = [newId(), newId(), newId()];
    const limit = 1_000n;
    const largest = 300;
    await putBudget(db, orgId, orgId, cap('day', limit));
    const at = new Date();
    // Eight callers on as many connections, as of several replicas: each calls until it is told that all is spent.
    const callers = Array.from({ length: 8 }, async () => {
      for (;;) {
        const agentId = agents[below(3)]!;
        const asked = wish(orgId, agentId, BigInt(1 + below(largest)), at);
        const answer = await reserveBudget(db, asked);
        if (answer.outcome === 'used_up') return;
        if (answer.outcome === 'waiting') continue;
        equal(answer.outcome, 'reserved');
        const cost = BigInt(1 + below(Number(asked.costMicros)));
        await recordUsage(db, [{ ...ledgerRow(orgId, agentId, cost, at), reservation_id: asked.id }]);
      }
    });
    await Promise.all(callers);
    const [budget] = await budgetsOf(db, [orgId], at);
    ok(budget!.spentMicros >= limit, 'all of it could be spent');
    ok(budget!.spentMicros < limit + BigInt(largest), `${budget!.spentMicros} of ${limit}`);
    equal(budget!.reservedMicros, 0n);
  }
});

test('what is set aside counts until its call is recorded or released, or its time is up', async () => {
  const { db } = world;
  const orgId = await organisation();
  const agentId = newId();
  const at = new Date();
  await putBudget(db, orgId, agentId, cap('day', 100n));
  const reserved = async (when = at) => (await budgetsOf(db, [agentId], when))[0]!.reservedMicros;
  const [recorded, released, left] = [70n, 20n, 500n].map((cost) => wish(orgId, agentId, cost, at));
  for (const one of [recorded!, released!, left!]) equal((await reserveBudget(db, one)).outcome, 'reserved');
  equal((await reserveBudget(db, wish(orgId, agentId, 1n, at))).outcome, 'waiting');
  equal(await reserved(), 590n);
  await recordUsage(db, [{ ...ledgerRow(orgId, agentId, 30n, at), reservation_id: recorded!.id }]);
  await releaseReservation(db, released!.id);
  equal(await reserved(), 500n);
  const later = new Date(left!.expiresAt.getTime() + 1);
  equal(await reserved(later), 0n);
  equal((await reserveBudget(db, wish(orgId, agentId, 1n, later))).outcome, 'reserved');
  equal((await db.sql`select 1 from budget_reservations where id = ${left!.id}`).length, 0);
});
