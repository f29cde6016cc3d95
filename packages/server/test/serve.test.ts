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

function boundsOf(env: Record<string, string>): Record<string, string>[] {
  const { stdout } = spawnSync('sh', [script, 'doctor'], {
    // A bad value ends it at once.
    env: { PATH: process.env['PATH'], BERTH_PORT: 'none', NODE_OPTIONS: `--import=${look}`, ...env },
    encoding: 'utf8',
    timeout: 30_000,
  });
  const told = stdout.split('\n').filter((line) => line.startsWith('['));
  return told.map((line) => Object.fromEntries(JSON.parse(line)));
}

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
