import type { Budget } from '@berth/sdk';
import { text, UsageError, type Command, type Context } from '../command.ts';
import { findAgent } from '../find-agent.ts';
import { printOne } from '../print.ts';

function show(context: Context, budget: Budget | null): void {
  if (budget === null) {
    context.note('no budget: nothing caps what is spent\n');
    if (context.json) context.out('null\n');
    return;
  }
  printOne(context, budget, [
    ['period', budget.period],
    ['limit', `$${budget.limit}`],
    ['spent', `$${budget.spent}`],
    ['resets', budget.resetsAt],
  ]);
}

async function agentId(context: Context, nameOrId: string | undefined): Promise<string | undefined> {
  return nameOrId === undefined ? undefined : (await findAgent(context, nameOrId)).id;
}

export const budgetCommands: Command[] = [
  {
    name: 'budget show',
    usage: '[agent]',
    summary: 'Show what caps the spending of an agent, or of the organisation',
    positionals: [0, 1],
    run: async (context, [agent]) =>
      show(context, await context.client.budgets.get(await agentId(context, agent))),
  },
  {
    name: 'budget set',
    usage: '[agent] --limit DOLLARS --period day|month',
    summary: 'Cap the spending of an agent, or of the organisation',
    options: { limit: { type: 'string' }, period: { type: 'string' } },
    positionals: [0, 1],
    async run(context, [agent], values) {
      const limit = text(values, 'limit');
      const period = text(values, 'period') ?? 'month';
      if (limit === undefined) throw new UsageError('--limit is missing, such as --limit 10.00');
      if (period !== 'day' && period !== 'month') throw new UsageError('--period must be day or month');
      const input = { period, limit, onExceeded: 'reject' } as const;
      show(context, await context.client.budgets.set(input, await agentId(context, agent)));
    },
  },
  {
    name: 'budget remove',
    usage: '[agent]',
    summary: 'Remove the cap',
    positionals: [0, 1],
    async run(context, [agent]) {
      await context.client.budgets.remove(await agentId(context, agent));
      show(context, null);
    },
  },
];
