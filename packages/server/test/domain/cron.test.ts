import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readCron } from '../../src/domain/cron.ts';
import { DomainError } from '../../src/domain/errors.ts';
import { nextDue, readTimeZone } from '../../src/domain/time-zone.ts';

const minuteMs = 60_000;

/** All that are due in [from, to). */
function due(line: string, place: string, from: string, to: string): string[] {
  const cron = readCron('cron', line);
  const zone = readTimeZone('timeZone', place);
  const found: string[] = [];
  for (let at = Date.parse(from) - 1; ;) {
    const next = nextDue(cron, zone, at);
    if (next === null || next >= Date.parse(to)) return found;
    found.push(new Date(next).toISOString().slice(0, 16));
    at = next;
  }
}

test('a daily 02:30 is due once on each day, also on those when the clock changes', () => {
  assert.deepEqual(due('30 2 * * *', 'Europe/Berlin', '2026-03-28T00:00Z', '2026-03-31T00:00Z'), [
    '2026-03-28T01:30',
    // 02:30 is skipped: the moment at which the clock goes from 02:00 to 03:00.
    '2026-03-29T01:00',
    '2026-03-30T00:30',
  ]);
  assert.deepEqual(due('30 2 * * *', 'Europe/Berlin', '2026-10-24T00:00Z', '2026-10-27T00:00Z'), [
    '2026-10-24T00:30',
    // 02:30 comes twice: the first one.
    '2026-10-25T00:30',
    '2026-10-26T01:30',
  ]);
});

test('several times in the skipped hour are due together, once, at the change', () => {
  assert.deepEqual(due('*/15 2,3 * * *', 'America/New_York', '2026-03-08T06:00Z', '2026-03-08T08:00Z'), [
    '2026-03-08T07:00',
    '2026-03-08T07:15',
    '2026-03-08T07:30',
    '2026-03-08T07:45',
  ]);
});

test('a line for every hour goes by time that passes: nothing in the skipped hour, both times in the doubled one', () => {
  assert.deepEqual(due('30 * * * *', 'Europe/Berlin', '2026-03-29T00:00Z', '2026-03-29T03:00Z'), [
    '2026-03-29T00:30',
    '2026-03-29T01:30',
    '2026-03-29T02:30',
  ]);
  assert.deepEqual(due('30 * * * *', 'Europe/Berlin', '2026-10-25T00:00Z', '2026-10-25T03:00Z'), [
    '2026-10-25T00:30',
    '2026-10-25T01:30',
    '2026-10-25T02:30',
  ]);
});

test('a day of the month and a day of the week are alternatives when both are named', () => {
  assert.deepEqual(due('0 9 13 * FRI', 'UTC', '2026-11-06T00:00Z', '2026-11-21T00:00Z'), [
    '2026-11-06T09:00',
    '2026-11-13T09:00',
    '2026-11-20T09:00',
  ]);
  assert.deepEqual(due('0 9 */2 * FRI', 'UTC', '2026-11-06T00:00Z', '2026-11-21T00:00Z'), [
    '2026-11-13T09:00',
  ]);
});

test('names, lists, ranges, steps, both Sundays and the short names are read', () => {
  const same = (a: string, b: string) =>
    assert.deepEqual(
      due(a, 'UTC', '2026-01-01T00:00Z', '2026-03-01T00:00Z'),
      due(b, 'UTC', '2026-01-01T00:00Z', '2026-03-01T00:00Z'),
      `${a} = ${b}`,
    );
  same('0 0 * jan-feb mon', '0 0 * 1,2 1');
  same('0 0 * * 7', '0 0 * * SUN');
  same('0 0 * * FRI-SUN', '0 0 * * 0,5,6');
  same('5/20 1-9/4 * * *', '5,25,45 1,5,9 * * *');
  same('  @weekly ', '0 0 * * 0');
  same('@hourly', '0 * * * *');
  same('@Daily', '@midnight');
  same('@monthly', '0 0 1 * *');
  assert.deepEqual(due('0 0 29 2 *', 'UTC', '2026-01-01T00:00Z', '2033-01-01T00:00Z'), [
    '2028-02-29T00:00',
    '2032-02-29T00:00',
  ]);
  assert.deepEqual(due('@yearly', 'Asia/Tokyo', '2026-01-01T00:00Z', '2028-01-01T00:00Z'), [
    '2026-12-31T15:00',
    '2027-12-31T15:00',
  ]);
});

