import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import type { RunningSandbox } from '../../src/domain/ports/sandbox.ts';
import { frameKinds, jsonFrame, textFrame } from '../../src/harness/control/frames.ts';
import { tryKill } from '../../src/sandbox/processes.ts';
import { commit, markDeployed, runTurn, startHarness } from '../support/harness-fixture.ts';
import {
  launchEnv,
  launcherCommand,
  makePlaces,
  startLinked,
  startProcess,
  type Places,
} from '../support/local-harness.ts';
import { hostProcesses } from '../support/scenario.ts';
import { inTime, until } from '../support/until.ts';
import { fixture } from '../sandbox/fixture.ts';

const impatient = { maxAwayMs: 50, giveUpGraceMs: 100 };

/** Of the launcher, once nobody holds its outputs any more: all that it started would. */
const codeOf = async (sandbox: RunningSandbox) =>
  (await inTime('all that the launcher started has ended', sandbox.exited, 15_000)).code;

let tests = 0;

/** A duration that no other process on this machine is likely to sleep for. */
function sleepers(t: TestContext): { mark: string; sleeping: () => number[] } {
  const mark = `87${process.pid}${++tests}`;
  const sleeping = () => hostProcesses((line) => line.includes(`sleep ${mark}.`));
  t.after(() => sleeping().forEach((pid) => tryKill(pid)));
  return { mark, sleeping };
}

async function placesOf(t: TestContext): Promise<Places> {
  const places = await makePlaces();
  t.after(places.remove);
  await markDeployed(places);
  return places;
}

/** A child, a child of it, and one that left group, session and parent, none of which ends when it is told to. */
const stubborn = (mark: string, last = `exec sleep ${mark}.3`) => [
  'sh',
  '-c',
  `trap '' TERM HUP; (setsid sleep ${mark}.1 &); sleep ${mark}.2 & touch started; ${last}`,
];
/** Then it minds no signal any more. */
const hasStarted = ({ workspace }: Places) => existsSync(join(workspace, 'started'));
const customEnv = (command: string[]) =>
  launchEnv('anthropic', commit, { BERTH_HARNESS_COMMAND: JSON.stringify(command) });

/** A service that launchers come to: it welcomes them, until it goes away for good. */
async function serviceOf(t: TestContext, places: Places) {
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.write(jsonFrame(frameKinds.welcome, 0, { from: 0 }));
    sockets.push(socket);
  }).listen(places.controlSocket);
  const leave = () => {
    server.close();
    for (const socket of sockets) socket.destroy();
  };
  t.after(leave);
  await once(server, 'listening');
  const launcher = () => until('the launcher has come', () => sockets[0]);
  return { launcher, leave };
}

/** What the driver of plain processes gives, by which it finds what belongs together. */
const marks = (name: string) => ({ BERTH_SANDBOX_ROOT: '/nowhere', BERTH_SANDBOX: name });

test('a launcher that gives up waiting for its service leaves none of the processes of its agent, and no others are touched', async (t) => {
  const places = await placesOf(t);
  const { mark, sleeping } = sleepers(t);
  const service = await serviceOf(t, places);
  const stranger = spawn('sleep', [`${mark}.9`], { env: { ...process.env, ...marks(`${mark}/other`) } });
  const env = { ...customEnv(stubborn(mark)), ...marks(`${mark}/mine`) };
  // As the driver does, whose shell writes down the exit code and has the same mark.
  const watched = ['/bin/sh', '-c', '"$@"; echo "ended with $?"', 'sh'];
  const command = [...watched, ...(await launcherCommand(places, impatient))];
  const sandbox = startProcess(command, places.workspace, env);
  t.after(() => sandbox.kill());
  let told = '';
  sandbox.stdout.on('data', (chunk: Buffer) => (told += chunk.toString()));
  await until('the command runs', () => hasStarted(places) && sleeping().length === 4);
  await service.launcher();
  service.leave();
  assert.equal(await codeOf(sandbox), 0);
  assert.equal(told, 'ended with 75\n');
  assert.deepEqual(sleeping(), [stranger.pid]);
});

