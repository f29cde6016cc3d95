import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { SandboxControlError } from '../../src/domain/ports/sandbox-control.ts';
import type { EdgeWorld } from '../support/edge-world.ts';
import { edgeWorld } from '../support/edge-world.ts';
import { inTime, until } from '../support/until.ts';
import { hostControl } from '../support/host-control.ts';
import { openSse } from '../support/sse.ts';

let world: EdgeWorld;
let origin: string;
before(async () => {
  world = await edgeWorld();
  origin = await world.listen();
  world.sandboxHost.setControl(hostControl(world.volumesDir));
});
after(() => world.close());

interface Ended {
  exitCode: number | null;
  sandboxEnd: { code: string; error: string } | null;
  signal: string | null;
  timedOut: boolean;
  stdout: string;
  stderr: string;
  truncated: boolean;
  code?: string;
}

async function exec(body: object, headers: Record<string, string> = {}, key = world.keys.owner) {
  const reply = await world.call('POST', `/sandbox/${world.agent.id}/exec`, { body, headers, key });
  return { status: reply.status, headers: reply.headers, text: reply.text, ...(reply.json as Ended) };
}
const sh = (script: string, more: object = {}) => exec({ command: ['sh', '-c', script], ...more });
const path = () => `${origin}/sandbox/${world.agent.id}/exec`;

test('a command answers with its exit code, both outputs, and gets its input and variables', async () => {
  const ended = await sh('cat; echo "$NAME" >&2; exit 3', { stdin: 'in ü', env: { NAME: 'value' } });
  assert.deepEqual(
    [ended.status, ended.exitCode, ended.signal, ended.stdout, ended.stderr, ended.timedOut, ended.truncated],
    [200, 3, null, 'in ü', 'value\n', false, false],
  );
});

test('output that is no text is had as base64, and as text with what is none replaced', async () => {
  const script = String.raw`printf '\000\377\303\274'`;
  assert.equal((await sh(script)).stdout, '\0\ufffdü');
  const exact = await exec({ command: ['sh', '-c', 'cat'], stdin: 'AP/DvA==', encoding: 'base64' });
  assert.equal(exact.stdout, 'AP/DvA==');
});

test('a command that takes too long is killed, and the answer says so', async (t) => {
  const control = hostControl(world.volumesDir);
  // Its time begins when it has written something, since a machine may take longer than that to start it.
  world.sandboxHost.setControl({
    ...control,
    async exec(command) {
      const begun = await control.exec(command);
      await once(begun.stdout, 'readable');
      return begun;
    },
  });
  t.after(() => world.sandboxHost.setControl(control));
  const ended = await inTime('it was killed', sh('echo begun; sleep 600', { timeoutMs: 300 }));
  assert.deepEqual(
    [ended.timedOut, ended.signal, ended.exitCode, ended.stdout],
    [true, 'SIGKILL', null, 'begun\n'],
  );
});

test('the answer to a command that ended with its sandbox says why that ended', async (t) => {
  const control = hostControl(world.volumesDir);
  const sandboxEnd = { code: 'sandbox_oom' as const, error: 'The sandbox ran out of memory.' };
  const ended = async () => ({ code: null, signal: null, sandboxEnd });
  world.sandboxHost.setControl({
    ...control,
    exec: async (command) => ({ ...(await control.exec(command)), exited: ended() }),
  });
  t.after(() => world.sandboxHost.setControl(control));
  const { exitCode, signal, sandboxEnd: told } = await sh('true');
  assert.deepEqual([exitCode, signal, told], [null, null, sandboxEnd]);
  world.sandboxHost.setControl(control);
  assert.equal((await sh('true')).sandboxEnd, null);
});

test('a command of whose end nothing is told is answered all the same, with what it said', async (t) => {
  const control = hostControl(world.volumesDir);
  let isLetGo = false;
  world.sandboxHost.setControl({
    ...control,
    async exec(command) {
      const begun = await control.exec(command);
      await once(begun.stdout, 'readable');
      begun.stdout.once('close', () => (isLetGo = true));
      t.after(() => begun.kill('SIGKILL'));
      // As where a process of the agent has stopped the launcher.
      return { ...begun, kill: () => undefined, exited: new Promise(() => undefined) };
    },
  });
  t.after(() => world.sandboxHost.setControl(control));
  const ended = await inTime('it is answered', sh('echo begun; sleep 600', { timeoutMs: 300 }));
  assert.deepEqual(
    [ended.timedOut, ended.signal, ended.exitCode, ended.stdout],
    [true, 'SIGKILL', null, 'begun\n'],
  );
  await until('nobody holds on to it', () => isLetGo);
});

