import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { test, type TestContext } from 'node:test';
import type { SandboxExit } from '../../src/domain/ports/sandbox.ts';
import type { Group } from '../../src/sandbox/cgroup/group.ts';
import { Engine } from '../../src/sandbox/docker/engine.ts';
import { DockerSandbox } from '../../src/sandbox/docker/sandbox.ts';
import { OomKills } from '../../src/sandbox/oom-kills.ts';
import { isDying, tellsOfDying } from '../../src/sandbox/processes.ts';

interface EngineSays {
  code: number;
  oomKilled: boolean;
  /** What the engine does with who listens for events. */
  onEvents(response: ServerResponse): void;
  /** Of Podman, how often the kernel of the host has killed for want of memory, each time that it is asked. */
  hostOomKills?: () => number;
  /** In place of the kernel's log. */
  kernelLog?: string;
  /** Its cgroup, which has no process any more. */
  group?: Group;
}

/** The end of a container, as an engine tells it that says what it is told to say. */
async function endOf(t: TestContext, says: EngineSays): Promise<{ exit: SandboxExit; asked: string[] }> {
  const folder = mkdtempSync(join(tmpdir(), 'berth-oom-'));
  const asked: string[] = [];
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? '', 'http://engine');
    asked.push(`${request.method} ${url.pathname.replace(/^\/v[\d.]+/, '')}`);
    if (url.pathname.endsWith('/events')) {
      const filters = JSON.parse(url.searchParams.get('filters') ?? '') as object;
      assert.deepEqual(filters, { type: ['container'], event: ['oom'], container: ['one'] });
      assert.ok(Number(url.searchParams.get('until')) * 1000 > Date.now());
      says.onEvents(response);
    } else if (url.pathname.endsWith('/wait')) response.end(JSON.stringify({ StatusCode: says.code }));
    else if (url.pathname.endsWith('/json')) {
      const state = { Running: false, Paused: false, Pid: 0, ExitCode: says.code, OOMKilled: says.oomKilled };
      response.end(JSON.stringify({ State: state, Config: { Labels: null } }));
    } else response.end();
  });
  const socketPath = join(folder, 'engine.sock');
  server.listen(socketPath);
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
    rmSync(folder, { recursive: true, force: true });
  });
  const sandbox = new DockerSandbox({
    id: 'one',
    engine: new Engine(socketPath),
    name: 'one',
    streams: { stdin: new PassThrough(), stdout: new PassThrough(), stderr: new PassThrough() },
    logFile: null,
    group: says.group ?? null,
    initPid: 0,
    isPodman: says.hostOomKills !== undefined,
    isFrozen: false,
    output: { ended: Promise.resolve(), close: () => {}, drop: () => {} },
    onEnd: () => {},
    ...(says.hostOomKills ? { hostOomKills: says.hostOomKills } : {}),
    ...(says.kernelLog === undefined ? {} : { kernelLog: says.kernelLog }),
  });
  return { exit: await sandbox.exited, asked };
}

const event = '{"Type":"container","Action":"oom"}\n';

test('a container that ran out of memory is told as such where the engine learns of that after its end', async (t) => {
  const { exit, asked } = await endOf(t, {
    code: 137,
    oomKilled: false,
    onEvents(response) {
      response.flushHeaders();
      // Only when it was asked, and the answer had begun.
      setImmediate(() => response.write(event));
    },
  });
  assert.deepEqual(exit, { reason: 'oom', code: 137, signal: null });
  // It is kept until that is known: an engine tells nothing of what it has no more.
  assert.deepEqual(asked.slice(-2), ['GET /events', 'DELETE /containers/one']);
});

test('a container that was killed, and of whose memory the engine tells nothing, has ended by itself', async (t) => {
  const { exit } = await endOf(t, { code: 137, oomKilled: false, onEvents: (response) => response.end() });
  assert.equal(exit.reason, 'exit');
  const cut = await endOf(t, { code: 137, oomKilled: false, onEvents: ({ socket }) => socket?.destroy() });
  assert.equal(cut.exit.reason, 'exit');
});

