import type { EventBody } from '../domain/events.ts';
import type { Log } from '../domain/log.ts';
import type { Doorbell } from '../domain/ports/doorbell.ts';
import type { Database } from '../store/database.ts';
import { cancelQueuedRun, requestCancel } from '../store/run-life.ts';
import { activeRuns } from '../store/runs.ts';
import type { Hub } from './hub.ts';
import type { RunLife } from './run-life.ts';
import { publish } from './run-writer.ts';

/** Asks runs to end: a queued one has ended when this resolves, a running one is told to stop by its owner. */
export interface Cancel {
  one(run: { id: string; conversationId: string }): Promise<void>;
  /** Never rejects: what could not be asked is found again by the reaper. */
  allOf(filter: { conversationId: string } | { agentId: string }): Promise<void>;
}

const NO_USAGE = { inputTokens: 0, outputTokens: 0, cost: '0.000000' };

export function createCancel(deps: {
  db: Database;
  hub: Hub;
  doorbell: Doorbell;
  life: Pick<RunLife, 'signal'>;
  /** Told of a run that was cancelled before it began. */
  onCancelled: (runId: string) => void;
  log: Log;
}): Cancel {
  const { db, hub, doorbell, life, log } = deps;

  async function one(run: { id: string; conversationId: string }): Promise<void> {
    const at = new Date();
    const event: EventBody = { type: 'run.cancelled', data: { runId: run.id, usage: NO_USAGE } };
    const { result, seq } = await cancelQueuedRun(db, run.conversationId, run.id, event, at);
    if (seq !== null) {
      const place = { conversationId: run.conversationId, runId: run.id };
      publish(hub, (id) => doorbell.ring('events', id), place, [event], seq, at);
      deps.onCancelled(run.id);
      return;
    }
    if (result === 'running' || result === 'awaiting_input') {
      if (await requestCancel(db, run.id)) life.signal(run.id);
    }
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
