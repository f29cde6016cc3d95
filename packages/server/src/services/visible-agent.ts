import { canSeeAgent, requireVisible } from '../domain/access.ts';
import { notFound } from '../domain/errors.ts';
import { isId } from '../domain/ids.ts';
import type { Agent, Principal } from '../domain/nouns.ts';
import type { AgentStore } from '../store/agents.ts';

/**
 * What `work` for an agent gives. When it fails and the agent was deleted meanwhile, that is what the caller is told,
 * whatever came of it.
 */
export async function whileThere<T>(
  agents: Pick<AgentStore, 'get'>,
  agentId: string,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const isGone = await agents.get(agentId).then(
      (agent) => agent === null,
      // A database that is away says nothing of it.
      () => false,
    );
    throw isGone ? notFound() : error;
  }
}

/**
 * The agent, when it is the caller's to see. Whatever else is wrong is `not_found`, the same for a malformed id, a
 * missing agent, a deleted one and another organisation's.
 */
export async function visibleAgent(
  agents: Pick<AgentStore, 'get'>,
  p: Principal,
  agentId: string,
): Promise<Agent> {
  if (!isId(agentId)) throw notFound();
  // A caller that is bound to another agent needs no look-up.
  if (!canSeeAgent(p, { id: agentId, orgId: p.orgId })) throw notFound();
  return requireVisible(p, await agents.get(agentId));
}
