import type { z } from 'zod';
import type { BudgetTerms } from '../../domain/budget.ts';
import { parseDollars } from '../../domain/money.ts';
import { route } from '../http/route.ts';
import { budgetOf } from '../present/budget.ts';
import { BudgetAnswer, BudgetPut } from '../schemas/budget.ts';
import * as example from '../schemas/examples.ts';

const tag = 'Budgets';
const bodyExample = { period: 'month', limit: '25.00' };
const reply = (description: string) => ({
  200: { description, schema: BudgetAnswer, example: { budget: example.budget } },
});

export const budgetRoutes = [
  route({
    id: 'getBudget',
    method: 'get',
    path: '/v1/budget',
    tag,
    access: 'org-use',
    summary: "Get the organisation's budget",
    description: 'With what is spent of it in the present period. Null when there is none.',
    replies: reply('The budget, or null.'),
    async handler({ services, caller }) {
      return { status: 200 as const, body: budgetOf(await services.budgets.get(caller, null)) };
    },
  }),
  route({
    id: 'putBudget',
    method: 'put',
    path: '/v1/budget',
    tag,
    access: 'org-edit',
    summary: "Set the organisation's budget",
    description:
      'It holds for all agents together, beside their own budgets, and from the next model call on. What was spent earlier in the period counts.',
    body: BudgetPut,
    bodyExample,
    replies: reply('The budget as it is now.'),
    async handler({ services, caller, body }) {
      return {
        status: 200 as const,
        body: budgetOf(await services.budgets.put(caller, null, termsOf(body))),
      };
    },
  }),
  route({
    id: 'deleteBudget',
    method: 'delete',
    path: '/v1/budget',
    tag,
    access: 'org-edit',
    summary: "Remove the organisation's budget",
    description: 'What is spent is counted on.',
    replies: { 204: { description: 'There is none.', schema: null } },
    async handler({ services, caller }) {
      await services.budgets.remove(caller, null);
      return { status: 204 as const };
    },
  }),
  route({
    id: 'getAgentBudget',
    method: 'get',
    path: '/v1/agents/{agentId}/budget',
    tag,
    access: 'use',
    summary: "Get an agent's budget",
    description: 'With what is spent of it in the present period. Null when there is none.',
    replies: reply('The budget, or null.'),
    async handler({ services, caller, params }) {
      return { status: 200 as const, body: budgetOf(await services.budgets.get(caller, params.agentId)) };
    },
  }),
  route({
    id: 'putAgentBudget',
    method: 'put',
    path: '/v1/agents/{agentId}/budget',
    tag,
    access: 'edit',
    summary: "Set an agent's budget",
    description:
      'It holds from the next model call on. What was spent earlier in the period counts. When it is used up, messages to the agent get 402 `budget_exceeded`, and running turns fail with that code.',
    body: BudgetPut,
    bodyExample,
    replies: reply('The budget as it is now.'),
    async handler({ services, caller, params, body }) {
      const budget = await services.budgets.put(caller, params.agentId, termsOf(body));
      return { status: 200 as const, body: budgetOf(budget) };
    },
  }),
  route({
    id: 'deleteAgentBudget',
    method: 'delete',
    path: '/v1/agents/{agentId}/budget',
    tag,
    access: 'edit',
    summary: "Remove an agent's budget",
    description: 'What is spent is counted on.',
    replies: { 204: { description: 'There is none.', schema: null } },
    async handler({ services, caller, params }) {
      await services.budgets.remove(caller, params.agentId);
      return { status: 204 as const };
    },
  }),
];

function termsOf({ period, limit, onExceeded = 'reject' }: z.output<typeof BudgetPut>): BudgetTerms {
  // The schema lets nothing else through.
  return { period, limitMicros: parseDollars(limit)!, onExceeded };
}
