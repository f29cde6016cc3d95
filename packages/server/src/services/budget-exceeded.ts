import { endOfPeriod, type BudgetPeriod } from '../domain/budget.ts';
import { DomainError } from '../domain/errors.ts';
import { formatMicros } from '../domain/money.ts';
import { budgetsOf } from '../store/budgets.ts';
import type { Database } from '../store/database.ts';

/**
 * What a caller, or an agent, is told. The organisation's figures are not for everybody who may talk to an agent, so
 * they are not in the text.
 */
export function usedUpText(
  budget: { ownerId: string; period: BudgetPeriod; limitMicros: bigint },
  orgId: string,
  at: Date,
): string {
  const { ownerId, period, limitMicros } = budget;
  const whose =
    ownerId === orgId
      ? `The organisation's budget for this ${period}`
      : `The agent's budget of ${formatMicros(limitMicros)} dollars for this ${period}`;
  const resets = endOfPeriod(period, at).toISOString();
  return `${whose} is used up. Raise it, or wait until it begins anew at ${resets}.`;
}

/** The refusal of a send, by the budget that is used up. */
export async function budgetExceeded(
  db: Database,
  orgId: string,
  agentId: string,
  at: Date,
): Promise<DomainError> {
  const full = (await budgetsOf(db, [orgId, agentId], at)).filter(
    (budget) => budget.spentMicros >= budget.limitMicros,
  );
  // The agent's own first, which says the most. Neither: it was raised a moment ago.
  const budget = full.find(({ ownerId }) => ownerId === agentId) ?? full[0];
  const text = budget ? usedUpText(budget, orgId, at) : 'A budget of the agent was used up; try again.';
  return new DomainError('budget_exceeded', text);
}
