import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const script = fileURLToPath(new URL('../../../scripts/serve', import.meta.url));

/** Prints which bounds the service's own process has, and then which ones what it starts would get. */
const look = `data:text/javascript,${encodeURIComponent(`
  const tell = () => console.log(JSON.stringify(Object.entries(process.env).filter(([name]) => /MALLOC|BOUNDS/.test(name))));
  tell();
  process.on('exit', tell);`)}`;

/**
 * Holds some forty megabytes, and lets others become garbage of the old space. Prints how much that space had in use, in megabytes, when each whole
 * collection had been put off for long enough.
 */
const grow = `data:text/javascript,${encodeURIComponent(`
  import { getHeapSpaceStatistics } from 'node:v8';
  const used = () => getHeapSpaceStatistics().find((space) => space.space_name === 'old_space').space_used_size / 1e6;
  globalThis.held = Array.from({ length: 400_000 }, (_, at) => ({ at, pair: [at, at] }));
  const peaks = [];
  for (let turn = 0, most = 0, kept = []; turn < 600; turn += 1) {
    for (let at = 0; at < 20_000; at += 1) kept.push({ at, text: 'x' + at, list: [at] });
    if (kept.length > 100_000) kept = [];
    const now = used();
    if (now < most - 10) peaks.push(Math.round(most));
    most = now < most - 10 ? now : Math.max(most, now);
    await new Promise(setImmediate);
  }
  console.log(JSON.stringify(peaks));`)}`;

/** The lines of JSON that a program says which the service loads before its own. */
function saidBy(program: string, env: Record<string, string> = {}): unknown[] {
  const { stdout } = spawnSync('sh', [script, 'doctor'], {
    // A bad value ends it at once.
    env: { PATH: process.env['PATH'], BERTH_PORT: 'none', NODE_OPTIONS: `--import=${program}`, ...env },
    encoding: 'utf8',
    timeout: 50_000,
  });
  const told = stdout.split('\n').filter((line) => line.startsWith('['));
  return told.map((line) => JSON.parse(line));
}

const boundsOf = (env: Record<string, string>): Record<string, string>[] =>
  saidBy(look, env).map((told) => Object.fromEntries(told as [string, string][]));

test('the service bounds its own memory, hands these bounds on to nothing that it starts, and leaves those alone that its operator set', () => {
  const bounds = ['MALLOC_ARENA_MAX', 'MALLOC_TRIM_THRESHOLD_', 'MALLOC_MMAP_THRESHOLD_'];
  const [own, others] = boundsOf({});
  assert.ok(bounds.every((name) => own?.[name] !== undefined));
  assert.deepEqual(others, {});
  const given = { MALLOC_ARENA_MAX: '3' };
  const [ownToo, othersToo] = boundsOf(given);
  assert.equal(ownToo?.['MALLOC_ARENA_MAX'], '3');
  assert.equal(ownToo?.['MALLOC_TRIM_THRESHOLD_'], own?.['MALLOC_TRIM_THRESHOLD_']);
  assert.deepEqual(othersToo, given);
});

test('the heap of the service grows by three quarters of what lives in it before it is collected, and not to four times as much', () => {
  const peaks = saidBy(grow)[0] as number[];
  peaks.sort((a, b) => a - b);
  assert.ok(peaks.length > 5, `${peaks}`);
  const median = peaks[Math.floor(peaks.length / 2)]!;
  assert.ok(median < 200, `${median} MB were in use, of ${peaks}`);
});
