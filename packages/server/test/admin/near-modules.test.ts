import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { promisify } from 'node:util';

const source = new URL('../../src/', import.meta.url).href;

/** Prints the modules of the service that one process loads, by the names that the hook gives or by those of Node. */
const program = (isOurs: boolean) => `
  import { registerHooks } from 'node:module';
  const seen = new Set();
  ${isOurs ? `await import('${source}near-modules.mjs');` : ''}
  registerHooks({ load(url, context, nextLoad) { seen.add(url + ' ' + context.format); return nextLoad(url, context); } });
  const whole = await import('${source}config.ts');
  const again = await import('${source}domain/../config.ts');
  if (whole !== again) throw new Error('one file became two modules');
  await import('${source}compose.ts');
  process.stdout.write(JSON.stringify([...seen].sort()), () => process.exit());
`;

async function modulesOf(isOurs: boolean): Promise<string[]> {
  const args = ['--input-type=module', '--eval', program(isOurs)];
  const { stdout } = await promisify(execFile)(process.execPath, args, {
    timeout: 60_000,
    maxBuffer: 8_000_000,
  });
  return JSON.parse(stdout) as string[];
}

test('the files of the service are the same modules of the same format by their names alone as by a look at the disk', async () => {
  const [byName, byLook] = await Promise.all([modulesOf(true), modulesOf(false)]);
  assert.ok(byName.length > 400, String(byName.length));
  assert.deepEqual(byName, byLook);
});
