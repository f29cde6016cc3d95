import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { runProcess } from '../src/processes.ts';

/** Nothing of this process goes on meanwhile, as when a busy machine leaves it no processor. */
function standStill(leastMs: number, isOver: () => boolean): void {
  const cell = new Int32Array(new SharedArrayBuffer(4));
  const begunMs = performance.now();
  const passedMs = () => performance.now() - begunMs;
  while (passedMs() < leastMs || (!isOver() && passedMs() < 60_000)) Atomics.wait(cell, 0, 0, 10);
}

test('what was written in time is in the output, also when this process stood still for longer than it waits', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'berth-p-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  let output = '';
  const ended = await runProcess({
    argv: ['sh', '-c', 'echo first; (sleep 0.1; echo late; touch written) &'],
    cwd: folder,
    env: { PATH: process.env['PATH'] ?? '/usr/bin:/bin' },
    mark: folder,
    timeoutMs: 60_000,
    signal: new AbortController().signal,
    onOutput(chunk) {
      output += chunk.toString();
      if (output !== 'first\n') return;
      // The program has ended by then, and the other one that holds its output is waited for. In an immediate, since the
      // timers that are due come before the input then.
      setTimeout(() => setImmediate(standStill, 300, () => existsSync(join(folder, 'written'))), 50);
    },
  });
  assert.deepEqual([ended.code, output], [0, 'first\nlate\n']);
});