test('an answer holds a mebibyte of an output and says that it is cut; the command goes on to its end', async () => {
  const ended = await sh('head -c 3000000 /dev/zero | tr "\\0" x; echo done >&2');
  assert.deepEqual(
    [ended.exitCode, ended.stdout.length, ended.truncated, ended.stderr],
    [0, 1024 * 1024, true, 'done\n'],
  );
});

test('what cannot be started, and bad input, is refused by its field', async () => {
  const missing = await exec({ command: ['no-such-program'] });
  assert.deepEqual([missing.status, missing.code], [400, 'invalid_request']);
  for (const body of [
    { command: [] },
    { command: [''] },
    { command: 'ls' },
    { command: ['ls'], cwd: 'relative' },
    { command: ['ls'], timeoutMs: 0 },
    { command: ['ls'], timeoutMs: 4_000_000 },
    { command: ['ls'], env: { 'A=B': 'x' } },
    { command: ['ls'], stdin: '!!', encoding: 'base64' },
    { command: ['ls'], shell: true },
  ]) {
    const refused = await exec(body);
    assert.deepEqual([refused.status, refused.code], [400, 'invalid_request'], JSON.stringify(body));
  }
  assert.equal((await exec({ command: ['true'] }, {}, world.keys.use)).status, 403);
  assert.equal((await exec({ command: [] }, {}, world.keys.foreign)).status, 404);
});

test('the same command with one Idempotency-Key runs once, streamed or not', async () => {
  const headers = { 'idempotency-key': newId() };
  const first = await exec({ command: ['sh', '-c', 'date +%s%N'] }, headers);
  const second = await exec({ command: ['sh', '-c', 'date +%s%N'] }, headers);
  assert.equal(second.text, first.text);
  assert.equal(second.headers.get('idempotent-replayed'), 'true');
  // Whoever has seen the end of a stream gets its answer at once: it is kept before the end is told.
  for (let round = 0; round < 20; round++) {
    const body = { command: ['sh', '-c', 'echo $$'] };
    const key = newId();
    const streamed = await openSse(path(), {
      key: world.keys.owner,
      method: 'POST',
      headers: { 'idempotency-key': key },
      body,
    });
    await until('its end is told', () => streamed.frames.some(({ event }) => event === 'exit'));
    const again = await exec(body, { 'idempotency-key': key });
    const told = JSON.parse(streamed.frames[0]!.data!) as { data: string };
    assert.deepEqual([again.status, again.stdout], [200, told.data], again.text);
  }
});

test('a command whose sandbox ended while it was told of it may have begun, and the same request does not begin it again', async (t) => {
  const control = hostControl(world.volumesDir);
  let asked = 0;
  const failing = (isUntold: boolean) => ({
    ...control,
    exec: async () => {
      asked += 1;
      throw new SandboxControlError('gone', 'The sandbox has ended.', isUntold);
    },
  });
  t.after(() => world.sandboxHost.setControl(control));
  const twice = async () => {
    const headers = { 'idempotency-key': newId() };
    const replies = [await exec({ command: ['true'] }, headers), await exec({ command: ['true'] }, headers)];
    return replies.map(({ status, code }) => [status, code]);
  };
  const conflict = [409, 'conflict'];
  world.sandboxHost.setControl(failing(false));
  assert.deepEqual([await twice(), asked], [[conflict, conflict], 1]);
  world.sandboxHost.setControl(failing(true));
  assert.deepEqual([await twice(), asked], [[conflict, conflict], 3]);
});

