import type { Log } from '../domain/log.ts';
import { within } from '../domain/time-limit.ts';
import type { AgentStore } from '../store/agents.ts';

export interface AgentRemovalsDependencies {
  agents: Pick<AgentStore, 'claimRemovals' | 'markPurged'>;
  nodeId: string;
  /** Cancels runs, ends the sandbox, removes volume and repository. Idempotent: it is done again when it did not end. */
  remove: (agentId: string) => Promise<void>;
  /** Told when there may be room for one more. */
  wake: () => void;
  log: Log;
  /** For tests: the pause after the first failure, which doubles with each further one, and the longest. */
  pauseMs?: { first: number; longest: number };
  /** For tests: after so long a removal counts as failed. */
  limitMs?: number;
}

export interface AgentRemovals {
  /** Begins what is due, as far as there is room, and says how many those are. */
  runDue(): Promise<number>;
  /** Begins nothing more, and waits for what is under way. */
  stop(): Promise<void>;
}

const PAUSE_MS = { first: 1_000, longest: 60_000 };
const LIMIT_MS = 600_000;
/** Each may delete many files. */
const AT_ONCE = 8;

/**
 * Removes what the hosts keep of deleted agents, and tries again until nothing is left. The database says whose an agent
 * is: of the replica that has its sandbox, or of any once that one does not live. How often it has failed only this
 * process knows, and another begins with the shortest pause.
 */
export function createAgentRemovals(deps: AgentRemovalsDependencies): AgentRemovals {
  const { agents, nodeId, log, pauseMs = PAUSE_MS, limitMs = LIMIT_MS } = deps;
  const underWay = new Map<string, Promise<void>>();
  const failed = new Map<string, { times: number; dueMs: number }>();
  let isStopped = false;

  async function purge(agentId: string): Promise<void> {
    try {
      await within(limitMs, deps.remove(agentId), () => {
        throw new Error(`It has not ended after ${limitMs / 1000} s.`);
      });
      await agents.markPurged(agentId);
      failed.delete(agentId);
    } catch (error) {
      const times = (failed.get(agentId)?.times ?? 0) + 1;
      const waitMs = Math.min(pauseMs.first * 2 ** (times - 1), pauseMs.longest);
      failed.set(agentId, { times, dueMs: performance.now() + waitMs });
      log.error('Not all of a deleted agent could be removed; it is tried again.', {
        ...{ agentId, times, waitMs },
        error: String(error),
      });
    }
  }

  function begin(agentId: string): void {
    const removing = purge(agentId).finally(() => {
      underWay.delete(agentId);
      deps.wake();
    });
    underWay.set(agentId, removing);
  }

  return {
    async runDue() {
      const room = AT_ONCE - underWay.size;
      if (room <= 0 || isStopped) return 0;
      const nowMs = performance.now();
      const pausing = [...failed].filter(([, { dueMs }]) => dueMs > nowMs).map(([id]) => id);
      const claimed = await agents.claimRemovals(nodeId, [...underWay.keys(), ...pausing], room);
      if (isStopped) return 0;
      const ids = claimed.filter((id) => !underWay.has(id));
      ids.forEach(begin);
      // What is due and was not given is another replica's, or gone.
      const isAll = claimed.length < room;
      for (const [id, { dueMs }] of isAll ? failed : [])
        if (dueMs <= nowMs && !underWay.has(id)) failed.delete(id);
      return ids.length;
    },

    async stop() {
      isStopped = true;
      await Promise.all(underWay.values());
    },
  };
}
