import { keepNewest } from '../domain/keep-newest.ts';
import type { Agent } from '../domain/nouns.ts';
import type { Doorbell } from '../domain/ports/doorbell.ts';
import type { AgentStore } from '../store/agents.ts';
import type { Database } from '../store/database.ts';

/** An agent that was read is asked for again after this time, so that no lost ring can keep an old one alive. */
const TRUST_MS = 1000;
const MAX_ENTRIES = 2_000;

export interface KnownAgentsDependencies {
  db: Pick<Database, 'inTransaction'>;
  agents: Pick<AgentStore, 'get' | 'onChange'>;
  doorbell: Doorbell;
  now?: () => number;
}

export interface KnownAgents extends Pick<AgentStore, 'get'> {
  /** What `get` would give without asking the store; null when it would ask. Not for transactions. */
  peek(id: string): Agent | null;
}

/**
 * Reads of agents that are only shown, kept as keys are (docs/decisions/0052-known-agents.md): a change made here shows
 * with the answer that tells of it, one of another replica as soon as its ring is heard, within a second at the latest.
 * What changes something reads and locks the row itself.
 */
export function createKnownAgents(deps: KnownAgentsDependencies): KnownAgents {
  const { db, agents, doorbell, now = Date.now } = deps;
  const known = new Map<string, { agent: Agent; untilMs: number }>();
  // A read that was under way when something changed may have seen the row as it was before: it is not kept.
  let changes = 0;

  function forget(ids: Iterable<string>): void {
    changes += 1;
    for (const id of ids) known.delete(id);
  }

  agents.onChange((id) => {
    forget([id]);
    doorbell.ring('agents', id);
  });
  doorbell.on('agents', forget);
  doorbell.onReconnect(() => forget([...known.keys()]));

  async function read(id: string, askedMs: number): Promise<Agent | null> {
    const changesBefore = changes;
    const agent = await agents.get(id);
    if (agent === null || changes !== changesBefore) return agent;
    const entry = { agent: Object.freeze(agent), untilMs: askedMs + TRUST_MS };
    keepNewest(known, id, entry, MAX_ENTRIES);
    return agent;
  }

  function peekAt(id: string, nowMs: number): Agent | null {
    const entry = known.get(id);
    return entry && entry.untilMs > nowMs ? entry.agent : null;
  }

  return {
    peek: (id) => peekAt(id, now()),

    async get(id) {
      // A transaction sees its own writes.
      if (db.inTransaction) return agents.get(id);
      const nowMs = now();
      return peekAt(id, nowMs) ?? read(id, nowMs);
    },
  };
}
