import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test, type TestContext } from 'node:test';
import type { Log } from '../../src/domain/log.ts';
import { DockerDriver } from '../../src/sandbox/docker/driver.ts';
import { Engine } from '../../src/sandbox/docker/engine.ts';
import { DockerSandbox } from '../../src/sandbox/docker/sandbox.ts';
import { startContainer, UnknownStart } from '../../src/sandbox/docker/start.ts';
import { silentLog } from '../support/log.ts';
import { IMAGE } from './engines.ts';
import { collect, driverFixture } from './fixture.ts';
import {
  breaks,
  container,
  created,
  ended,
  fails,
  frame,
  json,
  runs,
  scriptedEngine,
  type Says,
  type ScriptedEngine,
} from './scripted-engine.ts';

/** As Podman 4.3.1 says it when a program ends while it is looked at. */
const noProcess = fails('read /proc/18234/cgroup: no such process');

/** A driver on an engine whose program writes a line and ends at once. */
async function driverOn(t: TestContext, says: Record<string, Says[]>, log = silentLog) {
  // Closed before its engine.
  t.after(() => fx.close());
  const start = says['POST /one/start'];
  const onStart: Says = (response) => {
    for (const socket of engine.attached) socket.end(frame(1, 'done\n'));
    (start?.[0] ?? ((it) => it.writeHead(204).end()))(response);
  };
  const engine: ScriptedEngine = await scriptedEngine(t, {
    'POST /one/wait': [json({ StatusCode: 7, Error: null })],
    'GET /containers/json': [json([])],
    ...says,
    'POST /one/start': [onStart],
  });
  const fx = driverFixture(
    (at) => new DockerDriver({ ...at, log, image: IMAGE, runtime: null, socket: engine.socket }),
  );
  return { engine, fx };
}

const times = (engine: ScriptedEngine, request: string): number =>
  engine.asked.filter((one) => one === request).length;
const outcome = {
  exit: { reason: 'exit', code: 7, signal: null },
  stdout: 'done\n',
  stderr: '',
};

test('a program that ends while the engine looks at it was started, its output is kept and its code told', async (t) => {
  const { engine, fx } = await driverOn(t, { 'GET /one/json': [noProcess, noProcess, container(ended)] });
  const sandbox = await fx.start('echo done; exit 7');
  assert.equal(times(engine, 'DELETE /one'), 0);
  assert.deepEqual(await collect(sandbox), outcome);
  assert.equal(times(engine, 'POST /one/start'), 1);
});

for (const [how, start] of [
  ['is answered with an error', noProcess],
  ['is not answered', breaks],
] as const)
  test(`a start that ${how} and was done is told as done, for the container says so`, async (t) => {
    const warnings: string[] = [];
    const log = { ...silentLog, warn: (message: string) => void warnings.push(message) };
    const says = { 'POST /one/start': [start], 'GET /one/json': [noProcess, container(ended)] };
    const { engine, fx } = await driverOn(t, says, log);
    assert.deepEqual(await collect(await fx.start('echo done; exit 7')), outcome);
    assert.equal(times(engine, 'POST /one/start'), 1);
    assert.deepEqual(warnings, ['The engine told an error of a start that it had done.']);
  });

test('a start that the engine refuses, and whose program never ran, has failed, and its end is not waited for', async (t) => {
  const { engine, fx } = await driverOn(t, {
    'POST /one/start': [fails('runc: no such file')],
    'GET /one/json': [container(created)],
  });
  await assert.rejects(fx.start('true'), /^Error: The sandbox did not start: runc: no such file$/);
  assert.deepEqual(engine.asked.slice(-3), ['POST /one/start', 'GET /one/json', 'DELETE /one']);
  assert.equal(times(engine, 'POST /one/wait'), 0);
});

const lookMs = 50;
const startOn = (engine: ScriptedEngine, log: Log = silentLog) =>
  startContainer(new Engine(engine.socket), 'one', log, lookMs);

