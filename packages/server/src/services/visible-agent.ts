import { canSeeAgent, requireVisible } from '../domain/access.ts';
import { notFound } from '../domain/errors.ts';
import { isId } from '../domain/ids.ts';
import type { Agent, Principal } from '../domain/nouns.ts';
import type { AgentStore } from '../store/agents.ts';

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
