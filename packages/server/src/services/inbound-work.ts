import { DomainError } from '../domain/errors.ts';
import { limits } from '../domain/limits.ts';
import { within } from '../domain/time-limit.ts';
import type { DueEvent } from '../store/inbound-queue.ts';
import { createInboundBegin } from './inbound-begin.ts';
import { createInboundEnd } from './inbound-end.ts';
import { TryLater } from './guarded-call.ts';
import { backoffMs, checkMs, patience, type InboundWorkDependencies, type Worked } from './inbound-terms.ts';

export interface InboundWork {
  /** Begins to work on what is due, and says how many events it looked at. Told by `wake` when there is room for more. */
  runDue(): Promise<number>;
  /** Begins nothing any more; resolves when nothing is worked on. */
  stop(): Promise<void>;
}

/** Longer than the database is ever away unnoticed; held anew as long as an event is worked on. */
const leaseMs = 60_000;
const holdEveryMs = 15_000;
const maxAttempts = 8;
const leastWaitMs = 1_000;
/** Whatever a provider asks for. */
const longestWaitMs = 3_600_000;
/** Events of one organisation, and of all, that this process works on at once. */
const perOrg = 16;
const perProcess = 256;

export function createInboundWork(deps: InboundWorkDependencies): InboundWork {
  const { queue, log, longestAttemptMs = limits.inboundAttemptSeconds * 1000 } = deps;
  const working = new Map<string, number>();
  const underWay = new Set<Promise<void>>();
  /** Runs whose end is listened for. */
  const followed = new Set<string>();
  const stopped = new AbortController();
  let isFresh = true;
  const begin = createInboundBegin({ ...deps, onBegun: follow });
  const end = createInboundEnd(deps);

  async function work(due: DueEvent, isGivenUp: AbortSignal): Promise<Worked> {
    if (due.cutOffs > limits.inboundCutOffs) {
      await queue.settle(due.id, 'dead', `The service ended ${due.cutOffs} times while it worked on it.`);
      return 'over';
    }
    const found = await deps.setups.open(due.channelId);
    if (!found) {
      await queue.settle(due.id, 'failed', 'The agent of the channel was deleted.');
      return 'over';
    }
    const kind = deps.kinds[found.row.kind];
    if (due.runId === null) return begin(due, kind, found.setup);
    return end.finish(due, due.runId, kind, found.setup, isGivenUp);
  }

  /** Goes on as soon as the run ends here; one that ends unheard is found by the next look. */
  async function follow(due: DueEvent, runId: string): Promise<void> {
    if (followed.has(runId)) return;
    followed.add(runId);
    try {
      if (!(await deps.db.outside(() => end.hasEnded(due, runId, stopped.signal)))) return;
      if (stopped.signal.aborted) return;
      const ended = await queue.claimEnded(due.id, deps.nodeId, leaseMs);
      if (ended) await track(attempt(ended));
    } catch (error) {
      log.debug('The end of a run will be looked for.', { runId, error });
    } finally {
      followed.delete(runId);
    }
  }

  /** Goes on with what a process that is gone has begun to show. What is shown when it is whole is found by a look. */
  async function resume(due: DueEvent): Promise<void> {
    if (due.runId === null || followed.has(due.runId)) return;
    const grows = await deps.streams.grows(due).catch(() => false);
    if (grows && !stopped.signal.aborted) await follow(due, due.runId);
  }

  /** One attempt; never rejects. */
  async function attempt(due: DueEvent): Promise<void> {
    working.set(due.orgId, (working.get(due.orgId) ?? 0) + 1);
    const held = setInterval(() => {
      queue.hold(due.id, due.attempts, leaseMs).catch(() => undefined);
    }, holdEveryMs);
    held.unref();
    try {
      await safely(due);
    } finally {
      clearInterval(held);
      const left = working.get(due.orgId)! - 1;
      if (left === 0) working.delete(due.orgId);
      else working.set(due.orgId, left);
      deps.wake();
    }
  }

  async function safely(due: DueEvent): Promise<void> {
    const givenUp = new AbortController();
    try {
      const worked = await within(longestAttemptMs, work(due, givenUp.signal), () => {
        givenUp.abort();
        throw new DomainError('unavailable', `It was given up after ${longestAttemptMs / 1000} seconds.`);
      });
      if (worked !== 'over') await retryLater(due, worked);
    } catch (error) {
      if (error instanceof TryLater) {
        const { message, afterMs, isTooMany } = error;
        return retryOrWait(due, { retry: message, afterMs, isTooMany });
      }
      const isFinal = error instanceof DomainError && finalCodes.has(error.code);
      const reason = error instanceof DomainError ? error.message : 'It could not be worked on.';
      const { id: eventId, attempts } = due;
      log.warn('An inbound event could not be worked on.', { eventId, attempts, error });
      if (!isFinal) return retryOrWait(due, { retry: reason, afterMs: null });
      await queue.settle(eventId, 'failed', reason).catch(waitsForLease(due));
    }
  }

  const waitsForLease =
    ({ id: eventId }: DueEvent) =>
    (error: unknown) =>
      log.warn('An inbound event waits for its lease to end.', { eventId, error });

  const retryOrWait = (due: DueEvent, retry: Retry) => retryLater(due, retry).catch(waitsForLease(due));

  async function retryLater(due: DueEvent, { retry, afterMs, isTooMany }: Retry): Promise<void> {
    const waitMs = afterMs === null ? backoffMs(due.attempts) : Math.min(afterMs, longestWaitMs);
    if (isTooMany && sinceStep(due) < limits.tooManyHours * 3_600_000)
      // Whoever was told the same at the same moment comes again at another one; "at once" is no answer to too many.
      return queue.postpone(due.id, Math.max(waitMs, leastWaitMs) * (1 + Math.random()), retry, {
        isAttempt: false,
      });
    if (due.attempts >= maxAttempts) return queue.settle(due.id, 'dead', retry);
    await queue.postpone(due.id, waitMs, retry);
  }

  function track(task: Promise<void>): Promise<void> {
    underWay.add(task);
    return task.finally(() => underWay.delete(task));
  }

  return {
    async runDue() {
      const share = deps.pace.share();
      const of = (places: number) => Math.ceil(places * share);
      if (stopped.signal.aborted || underWay.size >= of(perProcess)) return 0;
      if (isFresh) await queue.release(deps.nodeId);
      isFresh = false;
      const except = [...working].filter(([, count]) => count >= of(perOrg)).map(([orgId]) => orgId);
      const {
        due,
        underWay: turns,
        looked,
      } = await queue.claimDue({
        perOrg: of(perOrg),
        except,
        turnsPerOrg: of(limits.channelTurnsPerOrg),
        nodeId: deps.nodeId,
        leaseMs,
        checkMs,
        patience,
      });
      for (const event of due) void track(attempt(event));
      for (const event of turns) void resume(event);
      return looked;
    },
    async stop() {
      // Whoever listens for the end of a run on another replica would listen for long.
      stopped.abort();
      while (underWay.size > 0) await Promise.all(underWay);
    },
  };
}

type Retry = Exclude<Worked, 'over'>;

/** Milliseconds since its state changed: since its turn began, or somebody asked for a replay. */
const sinceStep = ({ history, receivedAt }: DueEvent): number =>
  Date.now() - Date.parse(history.at(-1)?.at ?? receivedAt.toISOString());

/** What another attempt cannot change. */
const finalCodes = new Set([
  'budget_exceeded',
  'invalid_request',
  'invalid_json',
  'not_found',
  'unsupported_media_type',
]);
