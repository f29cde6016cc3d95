import { requireEdit } from '../domain/access.ts';
import { DomainError, notFound } from '../domain/errors.ts';
import { isId } from '../domain/ids.ts';
import type { Principal } from '../domain/nouns.ts';
import type { Cursors, Page, PageQuery } from '../domain/paging.ts';
import type { AgentStore } from '../store/agents.ts';
import type { InboundEventRow, InboundEventStore } from '../store/inbound-events.ts';
import { pageById } from './paging.ts';
import { visibleAgent } from './visible-agent.ts';

export type { InboundEventRow };

export interface InboundEventsService {
  list(p: Principal, agentId: string, query: PageQuery): Promise<Page<InboundEventRow>>;
  get(p: Principal, id: string): Promise<InboundEventRow>;
  /** Works on it once more. `conflict` unless it was ignored, failed or is dead, and its request is still there. */
  replay(p: Principal, id: string): Promise<InboundEventRow>;
}

export interface InboundEventsDependencies {
  agents: AgentStore;
  events: InboundEventStore;
  cursors: Cursors;
  wake: () => void;
}

/** Reading takes what reading the agent's conversations takes. */
export function createInboundEvents({
  agents,
  events,
  cursors,
  wake,
}: InboundEventsDependencies): InboundEventsService {
  async function visible(p: Principal, id: string): Promise<InboundEventRow> {
    const found = isId(id) ? await events.get(id) : null;
    if (!found) throw notFound();
    await visibleAgent(agents, p, found.agentId);
    return found;
  }

  return {
    async list(p, agentId, query) {
      await visibleAgent(agents, p, agentId);
      return pageById(cursors, `inbound:${agentId}`, query, (at) => events.list(agentId, at));
    },

    get: visible,

    async replay(p, id) {
      const before = await visible(p, id);
      requireEdit(p);
      if (!(await events.requeue(id))) {
        throw new DomainError(
          'conflict',
          `The event is ${before.state}; only one that was ignored, failed or is dead can be worked on again.`,
        );
      }
      wake();
      return visible(p, id);
    },
  };
}
