import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const source = (path: string) => JSON.stringify(fileURLToPath(new URL(`../../src/${path}`, import.meta.url)));

/** It says what is so while it has no descriptor left, and what is so afterwards. */
const script = (folder: string) => `
  import { spawn } from 'node:child_process';
  import { once } from 'node:events';
  import { closeSync, openSync } from 'node:fs';
  const { gone, isRunning, killKnown, markedProcesses, processOf, startTime } =
    await import(${source('sandbox/processes.ts')});
  const { adoptedMonitor, watchedMonitor } = await import(${source('sandbox/monitor.ts')});
  const { Records } = await import(${source('sandbox/record.ts')});
  const { markedByEnvironment } = await import(${source('sandbox/process/marked.ts')});
  const child = spawn('sleep', ['600']);
  await once(child, 'spawn');
  const exit = once(child, 'exit');
  const known = processOf(child.pid);
  const records = new Records(${JSON.stringify(folder)});
  let ends = 0;
  const taken = [];
  try { for (;;) taken.push(openSync('/dev/null', 'r')); } catch {}
  const rejects = (work) => { try { work(); return false } catch (error) { return error.code } };
  const monitors = [
    watchedMonitor({ told: new Promise(() => {}), init: known, monitor: known, exitCode: () => null, isHeld: true }),
    adoptedMonitor(known, known, () => null),
  ];
  for (const { ended } of monitors) ended.then(() => (ends += 1));
  killKnown(known);
  const without = {
    isRunning: isRunning(known.pid, known.since),
    startTime: rejects(() => startTime(known.pid)),
    marked: [rejects(markedProcesses), rejects(() => markedByEnvironment('x'))],
    records: [rejects(() => records.read('x')), rejects(() => records.list())],
    gone: await gone(known.pid, known.since, 1_500).then(() => 'gone', (error) => error.message),
    ends,
    exitCode: child.exitCode ?? child.signalCode,
  };
  for (const file of taken) closeSync(file);
  const [, signal] = await exit;
  await Promise.all(monitors.map(({ ended }) => ended));
  await gone(known.pid, known.since, 1_000);
  const after = { isRunning: isRunning(known.pid, known.since), startTime: startTime(known.pid), signal };
  const read = [records.read('x'), records.list()];
  console.log(JSON.stringify({ pid: known.pid, without, after, read }));
  process.exit();`;

test('a process of which nobody can be asked, since there is no descriptor left, counts as running and is not killed', async (t) => {
  const folder = await mkdtemp('/tmp/berth-unknown-');
  t.after(() => rm(folder, { recursive: true, force: true }));
  const { stdout, stderr } = await new Promise<{ stdout: string; stderr: string }>((resolve) => {
    const code = script(folder);
    const args = ['-c', 'ulimit -n 100; exec "$0" --input-type=module -e "$1"', process.execPath, code];
    execFile('/bin/sh', args, { timeout: 60_000 }, (_error, out, err) =>
      resolve({ stdout: out, stderr: err }),
    );
  });
  assert.notEqual(stdout, '', stderr);
  const { pid, without, after, read } = JSON.parse(stdout);
  assert.deepEqual(without, {
    isRunning: true,
    startTime: 'EMFILE',
    marked: ['EMFILE', 'EMFILE'],
    records: ['EMFILE', 'EMFILE'],
    gone: `Process ${pid} of a sandbox does not end.`,
    ends: 0,
    exitCode: null,
  });
  // The order to kill it was kept until it could be told from a later one.
  assert.deepEqual(after, { isRunning: false, startTime: null, signal: 'SIGKILL' });
  assert.deepEqual(read, [null, []]);
});