test('no event is waited for where the end of a container says enough', async (t) => {
  const onEvents = (): never => assert.fail('The events were asked for.');
  const oom = await endOf(t, { code: 137, oomKilled: true, onEvents });
  assert.equal(oom.exit.reason, 'oom');
  const normal = await endOf(t, { code: 1, oomKilled: false, onEvents });
  assert.equal(normal.exit.reason, 'exit');
  assert.deepEqual(normal.asked, ['POST /containers/one/wait', 'DELETE /containers/one']);
});

const containerId = 'ab'.repeat(32);

test('where Podman has taken the group away before it could be read, only what the kernel has logged of that very group is out of memory', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'berth-kmsg-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const logOf = (group: string) => {
    const file = join(folder, 'kmsg');
    const line = `6,1,2,-;oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/x,task_memcg=${group},task=perl,pid=1,uid=0`;
    writeFileSync(file, `6,1,1,-;perl invoked oom-killer\n${line}\n`);
    return file;
  };
  const onEvents = (): never => assert.fail('Podman tells no such event.');
  const says = { code: 137, oomKilled: false, onEvents };
  const missed = (kernelLog: string, kills: number | null = null) => {
    const counts = [7];
    const places = () => [{ path: `/sys/fs/cgroup/memory/libpod_parent/libpod-${containerId}`, own: null }];
    const group = { oomKills: () => 0, oomKillsIfThere: () => kills, pids: () => [], places };
    return {
      ...{ ...says, kernelLog, group: group as unknown as Group, hostOomKills: () => counts.shift() ?? 8 },
    };
  };
  const own = logOf(`/libpod_parent/libpod-${containerId}/container`);
  assert.equal((await endOf(t, missed(own))).exit.reason, 'oom');
  // One that could be read says for certain that the kill was another sandbox's.
  assert.equal((await endOf(t, missed(own, 0))).exit.reason, 'exit');
  // Nobody was killed for it on the whole host.
  assert.equal((await endOf(t, { ...missed(own), hostOomKills: () => 8 })).exit.reason, 'exit');
  const others = logOf(`/libpod_parent/libpod-${'cd'.repeat(32)}`);
  assert.equal((await endOf(t, missed(others))).exit.reason, 'exit');
  assert.equal((await endOf(t, missed(join(folder, 'not-there')))).exit.reason, 'exit');
});

test('a kill for want of memory is of long ago at the second look, and not while anything dies of it', () => {
  let count = 1;
  let isAnyDying = true;
  const kills = new OomKills(
    () => count,
    () => isAnyDying,
  );
  // What was there before is of no concern.
  assert.equal(kills.hasNew(), false);
  count = 2;
  for (let looks = 0; looks < 5; looks++) kills.look();
  assert.equal(kills.hasNew(), true);
  isAnyDying = false;
  kills.look();
  assert.equal(kills.hasNew(), true);
  kills.look();
  assert.equal(kills.hasNew(), false);
  assert.equal(kills.hasOld, true);
});

test('what was killed counts as dying from the signal on, until it is a zombie', () => {
  // Of the kernel: state, ppid, pgrp, session, tty, tpgid, flags.
  const stat = (state: string, flags: number) => [state, '1', '1', '1', '0', '-1', String(flags)];
  const status = (own: string, shared: string) => `Threads:\t1\nSigPnd:\t${own}\nShdPnd:\t${shared}\n`;
  const none = '0000000000000000';
  const [kill, term] = ['0000000000000100', '0000000000004000'];
  assert.equal(tellsOfDying(stat('S', 0x400000), status(none, none)), false);
  assert.equal(tellsOfDying(stat('S', 0x400000), status(none, term)), false);
  assert.equal(tellsOfDying(stat('R', 0x400000), status(kill, none)), true);
  assert.equal(tellsOfDying(stat('D', 0x400000), status(none, kill)), true);
  assert.equal(tellsOfDying(stat('R', 0x400004), status(none, none)), true);
  assert.equal(tellsOfDying(stat('Z', 0x400004), status(none, none)), false);
  assert.equal(tellsOfDying(null, status(kill, none)), false);
  assert.equal(isDying(process.pid), false);
});
