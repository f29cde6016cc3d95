import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const fileOf = (name: string) => fileURLToPath(new URL(`../../src/${name}`, import.meta.url));

/** Processor time of ticks before and after whole collections, each the least of several rounds. */
const program = `
  const spent = () => { const { user, system } = process.cpuUsage(); return user + system; };
  const ticks = (count) => new Promise((resolve) => {
    const next = () => (count-- > 0 ? process.nextTick(next) : resolve());
    next();
  });
  async function least() {
    let least = Infinity;
    for (let round = 0; round < 9; round += 1) {
      const before = spent();
      await ticks(20_000);
      least = Math.min(least, spent() - before);
    }
    return least;
  }
  await import(${JSON.stringify(fileOf('kept-tick.mjs'))});
  await ticks(100_000);
  const before = await least();
  for (let round = 0; round < 6; round += 1) {
    await new Promise((resolve) => setImmediate(resolve));
    globalThis.gc();
  }
  await ticks(100_000);
  process.stdout.write(JSON.stringify({ before, after: await least() }));
`;

test('a tick of the service costs after whole collections what it did before', async () => {
  assert.match(readFileSync(fileOf('main.mjs'), 'utf8'), /^import '\.\/kept-tick\.mjs';$/m);
  const args = ['--expose-gc', '--input-type=module', '--eval', program];
  const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 60_000 });
  const { before, after } = JSON.parse(stdout) as { before: number; after: number };
  // It was five times as much.
  assert.ok(after < 2.5 * before, stdout);
});
