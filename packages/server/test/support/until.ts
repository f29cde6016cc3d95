import { setTimeout as delay } from 'node:timers/promises';
import { within } from '../../src/domain/time-limit.ts';

/** Machines are slow at times; only what never comes about waits for it. */
const DEADLINE_MS = 60_000;
const LOOK_MS = 10;

/** Waits until `condition` gives something other than false, null or undefined, and gives that; `what` is said when it never does. */
export async function until<T>(
  what: string,
  condition: () => T | Promise<T>,
  deadlineMs = DEADLINE_MS,
): Promise<NonNullable<T>> {
  const endMs = Date.now() + deadlineMs;
  for (;;) {
    // A condition that never answers is one that does not hold.
    const value = await inTime(what, Promise.resolve(condition()), Math.max(endMs - Date.now(), 20));
    if (value) return value;
    if (Date.now() > endMs) throw tooLate(what, deadlineMs);
    await delay(LOOK_MS);
  }
}

/** What `work` gives; throws with `what` when it gives nothing in time. */
export function inTime<T>(what: string, work: PromiseLike<T>, deadlineMs = DEADLINE_MS): Promise<T> {
  return within(deadlineMs, work, () => {
    throw tooLate(what, deadlineMs);
  });
}

const tooLate = (what: string, deadlineMs: number) =>
  new Error(`After ${deadlineMs} ms it is still not so that ${what}.`);