test('what is no line of cron, or is never due, is refused with what is wrong; so is a zone that is none', () => {
  const bad = [
    ['* * * *', /five fields/],
    ['*/10 * * * * *', /shortest interval is a minute/],
    ['60 * * * *', /"60" as minute/],
    ['* 24 * * *', /hour/],
    ['* * 0 * *', /day of the month/],
    ['* * * 13 *', /JAN to DEC/],
    ['* * * * 8', /day of the week/],
    ['5-1 * * * *', /"5-1"/],
    ['*/0 * * * *', /minute/],
    ['1,,2 * * * *', /minute/],
    ['? * L * *', /minute/],
    ['0 0 30 2 *', /never comes/],
    ['@reboot', /@daily/],
    ['', /five fields/],
  ] as const;
  for (const [line, message] of bad) {
    assert.throws(
      () => readCron('cron', line),
      (error: unknown) =>
        error instanceof DomainError && error.code === 'invalid_request' && message.test(error.message),
      line,
    );
  }
  for (const name of ['', 'Mars/Olympus', '+02:00', 'Europe/Berlin ', '../etc/passwd', 'x'.repeat(65)])
    assert.throws(() => readTimeZone('timeZone', name), /timeZone/, name);
});

/** Small and seeded (mulberry32), so that a failure can be seen again. */
function randomFrom(seed: number) {
  let state = seed;
  return (below: number): number => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return (((t ^ (t >>> 14)) >>> 0) % 1_000_000) % below;
  };
}

const formats = new Map<string, Intl.DateTimeFormat>();

/** Read from what is shown to people, and not as the service does it. */
function wallTime(place: string, atMs: number): number {
  const options = { timeZone: place, dateStyle: 'short', timeStyle: 'medium' } as const;
  const format = formats.get(place) ?? new Intl.DateTimeFormat('sv-SE', options);
  formats.set(place, format);
  return Date.parse(`${format.format(atMs).replace(' ', 'T')}Z`);
}

const changes = [
  ['Europe/Berlin', '2026-03-28T12:00Z'],
  ['Europe/Berlin', '2026-10-24T12:00Z'],
  ['America/New_York', '2026-03-07T12:00Z'],
  ['America/New_York', '2026-10-31T12:00Z'],
  // By half an hour.
  ['Australia/Lord_Howe', '2026-04-04T00:00Z'],
  ['Australia/Lord_Howe', '2026-10-03T00:00Z'],
  // By two hours.
  ['Antarctica/Troll', '2026-03-28T12:00Z'],
  ['Antarctica/Troll', '2026-10-24T12:00Z'],
  // At midnight, so that 00:00 is skipped, or a day begins twice.
  ['America/Santiago', '2026-09-05T12:00Z'],
  ['America/Santiago', '2026-04-04T12:00Z'],
  ['Africa/Cairo', '2026-04-23T12:00Z'],
  // At a minute past midnight.
  ['America/St_Johns', '2010-11-06T12:00Z'],
  // A whole day was skipped.
  ['Pacific/Apia', '2011-12-29T12:00Z'],
  ['Asia/Kolkata', '2026-03-28T12:00Z'],
] as const;

test('around every kind of clock change random lines are due as a walk through all minutes says', () => {
  const seed = Date.now() % 1_000_000;
  const random = randomFrom(seed);
  const pick = (min: number, max: number): number[] => {
    const values = Array.from({ length: 1 + random(3) }, () => min + random(max - min + 1));
    return [...new Set(values)].sort((a, b) => a - b);
  };
  for (const [place, from] of changes) {
    const zone = readTimeZone('timeZone', place);
    const startMs = Date.parse(from);
    const walk = Array.from({ length: 20 * 60 }, (_, minute) => {
      const atMs = startMs + minute * minuteMs;
      return { atMs, wallMs: wallTime(place, atMs) };
    });
    for (let round = 0; round < 20; round += 1) {
      const isSteady = random(3) === 0;
      const minutes = pick(0, 59);
      const hours = isSteady ? Array.from({ length: 24 }, (_, hour) => hour) : pick(0, random(2) ? 4 : 23);
      const line = `${minutes} ${isSteady ? '*' : hours} * * *`;
      const isDue = (wallMs: number) => {
        const date = new Date(wallMs);
        return minutes.includes(date.getUTCMinutes()) && hours.includes(date.getUTCHours());
      };
      const expected: number[] = [];
      let highMs = walk[0]!.wallMs;
      for (const { atMs, wallMs } of walk.slice(1)) {
        if (isSteady && isDue(wallMs)) expected.push(atMs);
        let isReached = false;
        for (; highMs < wallMs; highMs += minuteMs) isReached ||= isDue(highMs + minuteMs);
        if (!isSteady && isReached) expected.push(atMs);
      }
      const cron = readCron('cron', line);
      const found: number[] = [];
      for (let at = startMs; ;) {
        const next = nextDue(cron, zone, at);
        if (next === null || next > walk.at(-1)!.atMs) break;
        found.push(next);
        at = next;
      }
      const asText = (times: number[]) => times.map((at) => new Date(at).toISOString());
      assert.deepEqual(asText(found), asText(expected), `${line} in ${place}, seed ${seed}`);
      // It makes no difference from when one asks.
      const between = walk[random(walk.length)]!.atMs + random(minuteMs);
      const after = found.find((at) => at > between);
      if (after !== undefined)
        assert.equal(nextDue(cron, zone, between), after, `${line} in ${place}, seed ${seed}`);
    }
  }
});
