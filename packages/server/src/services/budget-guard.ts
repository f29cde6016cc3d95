import { isDatabaseAway } from '../domain/database-away.ts';
import { newId } from '../domain/ids.ts';
import type { Log } from '../domain/log.ts';
import type { Doorbell } from '../domain/ports/doorbell.ts';
import type { ModelGatewayHooks, ModelReservation } from '../domain/ports/model-gateway.ts';
import { releaseAllOf, releaseReservation, reserveBudget, type ReservationAnswer } from '../store/budgets.ts';
import type { Database } from '../store/database.ts';
import { usedUpText } from './budget-exceeded.ts';

/** Asked again after this time, so that no lost ring can keep a new budget from holding. */
const TRUST_NONE_MS = 1000;
const MAX_ENTRIES = 10_000;
/** Longer than a provider may take; only for reservations of a process that is gone and does not come back. */
const RESERVATION_MS = 30 * 60_000;
/** The first look comes soon, since a call that has just ended is about to be recorded; then each waits twice as long. */
const FIRST_POLL_MS = 10;
const MAX_POLL_MS = 250;
const MAX_WAIT_MS = 30_000;
/** A request may name any output limit, and sums of estimates must stay numbers that the database can hold. */
const MAX_ESTIMATE_MICROS = 10n ** 15n;

export interface BudgetGuard {
  reserve: ModelGatewayHooks['reserve'];
  /** A budget was set, changed or removed: asks anew, here and on the other replicas. To be called after the commit. */
  changed(ownerId: string): void;
  /** Frees what an earlier process of this node had set aside. */
  begin(): Promise<void>;
  close(): void;
}

export interface BudgetGuardDependencies {
  db: Database;
  doorbell: Doorbell;
  nodeId: string;
  log: Log;
  now?: () => number;
  /** For tests; how long a call waits for others to end when they have set aside what is left. */
  maxWaitMs?: number;
}

interface Wanted {
  orgId: string;
  agentId: string;
  estimateMicros: bigint;
}

/**
 * Asks the budgets of an agent and its organisation before each model call. Where there is none, which is remembered
 * for a second, a call costs no statement.
 */
export function createBudgetGuard(deps: BudgetGuardDependencies): BudgetGuard {
  const { db, doorbell, nodeId, log, now = Date.now, maxWaitMs = MAX_WAIT_MS } = deps;
  const noneUntilMs = new Map<string, number>();
  // An answer that was under way when a budget changed may be from before: it is not kept.
  let changes = 0;
  let isClosed = false;
  /** By agent: the last of the calls that wait. One after another, so that many of them do not ask more often. */
  const queues = new Map<string, Promise<unknown>>();

  function forgetAll(): void {
    changes += 1;
    noneUntilMs.clear();
  }
  doorbell.on('budgets', forgetAll);
  doorbell.onReconnect(forgetAll);

  /** A database that goes away for some seconds makes turns slower, and does not fail them. */
  async function askPatiently(id: string, wanted: Wanted): Promise<ReservationAnswer> {
    const deadline = performance.now() + maxWaitMs;
    for (;;) {
      try {
        return await ask(id, wanted);
      } catch (error) {
        if (!isDatabaseAway(error) || performance.now() >= deadline || isClosed) throw error;
        await new Promise((resolve) => setTimeout(resolve, MAX_POLL_MS));
      }
    }
  }

  async function ask(id: string, wanted: Wanted): Promise<ReservationAnswer> {
    const { orgId, agentId, estimateMicros } = wanted;
    const costMicros = estimateMicros < MAX_ESTIMATE_MICROS ? estimateMicros : MAX_ESTIMATE_MICROS;
    const changesBefore = changes;
    const atMs = now();
    const times = { at: new Date(atMs), expiresAt: new Date(atMs + RESERVATION_MS) };
    const answer = await db.outside(() =>
      reserveBudget(db, { id, orgId, agentId, nodeId, costMicros, ...times }),
    );
    if (answer.outcome === 'none' && changes === changesBefore) keepNone(agentId, atMs);
    return answer;
  }

  function keepNone(agentId: string, atMs: number): void {
    if (noneUntilMs.size >= MAX_ENTRIES) noneUntilMs.clear();
    noneUntilMs.set(agentId, atMs + TRUST_NONE_MS);
  }

  /** Calls under way set aside the most that they may cost, and mostly cost far less: what is left shows at their end. */
  async function waitInTurn(id: string, wanted: Wanted): Promise<ReservationAnswer> {
    const deadline = performance.now() + maxWaitMs;
    const before = queues.get(wanted.agentId);
    const mine = (async () => {
      await before;
      for (let pollMs = FIRST_POLL_MS; ; pollMs = Math.min(2 * pollMs, MAX_POLL_MS)) {
        const answer = await ask(id, wanted);
        if (answer.outcome !== 'waiting' || performance.now() >= deadline || isClosed) return answer;
        await new Promise((resolve) => setTimeout(resolve, pollMs));
      }
    })();
    const tail = mine.catch(() => undefined);
    queues.set(wanted.agentId, tail);
    try {
      return await mine;
    } finally {
      if (queues.get(wanted.agentId) === tail) queues.delete(wanted.agentId);
    }
  }

  function granted(id: string): ModelReservation {
    return {
      ok: true,
      id,
      release() {
        db.outside(() => releaseReservation(db, id)).catch((error: unknown) => {
          log.warn('A reservation could not be released; it lapses by itself.', { id, error: String(error) });
        });
      },
    };
  }

  return {
    async reserve({ orgId, agentId }, estimateMicros) {
      if ((noneUntilMs.get(agentId) ?? 0) > now()) return unlimited;
      const wanted = { orgId, agentId, estimateMicros };
      const id = newId();
      let answer = await askPatiently(id, wanted);
      if (answer.outcome === 'waiting') answer = await waitInTurn(id, wanted);
      if (answer.outcome === 'none') return unlimited;
      if (answer.outcome === 'reserved') return granted(id);
      if (answer.outcome === 'used_up')
        return { ok: false, message: usedUpText(answer, orgId, new Date(now())) };
      const whose = answer.ownerId === orgId ? "organisation's" : "agent's";
      const message = `What is left of the ${whose} budget is set aside for model calls that are under way; try again when they have ended.`;
      return { ok: false, message };
    },
    changed(ownerId) {
      forgetAll();
      doorbell.ring('budgets', ownerId);
    },
    begin: () => releaseAllOf(db, nodeId),
    close: () => void (isClosed = true),
  };
}

const unlimited: ModelReservation = { ok: true, id: null, release: () => {} };
