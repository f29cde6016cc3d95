/** Caps on spending. Periods are calendar days and months in UTC, as `date_trunc` of the database has them. */

export type BudgetPeriod = 'day' | 'month';

/** What an operator sets. `reject` is the only way so far in which a budget holds. */
export interface BudgetTerms {
  period: BudgetPeriod;
  limitMicros: bigint;
  onExceeded: 'reject';
}

export interface Budget extends BudgetTerms {
  /** In the present period. */
  spentMicros: bigint;
  /** What model calls that are under way may cost at most. */
  reservedMicros: bigint;
  /** The end of the present period. */
  resetsAt: Date;
}

/** When the period that `at` lies in ends and the next one begins. */
export function endOfPeriod(period: BudgetPeriod, at: Date): Date {
  const year = at.getUTCFullYear();
  const month = at.getUTCMonth();
  return new Date(period === 'day' ? Date.UTC(year, month, at.getUTCDate() + 1) : Date.UTC(year, month + 1));
}
