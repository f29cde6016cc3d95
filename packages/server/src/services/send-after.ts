import { DomainError } from '../domain/errors.ts';
import type { Database } from '../store/database.ts';
import { newestRunOf, runBefore } from '../store/runs.ts';
import type { RunsService } from './api.ts';
import type { Outcomes } from './outcomes.ts';
import { visibleRun } from './visible-conversation.ts';

export interface SendAfterDependencies {
  db: Database;
  outcomes: Pick<Outcomes, 'forgetRun'>;
  send: RunsService['send'];
}

/** Rolls back what was accepted behind another run than it was meant for. */
class MovedOn extends Error {
  readonly runId: string;

  constructor(runId: string) {
    super('More was said in the conversation.');
    this.runId = runId;
  }
}

/**
 * Accepts first and then looks what stands before: accepting takes the conversation's lock, which is held until the end
 * of the transaction, so that of two that go on from one run only one can stand directly behind it.
 */
export function createSendAfter({ db, outcomes, send }: SendAfterDependencies): RunsService['sendAfter'] {
  return async (p, afterRunId, input) => {
    const { conversationId } = await visibleRun(db, p, afterRunId);
    try {
      return await db.tx(async () => {
        const accepted = await send(p, { ...input, conversationId });
        if (accepted.replayed || (await runBefore(db, accepted.runId)) === afterRunId) return accepted;
        throw new MovedOn(accepted.runId);
      });
    } catch (error) {
      if (error instanceof MovedOn) {
        outcomes.forgetRun(error.runId);
        return null;
      }
      // Then it is the queue of a conversation that this would not have been said in.
      const isFull = error instanceof DomainError && error.code === 'queue_full';
      if (isFull && (await newestRunOf(db, conversationId)) !== afterRunId) return null;
      throw error;
    }
  };
}
