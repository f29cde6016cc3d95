import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { test, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { commit, markDeployed } from '../support/harness-fixture.ts';
import { launchEnv, makePlaces, startLinked } from '../support/local-harness.ts';
import { servicePort } from '../support/service-port.ts';

/** Processes of the agent may stop its launcher, whose user they share. */

/** Also one that runs may wait for its processor, and owes an answer meanwhile. */
const unansweredMs = 3_000;

async function open(t: TestContext) {
  const places = await makePlaces();
  t.after(places.remove);
  await markDeployed(places);
  const { link, sandbox } = await startLinked(t, places, launchEnv('anthropic', commit), { unansweredMs });
  const pid = Number(sandbox.id.slice('local-'.length));
  return {
    places,
    control: link.control,
    sandbox,
    signal: (name: NodeJS.Signals) => process.kill(pid, name),
  };
}

test('a launcher that was stopped and starts no command loses its sandbox, and whoever asked is told', async (t) => {
  const { control, sandbox, signal } = await open(t);
  signal('SIGSTOP');
  await assert.rejects(control.exec({ command: ['true'] }), { code: 'gone' });
  assert.equal((await sandbox.exited).reason, 'killed');
});

test('a launcher that was stopped loses its sandbox when it does not end a command that nobody wants any more', async (t) => {
  const { control, sandbox, signal } = await open(t);
  const command = await control.exec({ command: ['sleep', '600'] });
  signal('SIGSTOP');
  command.kill('SIGKILL');
  command.stdout.destroy();
  assert.deepEqual(await command.exited, { code: null, signal: null });
  assert.equal((await sandbox.exited).reason, 'killed');
});

test('a sandbox that is frozen for as long as it takes keeps its launcher and what runs in it', async (t) => {
  const { control, sandbox, signal } = await open(t);
  const command = await control.exec({ command: ['sleep', '600'] });
  Object.assign(sandbox, { isFrozen: true });
  signal('SIGSTOP');
  command.kill('SIGKILL');
  command.stdout.destroy();
  // Longer than a launcher may leave something unanswered.
  await delay(unansweredMs * 1.5);
  Object.assign(sandbox, { isFrozen: false });
  signal('SIGCONT');
  assert.deepEqual(await command.exited, { code: null, signal: 'SIGKILL' });
  const after = await control.exec({ command: ['true'] });
  assert.deepEqual(await after.exited, { code: 0, signal: null });
});

test('a command may say nothing for as long as it likes, and a server may take its time to listen', async (t) => {
  const { places, control } = await open(t);
  const quiet = await control.exec({ command: ['sh', '-c', 'read line; echo "$line"'] });
  const port = await servicePort();
  const server = `setTimeout(() => require('net').createServer((s) => s.end('here')).listen(process.env.PORT), 400)`;
  writeFileSync(join(places.workspace, 'late.cjs'), server);
  const [one, other] = [
    control.connect({ port, command: ['node', 'late.cjs'] }),
    control.connect({ port, command: null }),
  ];
  assert.deepEqual(await Promise.all([one, other].map(async (connection) => text(await connection))), [
    'here',
    'here',
  ]);
  // Longer than a launcher may leave something unanswered.
  const waited = await control.exec({ command: ['sleep', '3.3'] });
  assert.deepEqual(await waited.exited, { code: 0, signal: null });
  quiet.stdin.end('at last\n');
  assert.equal(await text(quiet.stdout), 'at last\n');
});
