import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { buffer, text } from 'node:stream/consumers';
import { test, type TestContext } from 'node:test';
import { limits } from '../../src/domain/limits.ts';
import type { SandboxCommand, SandboxControl } from '../../src/domain/ports/sandbox-control.ts';
import { windowBytes } from '../../src/harness/control/frames.ts';
import { commit, markDeployed, runTurn, startHarness } from '../support/harness-fixture.ts';
import { launchEnv, makePlaces, startLinked, type Places } from '../support/local-harness.ts';
import { until } from '../support/until.ts';

async function open(
  t: TestContext,
): Promise<{ control: SandboxControl; places: Places; leave(): void; openCommands(): number }> {
  const places = await makePlaces();
  t.after(places.remove);
  await markDeployed(places);
  const { link } = await startLinked(t, places, launchEnv('anthropic', commit));
  return { control: link.control, places, leave: () => link.leave(), openCommands: () => link.openCommands };
}

async function run(control: SandboxControl, command: SandboxCommand, input?: string) {
  const process = await control.exec(command);
  process.stdin.end(input ?? '');
  const [stdout, stderr, exit] = await Promise.all([
    text(process.stdout),
    text(process.stderr),
    process.exited,
  ]);
  return { stdout, stderr, ...exit };
}

test('a command runs in the workspace with its input, both outputs, its environment and its exit code', async (t) => {
  const { control, places } = await open(t);
  const command = ['sh', '-c', 'pwd; cat; echo "$GREETING" >&2; exit 7'];
  const got = await run(control, { command, env: { GREETING: 'to the errors' } }, 'from the input');
  assert.deepEqual(got, {
    stdout: `${places.workspace}\nfrom the input`,
    stderr: 'to the errors\n',
    code: 7,
    signal: null,
  });
});

test('a command that cannot be started says why', async (t) => {
  const { control } = await open(t);
  await assert.rejects(control.exec({ command: ['no-such-program'] }), { code: 'not_found' });
  await assert.rejects(control.exec({ command: ['true'], cwd: '/no/such/folder' }), {
    code: 'failed',
    message: /cwd/,
  });
  await assert.rejects(control.exec({ command: ['no-such-program'], terminal: { columns: 80, rows: 24 } }), {
    code: 'not_found',
  });
  await assert.rejects(control.exec({ command: ['true', 'x'.repeat(70_000)] }), { code: 'failed' });
});

test('what a sandbox sends comes at its pace, over all its streams together, and all of it comes', async (t) => {
  const { control } = await open(t);
  const { bytesPerSecond, burstBytes } = limits.sandboxOutput;
  const each = (burstBytes + bytesPerSecond / 2) / 2;
  const startedMs = performance.now();
  const command = ['head', '-c', String(each), '/dev/zero'];
  const sizes = await Promise.all(
    [1, 2].map(async () => {
      const process = await control.exec({ command });
      let bytes = 0;
      for await (const chunk of process.stdout) bytes += (chunk as Buffer).length;
      return bytes;
    }),
  );
  assert.deepEqual(sizes, [each, each]);
  // The last windows were granted already; the machine may take longer, and not less.
  const leastMs = 500 - (2 * windowBytes * 1000) / bytesPerSecond - 5;
  const tookMs = performance.now() - startedMs;
  assert.ok(tookMs >= leastMs, `${tookMs} ms`);
});

test('bytes pass unchanged in both directions, more than any window holds', async (t) => {
  const { control } = await open(t);
  const bytes = Buffer.from(Array.from({ length: 3_000_000 }, (_, at) => (at * 7 + (at >> 8)) & 0xff));
  const process = await control.exec({ command: ['cat'] });
  process.stdin.end(bytes);
  assert.ok((await buffer(process.stdout)).equals(bytes));
  assert.deepEqual(await process.exited, { code: 0, signal: null });
});

test('what a command wrote is there to its last byte, however long after its end it is read', async (t) => {
  const { control, places } = await open(t);
  // Writes as much as there is room for on the way, and ends.
  const filler = `const { writeSync, writeFileSync } = require('fs');
    const cell = new Int32Array(new SharedArrayBuffer(4));
    process.stdout.on('error', () => undefined);
    let bytes = 0;
    for (let full = 0; full < 10;) {
      try { bytes += writeSync(1, 'x'.repeat(4096)); full = 0; } catch { full += 1; Atomics.wait(cell, 0, 0, 50); }
    }
    writeFileSync('written', String(bytes));
    process.exit();`;
  writeFileSync(join(places.workspace, 'filler.cjs'), filler);
  const process = await control.exec({ command: ['node', 'filler.cjs'] });
  const written = await until('it has written', () => {
    const file = join(places.workspace, 'written');
    return existsSync(file) && Number(readFileSync(file, 'utf8'));
  });
  // Longer than others that hold the output of an ended command are waited for.
  await run(control, { command: ['sleep', '1'] });
  assert.equal((await text(process.stdout)).length, written);
  assert.deepEqual(await process.exited, { code: 0, signal: null });
});

test('a command whose output others hold on to ends all the same, also when they write without end', async (t) => {
  const { control } = await open(t);
  const got = await run(control, { command: ['sh', '-c', 'echo said; sleep 600 & yes >&2 & echo $!'] });
  assert.match(got.stdout, /^said\n\d+\n$/);
  assert.equal(got.code, 0);
});

