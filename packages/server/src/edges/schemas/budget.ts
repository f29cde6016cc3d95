import { z } from 'zod';
import { dollarsPattern } from '../../domain/money.ts';
import { model, money, time } from './basics.ts';

const period = z
  .enum(['day', 'month'])
  .describe('A calendar day or month in UTC; with each one the budget begins anew.');
const onExceeded = z
  .enum(['reject'])
  .describe('Messages and model calls are refused with `budget_exceeded`.');

export const Budget = model(
  'Budget',
  z.object({
    period,
    limit: money('What may be spent in a period.'),
    onExceeded,
    spent: money('What has been spent in the present period.'),
    reserved: money('What model calls that are under way may cost at most.'),
    resetsAt: time('When the present period ends.'),
  }),
  'A cap on what an agent or the organisation spends.',
);

export const BudgetAnswer = model(
  'BudgetAnswer',
  z.object({ budget: Budget.nullable().describe('Null: nothing is capped.') }),
);

export const BudgetPut = model(
  'BudgetPut',
  z.strictObject({
    period,
    limit: z
      .string()
      .regex(dollarsPattern, 'must be a decimal text such as "25.00", with at most 6 decimal places')
      .describe('US dollars as a decimal text with at most 6 decimal places. `"0"` stops all work.'),
    onExceeded: onExceeded.optional(),
  }),
);
