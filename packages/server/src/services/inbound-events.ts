import { requireEdit } from '../domain/access.ts';
import { DomainError, invalid, notFound } from '../domain/errors.ts';
import { isId } from '../domain/ids.ts';
import { limits } from '../domain/limits.ts';
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
  /**
   * The same for those that failed or are dead, so many at once (`limits.replayedAtOnce`), the oldest first. Those whose
   * answer may have been sent (`doubtful`) are left to be looked at one by one.
   */
  replayFailed(
    p: Principal,
    agentId: string,
    which: { since: Date; channelId: string | null },
  ): Promise<{ replayed: number; left: number; doubtful: number }>;
}

export interface InboundEventsDependencies {
  agents: AgentStore;
  events: InboundEventStore;
  cursors: Cursors;
  /** There is work, once it is committed. */
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

    async replayFailed(p, agentId, which) {
      await visibleAgent(agents, p, agentId);
      requireEdit(p);
      if (which.channelId !== null && !isId(which.channelId)) throw invalid('channelId', 'must be an id.');
      const told = await events.requeueFailed(agentId, which, limits.replayedAtOnce);
      if (told.replayed > 0) wake();
      return told;
    },
  };
}
