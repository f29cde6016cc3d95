import { DomainError, type ErrorCode } from '../domain/errors.ts';
import { newId } from '../domain/ids.ts';
import { limits } from '../domain/limits.ts';
import type { Log } from '../domain/log.ts';
import type { Principal } from '../domain/nouns.ts';
import type { TickTrigger } from '../domain/schedule.ts';
import type { Database } from '../store/database.ts';
import type { ScheduleRow, ScheduleStore, TickRow } from '../store/schedules.ts';
import type { Accepted, RunsService } from './api.ts';
import { missedTicks, nextTick } from './schedule-ticks.ts';

export interface ScheduleWorkDependencies {
  db: Database;
  schedules: ScheduleStore;
  runs: Pick<RunsService, 'send'>;
  now: () => number;
  log: Log;
}

export interface ScheduleWork {
  /** Fires what is due, and says how many ticks that were. */
  runDue(): Promise<number>;
}

/** Sends the message of a schedule and notes it, in the calling transaction. Throws what the send throws. */
export type FireTick = (
  schedule: ScheduleRow,
  tick: { trigger: TickTrigger; dueAt: Date; missedBefore: number },
) => Promise<TickRow>;

const graceMs = limits.scheduleGraceSeconds * 1000;
/** After a failure that is no refusal, such as that of the database. */
const retryMs = 30_000;
/** At once: each takes a connection to the database. */
const batch = 8;

export function createFire(deps: Omit<ScheduleWorkDependencies, 'log'>): FireTick {
  const { db, schedules, runs, now } = deps;

  return async (schedule, { trigger, dueAt, missedBefore }) => {
    const tickId = newId();
    const send = (conversationId: string | null): Promise<Accepted> =>
      runs.send(principalOf(schedule), {
        agentId: schedule.agentId,
        conversationId,
        content: schedule.content,
        parts: schedule.parts,
        metadata: {
          scheduleId: schedule.id,
          tickId,
          trigger,
          dueAt: dueAt.toISOString(),
          timeZone: schedule.timeZone,
        },
        onBusy: schedule.onBusy,
        source: 'schedule',
        // The tick's own row, written in this transaction, is what makes it happen once.
        idempotency: null,
      });
    return db.tx(async () => {
      const accepted = await send(schedule.conversationId).catch((error: unknown) => {
        // The conversation was deleted: another one takes its place.
        if (schedule.conversationId !== null && isCode(error, ['not_found'])) return send(null);
        throw error;
      });
      const kept = schedule.conversation === 'kept' ? accepted.conversationId : null;
      await schedules.keepConversation(schedule.id, kept);
      const { conversationId, runId } = accepted;
      const tick = tickRow(schedule, { id: tickId, trigger, dueAt, missedBefore });
      const fired: TickRow = { ...tick, state: 'fired', firedAt: new Date(now()), conversationId, runId };
      if (!(await schedules.addTick(fired))) throw new Error('This tick has been fired already.');
      return fired;
    });
  };
}

/**
 * Each tick is one transaction that holds its schedule: its record, its message, and the time of the next one are there
 * together or not at all, whoever dies and however many replicas look.
 */
export function createScheduleWork(deps: ScheduleWorkDependencies & { fire: FireTick }): ScheduleWork {
  const { db, schedules, now, log } = deps;

  async function work(schedule: ScheduleRow, dueAt: Date): Promise<void> {
    const nowMs = now();
    const missed = missedTicks(schedule, dueAt, nowMs - graceMs - 1);
    const tick = {
      trigger: 'schedule' as const,
      dueAt: missed?.last ?? dueAt,
      missedBefore: missed?.before ?? 0,
    };
    const skip = (reason: string, message: string) =>
      schedules.addTick({ ...tickRow(schedule, { id: newId(), ...tick }), reason, message });
    if (await schedules.hasTick(schedule.id, tick.dueAt)) {
      // The clock of the host was set back, and somebody changed the schedule: it has had this tick.
      log.debug('A tick that was fired already was left out.', { scheduleId: schedule.id });
    } else if (missed !== null && schedule.onMissed === 'skip') {
      await skip('missed', 'The service did not run when it was due.');
    } else {
      try {
        await deps.fire(schedule, tick);
      } catch (error) {
        if (!(error instanceof DomainError) || isCode(error, ['unavailable', 'internal'])) throw error;
        const laterMs = nowMs + (error.retryAfterSeconds ?? 0) * 1000;
        if (error.retryAfterSeconds !== undefined && laterMs < tick.dueAt.getTime() + graceMs)
          return schedules.postpone(schedule.id, new Date(laterMs));
        await skip(error.code, error.message);
      }
    }
    await schedules.proceed(schedule.id, nextTick(schedule, tick.dueAt.getTime()));
  }

  async function safely(id: string): Promise<boolean> {
    try {
      return await db.tx(async () => {
        const schedule = await schedules.take(id, new Date(now()));
        if (!schedule?.dueAt) return false;
        await work(schedule, schedule.dueAt);
        return true;
      });
    } catch (error) {
      log.warn('A schedule could not be worked on; it is tried again.', { scheduleId: id, error });
      await schedules
        .postpone(id, new Date(now() + retryMs))
        .catch((again: unknown) => log.debug('A schedule is looked at again at once.', { error: again }));
      return false;
    }
  }

  return {
    async runDue() {
      const ids = await schedules.due(new Date(now()), batch);
      const done = await Promise.all(ids.map(safely));
      return done.filter(Boolean).length;
    },
  };
}

function tickRow(
  schedule: ScheduleRow,
  tick: { id: string; trigger: TickTrigger; dueAt: Date; missedBefore: number },
): TickRow {
  return {
    ...tick,
    scheduleId: schedule.id,
    state: 'skipped',
    firedAt: null,
    reason: null,
    message: null,
    conversationId: null,
    runId: null,
  };
}

function isCode(error: unknown, codes: ErrorCode[]): boolean {
  return error instanceof DomainError && codes.includes(error.code);
}

/** A schedule may converse with its own agent, and nothing else. */
function principalOf(schedule: ScheduleRow): Principal {
  return {
    keyId: schedule.id,
    orgId: schedule.orgId,
    scope: 'use',
    binding: 'agent-bound',
    agentId: schedule.agentId,
  };
}
