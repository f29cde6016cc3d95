import type { BudgetPeriod, BudgetTerms } from '../domain/budget.ts';
import type { Database } from './database.ts';

/** Caps and what is spent of them (`migrations/0003_budgets.sql`). An owner is an organisation or an agent. */

export interface BudgetRow extends BudgetTerms {
  ownerId: string;
  spentMicros: bigint;
  reservedMicros: bigint;
}

/** The budgets of these owners as they stand at `at`; none for an owner without one. */
export async function budgetsOf(db: Database, ownerIds: string[], at: Date): Promise<BudgetRow[]> {
  return db.sql<BudgetRow[]>`
    select owner_id as "ownerId", period, limit_micros as "limitMicros", on_exceeded as "onExceeded",
      spent_micros as "spentMicros", reserved_micros as "reservedMicros"
    from budgets_of(${ownerIds}::uuid[], ${at})`;
}

export async function putBudget(
  db: Database,
  orgId: string,
  ownerId: string,
  terms: BudgetTerms,
): Promise<void> {
  const { period, limitMicros, onExceeded } = terms;
  await db.sql`
    insert into budgets (owner_id, org_id, period, limit_micros, on_exceeded)
      values (${ownerId}, ${orgId}, ${period}, ${limitMicros}, ${onExceeded})
      on conflict (owner_id) do update set period = excluded.period, limit_micros = excluded.limit_micros,
        on_exceeded = excluded.on_exceeded, updated_at = now()`;
}

export async function removeBudget(db: Database, ownerId: string): Promise<void> {
  await db.sql`delete from budgets where owner_id = ${ownerId}`;
}

export interface ReservationRequest {
  id: string;
  orgId: string;
  agentId: string;
  nodeId: string;
  costMicros: bigint;
  at: Date;
  expiresAt: Date;
}

export type ReservationAnswer =
  | { outcome: 'none' }
  | { outcome: 'reserved' }
  /** `waiting`: what is left is set aside for other calls. The rest says whose budget it is, and which. */
  | { outcome: 'waiting' | 'used_up'; ownerId: string; period: BudgetPeriod; limitMicros: bigint };

/** Sets aside what a model call may cost, unless a budget of its agent or organisation is used up. */
export async function reserveBudget(db: Database, request: ReservationRequest): Promise<ReservationAnswer> {
  const { id, orgId, agentId, nodeId, costMicros, at, expiresAt } = request;
  const [row] = await db.sql<[ReservationAnswer]>`
    select outcome, owner_id as "ownerId", period, limit_micros as "limitMicros"
    from reserve_budget(${id}, ${orgId}, ${agentId}, ${nodeId}, ${costMicros}, ${at}, ${expiresAt})`;
  return row;
}

export async function releaseReservation(db: Database, id: string): Promise<void> {
  await db.sql`delete from budget_reservations where id = ${id}`;
}

/** A node that has just been started has no calls under way. */
export async function releaseAllOf(db: Database, nodeId: string): Promise<void> {
  await db.sql`delete from budget_reservations where node_id = ${nodeId}`;
}
