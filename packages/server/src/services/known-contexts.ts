import { keepNewest } from '../domain/keep-newest.ts';

const MAX_ENTRIES = 5_000;

/**
 * Which conversations context ids of agents name. That changes only when the conversation is deleted, maybe on another
 * replica: nothing drops an entry then, and who is told that there is no such conversation looks again. Those that were
 * looked for longest ago go first.
 */
export function createKnownContexts(maxEntries = MAX_ENTRIES) {
  const known = new Map<string, string>();
  /** An agent's id has no space. */
  const nameOf = (agentId: string, contextId: string) => `${agentId} ${contextId}`;
  return {
    get: (agentId: string, contextId: string): string | null => known.get(nameOf(agentId, contextId)) ?? null,
    put(agentId: string, contextId: string, conversationId: string): void {
      keepNewest(known, nameOf(agentId, contextId), conversationId, maxEntries);
    },
  };
}
