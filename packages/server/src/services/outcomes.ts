import type { ConversationEvent } from '../domain/events.ts';
import type { RunOutcome } from './api.ts';

const KEEP_MS = 10_000;
const MAX_KEPT = 5_000;

interface Place {
  conversationId: string;
  orgId: string;
  agentId: string;
  /** Seq of the run's first event, when this process accepted it. */
  firstSeq?: number;
}

interface Entry extends Place {
  /** Its first events, as long as nothing has followed them. */
  opening: () => ConversationEvent[];
  outcome: RunOutcome | null;
  /** It may have ended where this process did not see it. */
  isStale: boolean;
  waiters: Set<(outcome: RunOutcome | null) => void>;
}

/**
 * How the runs that this process accepted ended, for the callers that wait for them: an answer then needs no read.
 * What is not here is read from the database.
 */
export interface Outcomes {
  /**
   * From then on the run's end is heard. To be called before the run is accepted, since its end may be told before the answer of the
   * database has been read, and once more with what is known then.
   */
  expect(
    runId: string,
    place: Place,
    /** The run's first events, when they have just been committed: asked for until this turn of the event loop ends. */
    opening?: () => ConversationEvent[],
  ): void;
  find(runId: string): Readonly<Omit<Entry, 'waiters'>> | null;
  settle(outcome: RunOutcome): void;
  /** Null when the time is up, the signal aborts, the run is forgotten or the service drains first. */
  wait(runId: string, waitMs: number, signal?: AbortSignal): Promise<RunOutcome | null>;
  /**
   * Runs of a conversation (null = of all) may have ended elsewhere: they are not taken for unfinished any more
   * without a look. Answers with those for which somebody waits here.
   */
  stale(conversationId: string | null): string[];
  /** Whether somebody waits here for the run's end. */
  isAwaited(runId: string): boolean;
  /** The conversation is no more. */
  forget(conversationId: string): void;
  /** The run is no more. */
  forgetRun(runId: string): void;
  /** From now on nobody waits any more: who does, or comes to, looks how it is. */
  drain(): void;
}

const none = () => [];

export function createOutcomes(): Outcomes {
  const entries = new Map<string, Entry>();
  const byConversation = new Map<string, Set<string>>();
  let isDraining = false;

  function drop(runId: string): void {
    const entry = entries.get(runId);
    if (!entry) return;
    entries.delete(runId);
    const ids = byConversation.get(entry.conversationId);
    ids?.delete(runId);
    if (ids?.size === 0) byConversation.delete(entry.conversationId);
    // Of what is no more nothing will be told: who waits looks for himself.
    for (const waiter of entry.waiters) waiter(null);
  }

  function forgetLater(runId: string): void {
    setTimeout(() => drop(runId), KEEP_MS).unref();
  }

  /** Runs that nobody waits for, and that end on another replica, would stay for ever. */
  function trim(): void {
    for (const [id, entry] of entries) {
      if (entries.size < MAX_KEPT) return;
      if (entry.waiters.size === 0) drop(id);
    }
  }

  function add(runId: string, { conversationId, orgId, agentId }: Place): Entry {
    if (entries.size >= MAX_KEPT) trim();
    const waiters: Entry['waiters'] = new Set();
    const entry: Entry = {
      conversationId,
      orgId,
      agentId,
      opening: none,
      outcome: null,
      isStale: false,
      waiters,
    };
    entries.set(runId, entry);
    const ids = byConversation.get(conversationId);
    if (ids) ids.add(runId);
    else byConversation.set(conversationId, new Set([runId]));
    return entry;
  }

  return {
    expect(runId, place, opening) {
      const known = entries.get(runId);
      const entry = known ?? add(runId, place);
      if (place.firstSeq === undefined) return;
      entry.firstSeq = place.firstSeq;
      // It is accepted and was forgotten meanwhile, perhaps with its end.
      if (!known) entry.isStale = true;
      if (!opening) return;
      entry.opening = opening;
      setImmediate(() => (entry.opening = none));
    },
    find: (runId) => entries.get(runId) ?? null,
    settle(outcome) {
      const entry = entries.get(outcome.run.id);
      if (!entry || entry.outcome) return;
      entry.outcome = outcome;
      for (const waiter of entry.waiters) waiter(outcome);
      entry.waiters.clear();
      forgetLater(outcome.run.id);
    },
    wait(runId, waitMs, signal) {
      const entry = entries.get(runId);
      if (!entry || signal?.aborted) return Promise.resolve(null);
      if (entry.outcome) return Promise.resolve(entry.outcome);
      if (isDraining) return Promise.resolve(null);
      return new Promise((resolve) => {
        const timer = setTimeout(() => done(null), waitMs);
        const onAbort = () => done(null);
        const onOutcome = (outcome: RunOutcome | null) => done(outcome);
        function done(outcome: RunOutcome | null): void {
          clearTimeout(timer);
          signal?.removeEventListener('abort', onAbort);
          entry!.waiters.delete(onOutcome);
          resolve(outcome);
        }
        entry.waiters.add(onOutcome);
        signal?.addEventListener('abort', onAbort, { once: true });
      });
    },
    stale(conversationId) {
      const ids = conversationId === null ? entries.keys() : (byConversation.get(conversationId) ?? []);
      const waited: string[] = [];
      for (const id of ids) {
        const entry = entries.get(id)!;
        entry.isStale = true;
        if (entry.waiters.size > 0) waited.push(id);
      }
      return waited;
    },
    isAwaited: (runId) => (entries.get(runId)?.waiters.size ?? 0) > 0,
    forget(conversationId) {
      for (const id of byConversation.get(conversationId) ?? []) drop(id);
    },
    forgetRun: drop,
    drain() {
      isDraining = true;
      for (const { waiters } of entries.values()) for (const waiter of waiters) waiter(null);
    },
  };
}
