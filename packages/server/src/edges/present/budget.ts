import type { Budget } from '../../domain/budget.ts';
import { formatMicros } from '../../domain/money.ts';

export function budgetOf(budget: Budget | null) {
  if (!budget) return { budget };
  const { period, limitMicros, onExceeded, spentMicros, reservedMicros, resetsAt } = budget;
  return {
    budget: {
      period,
      limit: formatMicros(limitMicros),
      onExceeded,
      spent: formatMicros(spentMicros),
      reserved: formatMicros(reservedMicros),
      resetsAt: resetsAt.toISOString(),
    },
  };
}
