import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { access, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { isAlive } from '../sandbox/fixture.ts';
import { runTurn, startHarness } from '../support/harness-fixture.ts';
import { until } from '../support/until.ts';

function isRunning(text: string): boolean {
  return readdirSync('/proc').some((name) => {
    if (!/^\d+$/.test(name)) return false;
    try {
      return readFileSync(`/proc/${name}/cmdline`, 'latin1').includes(text);
    } catch {
      return false;
    }
  });
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

test('a cancel ends the whole process tree of a command, also what left its group and ignores signals', async (t) => {
  // A duration that no other process on this machine is likely to sleep for.
  const mark = `86${process.pid}`;
  const { connection, places, model } = await startHarness(t, {
    script: (_request, index) =>
      index === 0
        ? {
            toolCalls: [
              {
                name: 'bash',
                input: {
                  command: `setsid bash -c "trap '' TERM; sleep ${mark}.1 & wait; sleep ${mark}.2" & sleep ${mark}.3 & touch started; trap '' TERM; sleep ${mark}.4; sleep ${mark}.5`,
                },
              },
            ],
          }
        : { text: ['after'] },
  });
  const abort = new AbortController();
  const turn = runTurn(connection, 'hello', { signal: abort.signal });
  await until('the command started', () => exists(join(places.workspace, 'started')));
  await until('its daemon started', () => isRunning(`${mark}.1`));
  abort.abort();
  assert.deepEqual((await turn).result, { outcome: 'cancelled' });
  await until('every process ended', () => !isRunning(`sleep\0${mark}.`));

  const next = await runTurn(connection, 'what now?');
  assert.equal(next.text, 'after');
  const told = JSON.stringify(model.requests[1]?.body.messages);
  assert.match(told, /\[cancelled\]/);
});

test('a cancel in the middle of an answer closes the connection to the model and keeps what was shown', async (t) => {
  const { connection, model } = await startHarness(t, {
    script: (_request, index) =>
      index === 0 ? { text: Array(2000).fill('word '), gapMs: 10 } : { text: ['new'] },
  });
  const abort = new AbortController();
  const turn = await runTurn(connection, 'hello', {
    signal: abort.signal,
    onUpdate: () => abort.abort(),
  });
  assert.deepEqual(turn.result, { outcome: 'cancelled' });
  assert.deepEqual(await model.requests[0]?.ended, { complete: false });
  await runTurn(connection, 'again');
  const [, partial] = model.requests[1]?.body.messages ?? [];
  assert.equal(partial.role, 'assistant');
  assert.match(partial.content[0].text, /^word/);
});

test('a cancel while waiting to try again ends the turn at once', async (t) => {
  const { connection, model } = await startHarness(t, {
    script: () => ({ error: { status: 429, message: 'slow down' }, headers: { 'retry-after': '60' } }),
  });
  const abort = new AbortController();
  const turn = runTurn(connection, 'hello', { signal: abort.signal });
  await until('the first try', () => model.requests.length === 1);
  await model.requests[0]?.ended;
  abort.abort();
  assert.deepEqual((await turn).result, { outcome: 'cancelled' });
});

test('a turn that is cancelled before it begins asks no model', async (t) => {
  const { connection, model } = await startHarness(t, { script: () => ({ text: ['no'] }) });
  const { result } = await runTurn(connection, 'hello', { signal: AbortSignal.abort() });
  assert.deepEqual(result, { outcome: 'cancelled' });
  assert.equal(model.requests.length, 0);
});

test('the end of stdin ends the launcher and the commands that it runs', async (t) => {
  const { connection, places, sandbox } = await startHarness(t, {
    script: () => ({ toolCalls: [{ name: 'bash', input: { command: 'echo $$ > pid; exec sleep 600' } }] }),
  });
  const turn = runTurn(connection, 'hello');
  const pidFile = join(places.workspace, 'pid');
  await until(
    'the command started',
    async () => (await exists(pidFile)) && (await readFile(pidFile, 'utf8')).endsWith('\n'),
  );
  const pid = Number(await readFile(pidFile, 'utf8'));
  connection.close();
  assert.equal((await turn).result.outcome, 'failed');
  assert.deepEqual(await sandbox.exited, { reason: 'exit', code: 0, signal: null });
  await until('the command has ended', () => !isAlive(pid));
});
