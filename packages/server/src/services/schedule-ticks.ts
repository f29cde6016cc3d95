import { readCron } from '../domain/cron.ts';
import { limits } from '../domain/limits.ts';
import { nextDue, readTimeZone } from '../domain/time-zone.ts';

export interface Line {
  cron: string;
  timeZone: string;
}

/** The first tick after `afterMs`; null: never in the next years. */
export function nextTick({ cron, timeZone }: Line, afterMs: number): Date | null {
  const at = nextDue(readCron('cron', cron), readTimeZone('timeZone', timeZone), afterMs);
  return at === null ? null : new Date(at);
}

export interface Missed {
  /** The last of them. */
  last: Date;
  /** How many came before it. */
  before: number;
}

/** The ticks from `first` to `untilMs`; null when there is none. */
export function missedTicks(line: Line, first: Date, untilMs: number): Missed | null {
  if (first.getTime() > untilMs) return null;
  const missed: Missed = { last: first, before: 0 };
  while (missed.before < limits.scheduleMissedCounted) {
    const next = nextTick(line, missed.last.getTime());
    if (next === null || next.getTime() > untilMs) return missed;
    missed.last = next;
    missed.before += 1;
  }
  // Nobody wants to wait until the ticks of a year are counted: from here on only the last one is looked for.
  for (let span = 3_600_000; ; span *= 4) {
    let at = nextTick(line, untilMs - span);
    if (at === null || at.getTime() > untilMs) continue;
    for (; at !== null && at.getTime() <= untilMs; at = nextTick(line, at.getTime())) missed.last = at;
    return missed;
  }
}
