import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const source = (path: string) => JSON.stringify(fileURLToPath(new URL(`../../src/${path}`, import.meta.url)));

const script = `
  import { openSync } from 'node:fs';
  const { measure } = await import(${source('sandbox/disk/measure.ts')});
  const { removeVolume } = await import(${source('sandbox/volume.ts')});
  const { runGit } = await import(${source('repos/git-process.ts')});
  try { for (;;) openSync('/dev/null', 'r'); } catch {}
  for (const work of [
    () => measure(['/tmp/none'], 'bytes'),
    () => removeVolume('/tmp'),
    () => runGit(['--version'], { gitDir: null, timeoutMs: 1000 }),
  ]) await work().then(() => console.log('done'), (error) => console.log(error.message));
  await new Promise((resolve) => setTimeout(resolve, 50));
  console.log('alive');
  process.exit();`;

test('a machine without free descriptors fails what needs a process, and not the service', async () => {
  const { stdout, stderr } = await new Promise<{ stdout: string; stderr: string }>((resolve) => {
    const args = ['-c', 'ulimit -n 100; exec "$0" --input-type=module -e "$1"', process.execPath, script];
    execFile('/bin/sh', args, { timeout: 30_000 }, (_error, out, err) =>
      resolve({ stdout: out, stderr: err }),
    );
  });
  const lines = stdout.trim().split('\n');
  assert.equal(lines.length, 4, `${stdout}${stderr}`);
  for (const line of lines.slice(0, 3)) assert.match(line, /no file descriptors left/);
  assert.equal(lines[3], 'alive');
});