test('what nobody reads is not produced', async (t) => {
  const { control, places } = await open(t);
  const counter = `let n = 0; const more = () => { while (process.stdout.write('x'.repeat(65536))) n += 1; };
    process.stdout.on('drain', more); more();
    setInterval(() => require('fs').writeFileSync('count', String(n)), 20);`;
  writeFileSync(join(places.workspace, 'counter.cjs'), counter);
  const process = await control.exec({ command: ['node', 'counter.cjs'] });
  const count = async () => Number((await run(control, { command: ['cat', 'count'] })).stdout);
  let before = -1;
  await until('the program has stopped to produce', async () => {
    const now = await count();
    const isStill = now === before && now > 0;
    before = now;
    return isStill;
  });
  assert.ok(before < 64, `${before} chunks of 64 KiB were taken though nobody read them`);
  process.stdout.resume();
  await until('it goes on when somebody reads', async () => (await count()) > before + 64);
  process.stdout.destroy();
  assert.equal((await process.exited).code ?? (await process.exited).signal, 'SIGTERM');
});

test('a signal reaches the whole group of a command', async (t) => {
  const { control } = await open(t);
  const process = await control.exec({ command: ['sh', '-c', 'sleep 600 & echo ready; wait'] });
  await once(process.stdout, 'data');
  process.kill('SIGKILL');
  assert.deepEqual(await process.exited, { code: null, signal: 'SIGKILL' });
});

test('a command ends when its output is let go of, and when the service leaves', async (t) => {
  const { control, leave, openCommands } = await open(t);
  const mark = `601.${Math.floor(Math.random() * 1e9)}`;
  const alive = async () =>
    (
      await run(control, { command: ['sh', '-c', `ps -eo args | grep -c "^sleep ${mark}" || true`] })
    ).stdout.trim();
  const first = await control.exec({ command: ['sh', '-c', `echo on; trap "" TERM; sleep ${mark}`] });
  await once(first.stdout, 'data');
  // What it says comes before what it does next.
  await until('it sleeps', async () => (await alive()) === '1');
  first.stdout.destroy();
  await until('nothing of it is left', async () => (await alive()) === '0');
  const second = await control.exec({ command: ['sleep', '602'] });
  assert.equal(openCommands(), 1);
  leave();
  assert.deepEqual(await second.exited, { code: null, signal: null });
  await assert.rejects(control.exec({ command: ['true'] }), { code: 'gone', isUntold: true });
});

test('there is an end to the number of commands at once, and room again when they have ended', async (t) => {
  const { control } = await open(t);
  const many = await Promise.all(Array.from({ length: 64 }, () => control.exec({ command: ['cat'] })));
  await assert.rejects(control.exec({ command: ['true'] }), { code: 'limit' });
  for (const process of many) process.stdin.end();
  for (const process of many) process.stdout.resume();
  await Promise.all(many.map((process) => process.exited));
  assert.equal((await run(control, { command: ['true'] })).code, 0);
});

async function readUntil(stream: Readable, wanted: RegExp): Promise<string> {
  let seen = '';
  for await (const chunk of stream.iterator({ destroyOnReturn: false })) {
    seen += `${chunk}`;
    if (wanted.test(seen)) return seen;
  }
  throw new Error(`The output ended before ${wanted}: ${seen}`);
}

test('a terminal is a real one: it has a name and a size, echoes, resizes and passes on an interrupt', async (t) => {
  const { control } = await open(t);
  const process = await control.exec({
    command: [
      'sh',
      '-c',
      // An interrupt that meets a shell while it starts a program is lost, so that it is told to a program that runs.
      'tty; stty size; read line; echo "got $line"; trap "echo resized; stty size; echo done" WINCH; echo now; ' +
        'while :; do read -r x || :; [ "$x" = go ] && break; done; exec cat',
    ],
    terminal: { columns: 91, rows: 33 },
  });
  assert.match(await readUntil(process.stdout, /33 91/), /\/dev\/pts\/\d+/);
  process.stdin.write('hello\r');
  await readUntil(process.stdout, /got hello[\s\S]*now/);
  process.resize(120, 40);
  process.stdin.write('\r');
  await readUntil(process.stdout, /40 120[\s\S]*done/);
  process.stdin.write('go\rthere\r');
  // The terminal's echo and the program's own.
  await readUntil(process.stdout, /there[\s\S]*there/);
  process.stdin.write('\x03');
  const exit = await process.exited;
  assert.deepEqual(exit, { code: null, signal: 'SIGINT' });
});

test('the end of the input types the end of a terminal', async (t) => {
  const { control } = await open(t);
  const process = await control.exec({ command: ['cat'], terminal: { columns: 80, rows: 24 } });
  process.stdin.end();
  process.stdout.resume();
  assert.deepEqual(await process.exited, { code: 0, signal: null });
});

test('a command and a turn do not wait for each other', async (t) => {
  const { connection, link } = await startHarness(t, { script: () => ({ text: ['done'] }) });
  const flood = await link.control.exec({ command: ['sh', '-c', 'yes'] });
  assert.equal((await runTurn(connection, 'hello')).text, 'done');
  flood.stdout.destroy();
  await flood.exited;
});
