import type { Log } from '../domain/log.ts';
import type { Database } from '../store/database.ts';
import { cancelRun } from '../store/run-life.ts';
import { activeRuns } from '../store/runs.ts';
import type { RunLife } from './run-life.ts';

/** Asks runs to end: a queued one has ended when this resolves, a running one is told to stop by its owner. */
export interface Cancel {
  one(run: { id: string; conversationId: string }): Promise<void>;
  /** Never rejects: what could not be asked is found again by the reaper. */
  allOf(filter: { conversationId: string } | { agentId: string }): Promise<void>;
}

export function createCancel(deps: {
  db: Database;
  life: Pick<RunLife, 'signal' | 'publish'>;
  log: Log;
}): Cancel {
  const { db, life, log } = deps;

  async function one(run: { id: string; conversationId: string }): Promise<void> {
    const cancelled = await cancelRun(db, run);
    if (cancelled.result === 'settled') life.publish.written([cancelled.event]);
    else if (cancelled.result === 'requested') life.signal(run.id);
  }

  return {
    one,
    async allOf(filter) {
      try {
        // The newest first, so that none of them starts because the one before it ended.
        for (const run of await activeRuns(db, filter)) await one(run);
      } catch (error) {
        log.error('Runs could not be cancelled; they will be found again.', { error: String(error) });
      }
    },
  };
}
