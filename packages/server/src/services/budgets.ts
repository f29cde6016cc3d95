import { requireEdit, requireOrgBound } from '../domain/access.ts';
import { endOfPeriod, type Budget } from '../domain/budget.ts';
import { notFound } from '../domain/errors.ts';
import type { Principal } from '../domain/nouns.ts';
import type { AgentStore } from '../store/agents.ts';
import { budgetsOf, putBudget, removeBudget } from '../store/budgets.ts';
import type { Database } from '../store/database.ts';
import type { BudgetsService } from './api.ts';
import { visibleAgent } from './visible-agent.ts';

export interface BudgetsDependencies {
  db: Database;
  agents: AgentStore;
  /** Told after each change, so that no cache outlives it. */
  changed: (ownerId: string) => void;
  now?: () => Date;
}

export function createBudgets(deps: BudgetsDependencies): BudgetsService {
  const { db, agents, changed, now = () => new Date() } = deps;

  async function read(ownerId: string): Promise<Budget | null> {
    const at = now();
    const [row] = await budgetsOf(db, [ownerId], at);
    if (!row) return null;
    const { ownerId: _ownerId, ...budget } = row;
    return { ...budget, resetsAt: endOfPeriod(row.period, at) };
  }

  /** Whose budget it is, once the caller may do what it wants to do with it. */
  async function ownerOf(p: Principal, agentId: string | null, isChange: boolean): Promise<string> {
    if (agentId !== null) await visibleAgent(agents, p, agentId);
    if (isChange) requireEdit(p);
    if (agentId === null) requireOrgBound(p);
    return agentId ?? p.orgId;
  }

  async function change(p: Principal, agentId: string | null, write: (ownerId: string) => Promise<void>) {
    const ownerId = await ownerOf(p, agentId, true);
    await db.tx(async () => {
      if (agentId !== null && !(await agents.lock(agentId))) throw notFound();
      await write(ownerId);
      db.afterCommit(() => changed(ownerId));
    });
    return ownerId;
  }

  return {
    get: async (p, agentId) => read(await ownerOf(p, agentId, false)),
    async put(p, agentId, terms) {
      const ownerId = await change(p, agentId, (id) => putBudget(db, p.orgId, id, terms));
      // Null only when somebody else has removed it since.
      return (
        (await read(ownerId)) ?? {
          ...terms,
          spentMicros: 0n,
          reservedMicros: 0n,
          resetsAt: endOfPeriod(terms.period, now()),
        }
      );
    },
    async remove(p, agentId) {
      await change(p, agentId, (id) => removeBudget(db, id));
    },
  };
}
