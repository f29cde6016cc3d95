import { nextWallTime, type Cron } from './cron.ts';
import { invalid } from './errors.ts';

/**
 * The clock on the wall of a place, as the IANA database has it. Wall times are milliseconds as if that clock were UTC's.
 */
export interface TimeZone {
  name: string;
  /** What is added to UTC at this instant, in milliseconds. */
  offsetMs(atMs: number): number;
}

/** A stretch of time, its end not in it, in which the offset is the same. */
interface Stretch {
  fromMs: number;
  toMs: number;
  offsetMs: number;
}

const hourMs = 3_600_000;
const minuteMs = 60_000;
/** No place is farther from UTC, and no clock was ever set by more. */
const farMs = 26 * hourMs;
/** Two changes of a clock are never so near to each other that both fall between two probes. */
const probeMs = 6 * hourMs;
const maxKnown = 10_000;

const zones = new Map<string, TimeZone>();

/** Throws `invalid_request` for `path` when there is no such place. */
export function readTimeZone(path: string, name: string): TimeZone {
  const known = zones.get(name);
  if (known) return known;
  // `Intl` takes offsets too, which are no places and know no clock changes.
  if (!/^[A-Za-z][A-Za-z0-9_+-]*(\/[A-Za-z0-9_+-]+)*$/.test(name) || name.length > 64) throw unknown(path);
  let format: Intl.DateTimeFormat;
  try {
    format = new Intl.DateTimeFormat('en-US', {
      timeZone: name,
      calendar: 'gregory',
      hourCycle: 'h23',
      year: 'numeric',
      month: 'numeric',
      day: 'numeric',
      hour: 'numeric',
      minute: 'numeric',
      second: 'numeric',
    });
  } catch {
    throw unknown(path);
  }
  const zone: TimeZone = { name, offsetMs: remembered((atMs) => offsetOf(format, atMs)) };
  zones.set(name, zone);
  return zone;
}

function unknown(path: string) {
  return invalid(
    path,
    'is no time zone of the IANA database, such as Europe/Berlin, America/New_York or UTC.',
  );
}

/** Asking costs microseconds, and a time far away takes many questions: where a probe begins and ends is kept. */
function remembered(offsetMs: TimeZone['offsetMs']): TimeZone['offsetMs'] {
  const known = new Map<number, number>();
  const edge = (probe: number): number => {
    let offset = known.get(probe);
    if (offset === undefined) {
      if (known.size >= maxKnown) known.clear();
      known.set(probe, (offset = offsetMs(probe * probeMs)));
    }
    return offset;
  };
  return (atMs) => {
    const probe = Math.floor(atMs / probeMs);
    const before = edge(probe);
    return before === edge(probe + 1) ? before : offsetMs(atMs);
  };
}

function offsetOf(format: Intl.DateTimeFormat, atMs: number): number {
  const wholeMs = Math.floor(atMs / 1000) * 1000;
  const part: Record<string, number> = {};
  for (const { type, value } of format.formatToParts(wholeMs)) part[type] = Number(value);
  const { year, month, day, hour, minute, second } = part as Record<
    'year' | 'month' | 'day' | 'hour' | 'minute' | 'second',
    number
  >;
  return Date.UTC(year, month - 1, day, hour, minute, second) - wholeMs;
}

/**
 * The first instant after `afterMs` at which the line of cron is due in this place; null: never in the next years.
 *
 * A line that names its hours goes by the clock on the wall: it is due when that clock first reaches the time. One that
 * is skipped is therefore due at the moment of the change, and one that comes twice is due the first time only. A line
 * whose hours are `*` or `*\/n` goes by time that passes: each time that the clock shows is due, the doubled ones twice.
 */
export function nextDue(cron: Cron, zone: TimeZone, afterMs: number): number | null {
  return cron.isSteady ? nextSteady(cron, zone, afterMs) : nextNamed(cron, zone, afterMs);
}

function nextNamed(cron: Cron, zone: TimeZone, afterMs: number): number | null {
  // Before a clock was set back it showed later times: those are over.
  const reached = stretches(zone, afterMs - farMs, afterMs)
    .map(({ toMs, offsetMs }) => toMs + offsetMs - 1)
    .concat(afterMs + zone.offsetMs(afterMs));
  const wallMs = nextWallTime(cron, Math.max(...reached));
  return wallMs === null ? null : firstReached(zone, wallMs);
}

/** The first instant at which the clock on the wall shows this time or a later one. */
function firstReached(zone: TimeZone, wallMs: number): number {
  for (const { fromMs, toMs, offsetMs } of stretches(zone, wallMs - farMs, wallMs + farMs)) {
    const atMs = Math.max(fromMs, wallMs - offsetMs);
    if (atMs < toMs) return atMs;
  }
  return wallMs + farMs;
}

function nextSteady(cron: Cron, zone: TimeZone, afterMs: number): number | null {
  let fromMs = afterMs;
  for (;;) {
    const toMs = fromMs + 2 * farMs;
    for (const stretch of stretches(zone, fromMs, toMs)) {
      // The end of the stretch before is the first instant of this one, and may be due itself.
      const isFirst = stretch.fromMs === fromMs;
      const wallFrom = stretch.fromMs + stretch.offsetMs - (isFirst ? 0 : 1);
      const wallMs = nextWallTime(cron, wallFrom);
      if (wallMs !== null && wallMs < stretch.toMs + stretch.offsetMs) return wallMs - stretch.offsetMs;
    }
    const later = nextWallTime(cron, toMs + zone.offsetMs(toMs) - minuteMs);
    if (later === null) return null;
    fromMs = Math.max(toMs - 1, later - farMs);
  }
}

/** In order, without gaps, from `fromMs` to `toMs`. */
function stretches(zone: TimeZone, fromMs: number, toMs: number): Stretch[] {
  const found: Stretch[] = [];
  let open = { fromMs, offsetMs: zone.offsetMs(fromMs) };
  for (let atMs = fromMs; atMs < toMs; atMs += probeMs) {
    const nextMs = Math.min(atMs + probeMs, toMs);
    const offsetMs = zone.offsetMs(nextMs);
    if (offsetMs === open.offsetMs) continue;
    const changeMs = findChange(zone, atMs, nextMs);
    found.push({ ...open, toMs: changeMs });
    open = { fromMs: changeMs, offsetMs };
  }
  if (open.fromMs < toMs) found.push({ ...open, toMs });
  return found;
}

/** The first instant with the offset of `toMs`; clocks are set at whole seconds. */
function findChange(zone: TimeZone, fromMs: number, toMs: number): number {
  const offsetMs = zone.offsetMs(toMs);
  let low = Math.floor(fromMs / 1000);
  let high = Math.ceil(toMs / 1000);
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (zone.offsetMs(middle * 1000) === offsetMs) high = middle;
    else low = middle;
  }
  return high * 1000;
}