test('a start of which neither its answer nor the container tells is not called one that was not done', async (t) => {
  const start = 'POST /one/start';
  const engine = await scriptedEngine(t, { [start]: [breaks], 'GET /one/json': [fails('no database')] });
  await assert.rejects(startOn(engine), UnknownStart);
  // As Podman leaves it when it cannot note what it has done: its process is there, and may have been let go.
  engine.says['GET /one/json'] = [container({ ...created, Pid: 5 })];
  await assert.rejects(startOn(engine), UnknownStart);
  engine.says['GET /one/json'] = [fails('no database')];
  // One that nobody heard is known not to be.
  const nowhere = startContainer(new Engine('/no/such/engine.sock'), 'one', silentLog, lookMs);
  await assert.rejects(nowhere, { code: 'ENOENT' });
  // Where it is certain that it was done, nothing that comes later can undo it.
  engine.says[start] = [(response) => response.writeHead(204).end()];
  assert.equal(await startOn(engine), null);
  engine.says[start] = [fails('lost', 502)];
  engine.says['GET /one/json'] = [breaks, container(runs)];
  assert.equal((await startOn(engine))?.running, true);
});

async function sandboxOn(t: TestContext, says: Record<string, Says[]>) {
  const engine = await scriptedEngine(t, says);
  const streams = { stdin: new PassThrough(), stdout: new PassThrough(), stderr: new PassThrough() };
  const sandbox = new DockerSandbox({
    ...{ id: 'one', name: 'one', engine: new Engine(engine.socket), streams, logFile: null, group: null },
    ...{ initPid: 0, isPodman: true, isFrozen: false, onEnd: () => {} },
    output: { ended: Promise.resolve(), close: () => {}, drop: () => {} },
  });
  return { engine, sandbox };
}

test('a failed wait tells no exit code: the container does, and one that was taken away has none', async (t) => {
  // As Podman 4.3.1 answers when a container is removed while its end is waited for.
  const gone = json({ StatusCode: 0, Error: { Message: 'container one does not exist in database' } });
  const taken = await sandboxOn(t, { 'POST /one/wait': [gone], 'GET /one/json': [fails('none', 404)] });
  assert.deepEqual(await taken.sandbox.exited, { reason: 'exit', code: null, signal: 'SIGKILL' });
  const unknown = json({ StatusCode: -1, Error: null });
  const there = await sandboxOn(t, { 'POST /one/wait': [unknown], 'GET /one/json': [container(ended)] });
  assert.deepEqual(await there.sandbox.exited, { reason: 'exit', code: 7, signal: null });
});

test('an end is told also when the container cannot be removed at that moment', async (t) => {
  const { sandbox } = await sandboxOn(t, {
    'POST /one/wait': [json({ StatusCode: 7 })],
    'DELETE /one': [breaks],
  });
  assert.deepEqual(await sandbox.exited, { reason: 'exit', code: 7, signal: null });
});

test('whether a container stands still is what it says itself after an error', async (t) => {
  const standsStill = { ...runs, Status: 'paused', Paused: true };
  const never: Says = () => {};
  const { engine, sandbox } = await sandboxOn(t, {
    'POST /one/wait': [never],
    'POST /one/pause': [fails('too late')],
    'POST /one/unpause': [fails('busy')],
    'GET /one/json': [container(standsStill)],
  });
  await sandbox.freeze();
  assert.equal(sandbox.isFrozen, true);
  await assert.rejects(sandbox.thaw(), /busy/);
  assert.equal(sandbox.isFrozen, true);
  engine.says['GET /one/json'] = [container(runs)];
  await sandbox.thaw();
  assert.equal(sandbox.isFrozen, false);
  await assert.rejects(sandbox.freeze(), /too late/);
  assert.equal(sandbox.isFrozen, false);
  // What cannot be told counts as frozen, so that the next use thaws it.
  engine.says['GET /one/json'] = [breaks];
  await assert.rejects(sandbox.freeze(), /too late/);
  assert.equal(sandbox.isFrozen, true);
});
