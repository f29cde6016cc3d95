import type { Doorbell } from './domain/ports/doorbell.ts';
import { createDueWorker, type DueWorker } from './runtime/due-worker.ts';
import {
  createAgentRemovals,
  type AgentRemovals,
  type AgentRemovalsDependencies,
} from './services/agent-removals.ts';

/** A ring may be lost, and a replica may die: what it left is found after so long. */
const LOOK_MS = 1_000;

/** What sees to it that nothing is left of deleted agents. */
export function openRemovals(
  options: Omit<AgentRemovalsDependencies, 'wake'> & { doorbell: Pick<Doorbell, 'on'> },
): { worker: DueWorker; close(): Promise<void> } {
  const log = options.log.child({ part: 'removals' });
  const worker = createDueWorker({ work: () => work, lookEveryMs: LOOK_MS, log });
  const work: AgentRemovals = createAgentRemovals({ ...options, wake: worker.wake, log });
  // Whoever deleted it may not be the one who has its sandbox.
  options.doorbell.on('agents', worker.wake);
  return {
    worker,
    async close() {
      await worker.stop();
      await work.stop();
    },
  };
}