test('a stream gives output as it comes, characters whole, and ends with the exit', async () => {
  const script = String.raw`printf '\303'; sleep 0.3; printf '\274'; echo err >&2; exit 7`;
  const stream = await openSse(path(), {
    key: world.keys.owner,
    method: 'POST',
    body: { command: ['sh', '-c', script] },
  });
  await until('it ended', () => stream.ended);
  const frames = stream.frames.map(
    ({ event, data }) => [event, JSON.parse(data!)] as [string, Record<string, unknown>],
  );
  const joined = (name: string) =>
    frames
      .filter(([event]) => event === name)
      .map(([, data]) => data['data'])
      .join('');
  assert.deepEqual([joined('stdout'), joined('stderr')], ['ü', 'err\n']);
  const [last, end] = frames.at(-1)!;
  assert.deepEqual([last, end['exitCode'], end['signal'], end['timedOut']], ['exit', 7, null, false]);
});

test('a stream begins before there is output, and a client that leaves it ends the command', async () => {
  const marker = `surface-${newId()}`;
  const stream = await openSse(path(), {
    key: world.keys.owner,
    method: 'POST',
    body: { command: ['sh', '-c', `touch ${marker}; sleep 60; echo ${marker}`] },
  });
  const { readdirSync, readFileSync } = await import('node:fs');
  await until('it runs', () => readdirSync(world.volumesDir).includes(marker));
  stream.close();
  const isThere = () =>
    readdirSync('/proc').some((pid) => {
      try {
        return (
          /^\d+$/.test(pid) &&
          readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(`sleep 60; echo ${marker}`)
        );
      } catch {
        return false;
      }
    });
  await until('it is gone', () => !isThere());
});

test('a stream ends when its key is revoked, and so does its command', async () => {
  const { resources } = world;
  const caller = await resources.caller('edit', 'org-bound');
  const stream = await openSse(path(), {
    key: caller.value,
    method: 'POST',
    body: { command: ['sleep', '60'] },
  });
  await resources.apiKeys.revoke(resources.owner, caller.keyId);
  await until('it ended', () => stream.ended);
  assert.equal(JSON.parse(stream.frames.at(-1)!.data!).signal, 'SIGKILL');
});

test('logs are lines of text with their time, escapes shown, and go on after a position', async () => {
  const [sandboxId, epoch] = [newId(), newId()];
  const at = new Date('2026-11-28T09:00:00.000Z');
  world.sandboxHost.lines.push(
    { sandboxId, epoch, number: 1, at, text: 'first' },
    { sandboxId, epoch, number: 2, at, text: 'evil \x1b[2J\nforged \u202e' },
  );
  const logs = `/sandbox/${world.agent.id}/logs`;
  const all = await world.call('GET', logs);
  assert.equal(all.headers.get('content-type'), 'text/plain; charset=utf-8');
  assert.equal(
    all.text,
    '2026-11-28T09:00:00.000Z first\n2026-11-28T09:00:00.000Z evil \\u001b[2J\\u000aforged \\u202e\n',
  );
  const position = all.headers.get('berth-log-position')!;
  assert.equal(position, `${sandboxId}:${epoch}:2`);
  const rest = await world.call('GET', `${logs}?after=${sandboxId}:${epoch}:1`);
  assert.equal(rest.text.split('\n').length, 2);
  assert.equal((await world.call('GET', `${logs}?after=${position}`)).text, '');
  for (const one of [
    'nonsense',
    `${sandboxId}:${epoch}`,
    `${sandboxId}:x:1`,
    `${sandboxId}:${epoch}:${epoch}:1`,
  ])
    assert.equal((await world.call('GET', `${logs}?after=${one}`)).status, 400, one);
  const old = await world.call('GET', `${logs}?after=${sandboxId}:9`);
  assert.deepEqual([old.status, old.headers.get('berth-log-position')], [200, `${sandboxId}:9`]);
  assert.equal((await world.call('GET', logs, { key: world.keys.foreign })).status, 404);
  const stream = await openSse(`${origin}${logs}`, {
    key: world.keys.use,
    headers: { 'last-event-id': `${sandboxId}:${epoch}:1` },
  });
  await until('the line came', () => stream.frames.length === 1);
  assert.deepEqual([stream.frames[0]!.event, stream.frames[0]!.id], ['line', `${sandboxId}:${epoch}:2`]);
  stream.close();
});