test('in a real PID namespace nothing is left of a sandbox whose launcher gave up, also what left its session', async (t) => {
  const sandboxes = fixture();
  t.after(() => sandboxes.close());
  const { usable, problems } = await sandboxes.driver.capabilities();
  if (!usable) return t.skip(`no sandbox here: ${problems.join(' ')}`);
  const places = await placesOf(t);
  const { mark, sleeping } = sleepers(t);
  const service = await serviceOf(t, places);
  // As a detached sandbox, with nobody to end it when its first program has ended.
  const sandboxed = ['/usr/bin/bwrap', '--unshare-user', '--unshare-pid', '--bind', '/', '/'];
  const program = [...(await launcherCommand(places, impatient)), mark];
  const command = [...sandboxed, '--dev', '/dev', '--proc', '/proc', '--', ...program];
  const sandbox = startProcess(command, places.workspace, customEnv(stubborn(mark)));
  t.after(() => hostProcesses((line) => line.endsWith(` ${mark} `)).forEach((pid) => tryKill(pid)));
  await until('the command runs', () => hasStarted(places) && sleeping().length === 3);
  await service.launcher();
  service.leave();
  assert.equal(await codeOf(sandbox), 75);
  assert.deepEqual(sleeping(), []);
  await until('its init has ended', () => hostProcesses((line) => line.endsWith(` ${mark} `)).length === 0);
});

test('a command of its own that ends leaves nothing in the background', async (t) => {
  const places = await placesOf(t);
  const { mark, sleeping } = sleepers(t);
  const env = { ...customEnv(stubborn(mark, 'exit 7')), ...marks(`${mark}/mine`) };
  const sandbox = startProcess(await launcherCommand(places), places.workspace, env);
  t.after(() => sandbox.kill());
  assert.equal(await codeOf(sandbox), 7);
  assert.deepEqual(sleeping(), []);
});

test('a launcher that fails in an unforeseen way ends the command that it runs', async (t) => {
  const places = await placesOf(t);
  const { mark, sleeping } = sleepers(t);
  const service = await serviceOf(t, places);
  const env = { ...customEnv(stubborn(mark)), ...marks(`${mark}/mine`) };
  const sandbox = startProcess(await launcherCommand(places), places.workspace, env);
  t.after(() => sandbox.kill());
  await until('the command runs', () => hasStarted(places) && sleeping().length === 3);
  (await service.launcher()).write(textFrame(frameKinds.note, 0, 'no JSON'));
  assert.equal(await codeOf(sandbox), 1);
  assert.deepEqual(sleeping(), []);
});

test('commands that run beside a harness end with its launcher when that is told to end', async (t) => {
  const places = await placesOf(t);
  const { mark, sleeping } = sleepers(t);
  const { sandbox, link } = await startLinked(
    t,
    places,
    launchEnv('anthropic', commit, marks(`${mark}/mine`)),
  );
  void link.control.exec({ command: stubborn(mark) }).catch(() => undefined);
  await until('the command runs', () => sleeping().length === 3);
  process.kill(Number(sandbox.id.replace('local-', '')), 'SIGTERM');
  assert.equal(await codeOf(sandbox), 128 + 15);
  assert.deepEqual(sleeping(), []);
});

test('what a tool left in the background ends with the harness', async (t) => {
  const { mark, sleeping } = sleepers(t);
  const { sandbox, connection } = await startHarness(t, {
    env: marks(`${mark}/mine`),
    script: (_request, index) =>
      index === 0
        ? { toolCalls: [{ name: 'bash', input: { command: `setsid nohup sleep ${mark}.1 >log 2>&1 &` } }] }
        : { text: ['done'] },
  });
  assert.equal((await runTurn(connection, 'serve')).text, 'done');
  await until('it runs', () => sleeping().length === 1);
  connection.close();
  assert.equal(await codeOf(sandbox), 0);
  assert.deepEqual(sleeping(), []);
});
