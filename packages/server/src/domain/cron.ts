import { invalid } from './errors.ts';

/** When a schedule is due: a line of cron, read once. The values of each field, in order. */
export interface Cron {
  minutes: readonly number[];
  hours: readonly number[];
  /** 1 to 31. */
  days: ReadonlySet<number>;
  /** 1 to 12. */
  months: ReadonlySet<number>;
  /** 0 = Sunday. */
  weekdays: ReadonlySet<number>;
  /** One of `days` and `weekdays` is enough, since both are given (POSIX crontab). */
  isEitherDay: boolean;
  /** Its hours are not named: it goes by time that passes, and not by what the clock on the wall says. */
  isSteady: boolean;
}

interface Field {
  name: string;
  min: number;
  max: number;
  names: readonly string[];
}

const weekdayNames = ['SUN', 'MON', 'TUE', 'WED', 'THU', 'FRI', 'SAT'];
const monthNames = ['JAN', 'FEB', 'MAR', 'APR', 'MAY', 'JUN', 'JUL', 'AUG', 'SEP', 'OCT', 'NOV', 'DEC'];

const fields: readonly Field[] = [
  { name: 'minute', min: 0, max: 59, names: [] },
  { name: 'hour', min: 0, max: 23, names: [] },
  { name: 'day of the month', min: 1, max: 31, names: [] },
  { name: 'month', min: 1, max: 12, names: monthNames },
  // 7 is Sunday too, as the end of a range.
  { name: 'day of the week', min: 0, max: 7, names: weekdayNames },
];

const shortcuts: Readonly<Record<string, string>> = {
  '@yearly': '0 0 1 1 *',
  '@annually': '0 0 1 1 *',
  '@monthly': '0 0 1 * *',
  '@weekly': '0 0 * * 0',
  '@daily': '0 0 * * *',
  '@midnight': '0 0 * * *',
  '@hourly': '0 * * * *',
};

const dayMs = 86_400_000;
const minuteMs = 60_000;
/** A 29th of February can be so far away. */
const farthestDays = 366 * 9;

/**
 * Five fields, minute to day of the week, as in crontab(5): `*`, numbers, names, lists, ranges, steps; or `@daily` and the
 * like. Throws `invalid_request` for `path`, also for a day that never comes.
 */
export function readCron(path: string, text: string): Cron {
  const line = text.trim().toLowerCase();
  if (line.startsWith('@') && !shortcuts[line]) {
    throw invalid(path, `may be one of ${Object.keys(shortcuts).join(', ')}, or five fields.`);
  }
  const texts = (shortcuts[line] ?? line).split(/\s+/);
  if (texts.length !== fields.length) {
    throw invalid(
      path,
      'must have five fields: minute, hour, day of the month, month, day of the week. There are no seconds: the shortest interval is a minute.',
    );
  }
  const [minutes, hours, days, months, weekdays] = texts.map((field, at) =>
    readField(path, fields[at]!, field),
  );
  const isStar = (at: number) => texts[at]!.startsWith('*');
  const cron: Cron = {
    minutes: minutes!,
    hours: hours!,
    days: new Set(days),
    months: new Set(months),
    weekdays: new Set(weekdays!.map((day) => day % 7)),
    isEitherDay: !isStar(2) && !isStar(4),
    isSteady: isStar(1),
  };
  if (nextWallTime(cron, 0) === null) throw invalid(path, 'names a day that never comes.');
  return cron;
}

function readField(path: string, field: Field, text: string): number[] {
  const found = new Set<number>();
  for (const item of text.split(',')) {
    const match = /^(\*|([a-z0-9]+)(?:-([a-z0-9]+))?)(?:\/(\d{1,4}))?$/.exec(item);
    if (!match) throw wrong(path, field, item);
    const [, whole, first, last, stepText] = match;
    const step = stepText === undefined ? 1 : Number(stepText);
    if (step < 1) throw wrong(path, field, item);
    const from = whole === '*' ? field.min : readValue(path, field, first!);
    // As in most crons `5/10` begins at 5 and goes on to the end.
    const isOpen = whole === '*' || (last === undefined && stepText !== undefined);
    const max = field.max === 7 ? 6 : field.max;
    const to = isOpen ? max : last === undefined ? from : readLast(path, field, last);
    if (to < from) throw wrong(path, field, item);
    for (let value = from; value <= to; value += step) found.add(value);
  }
  return [...found].sort((a, b) => a - b);
}

/** As the end of a range Sunday comes after Saturday. */
function readLast(path: string, field: Field, text: string): number {
  const value = readValue(path, field, text);
  return field.max === 7 && value === 0 ? 7 : value;
}

function readValue(path: string, field: Field, text: string): number {
  const named = field.names.indexOf(text.toUpperCase());
  if (named >= 0) return named + (field.max === 7 ? 0 : field.min);
  const value = /^\d{1,2}$/.test(text) ? Number(text) : Number.NaN;
  if (!(value >= field.min && value <= field.max)) throw wrong(path, field, text);
  return value;
}

function wrong(path: string, field: Field, item: string) {
  const names = field.names.length > 0 ? ` or ${field.names[0]} to ${field.names.at(-1)}` : '';
  return invalid(
    path,
    `has "${item.slice(0, 40)}" as ${field.name}; it takes *, numbers from ${field.min} to ${field.max}${names}, ranges (2-5), steps (*/15) and lists of these.`,
  );
}

/**
 * The first time after `wallMs` that the line names, by the clock on the wall: milliseconds as if that clock were UTC's.
 * Null when there is none in the next years.
 */
export function nextWallTime(cron: Cron, wallMs: number): number | null {
  const firstDay = Math.floor(wallMs / dayMs);
  for (let day = firstDay; day <= firstDay + farthestDays; day += 1) {
    if (!isDay(cron, day * dayMs)) continue;
    for (const hour of cron.hours) {
      const hourMs = day * dayMs + hour * 60 * minuteMs;
      if (hourMs + 60 * minuteMs <= wallMs) continue;
      for (const minute of cron.minutes) {
        const at = hourMs + minute * minuteMs;
        if (at > wallMs) return at;
      }
    }
  }
  return null;
}

function isDay(cron: Cron, ms: number): boolean {
  const date = new Date(ms);
  if (!cron.months.has(date.getUTCMonth() + 1)) return false;
  const isDate = cron.days.has(date.getUTCDate());
  const isWeekday = cron.weekdays.has(date.getUTCDay());
  return cron.isEitherDay ? isDate || isWeekday : isDate && isWeekday;
}
