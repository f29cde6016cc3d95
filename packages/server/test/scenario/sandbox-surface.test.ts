import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { after, test } from 'node:test';
import { WebSocket } from 'ws';
import { canFreeze } from '../support/freezing.ts';
import { openSse } from '../support/sse.ts';
import { endSharedWorld, sharedWorld } from '../support/scenario-world.ts';
import { until } from '../support/until.ts';
import { closed } from '../support/closed.ts';

after(endSharedWorld);

async function newAgent(name: string) {
  const world = await sharedWorld();
  const made = await world.call('POST', '/v1/agents', { name });
  const path = `/sandbox/${made.body.agent.id}`;
  return {
    world,
    agentId: made.body.agent.id as string,
    path,
    sh: async (script: string, more: object = {}) => {
      const reply = await world.call('POST', `${path}/exec`, { command: ['sh', '-c', script], ...more });
      assert.equal(reply.status, 200, reply.text);
      return reply.body as {
        exitCode: number | null;
        stdout: string;
        stderr: string;
        signal: string | null;
        timedOut: boolean;
      };
    },
  };
}

test('a command starts the sandbox, runs in it as the agent does, and sees the files that were put there', async () => {
  const { world, path, sh } = await newAgent('Commands');
  assert.equal((await world.call('GET', path)).body.sandbox.state, 'stopped');
  const put = await world.call('PUT', `${path}/files/in/data.txt`, 'from outside');
  assert.equal(put.status, 201, put.text);
  const ended = await sh(
    'pwd; id -u; cat in/data.txt; echo made > in/made.txt; stat -c %U%u in/data.txt; test -O in/data.txt && echo mine',
  );
  assert.equal(ended.exitCode, 0, ended.stderr);
  assert.match(ended.stdout, /^\/workspace\n\d+\nfrom outside/);
  assert.match(ended.stdout, /mine\n$/);
  assert.notEqual(ended.stdout.split('\n')[1], '0');
  const { sandbox } = (await world.call('GET', path)).body;
  assert.deepEqual([sandbox.state, sandbox.memoryBytes > 0, sandbox.processes > 0], ['running', true, true]);
  assert.equal((await world.call('GET', `${path}/files/in/made.txt`)).text, 'made\n');
  const stopped = await world.call('POST', `${path}/stop`);
  assert.equal(stopped.body.sandbox.state, 'stopped');
  const log = (await world.call('GET', `${path}/logs`)).text;
  assert.match(log, /berth: The sandbox was started with commit [0-9a-f]{12}\./);
  assert.match(log, /berth: The sandbox has ended\. It was stopped\.\n$/);
  assert.equal((await world.call('GET', `${path}/files/in/made.txt`)).text, 'made\n');
  const list = (await world.call('GET', '/sandbox?limit=100')).body.sandboxes as {
    agentId: string;
    state: string;
  }[];
  assert.ok(list.some((one) => path.endsWith(one.agentId) && one.state === 'stopped'));
});

test('input, variables, signals, time-outs and large output of commands are as they should be', async () => {
  const { sh } = await newAgent('Streams');
  const fed = await sh('cat | wc -c; echo "$GIVEN"', { stdin: 'x'.repeat(200_000), env: { GIVEN: 'given' } });
  assert.equal(fed.stdout, '200000\ngiven\n');
  const late = await sh('sleep 60', { timeoutMs: 300 });
  assert.deepEqual([late.timedOut, late.exitCode, late.signal], [true, null, 'SIGKILL']);
  const large = await sh('head -c 5000000 /dev/zero | tr "\\0" y; echo end >&2');
  assert.deepEqual([large.stdout.length, large.stderr, large.exitCode], [1024 * 1024, 'end\n', 0]);
});

test('a stream of a command ends it when the client goes away', async () => {
  const { world, path, sh } = await newAgent('Leaving');
  const stream = await openSse(`${world.service.url}${path}/exec`, {
    key: world.keys.owner,
    method: 'POST',
    body: { command: ['sh', '-c', 'echo begun; exec sleep 1234'] },
  });
  await until('it runs', () => stream.frames.length > 0);
  stream.close();
  await until('it is gone', async () => {
    const { stdout } = await sh(
      'for p in /proc/[0-9]*; do tr "\\0" " " < $p/cmdline; echo; done 2>/dev/null',
    );
    return !stdout.includes('sleep 1234');
  });
});

test('what a sandbox lays out as traps leads nowhere from outside', async () => {
  const { world, path, sh } = await newAgent('Hostile');
  const made = await sh(
    'ln -s /etc/shadow shadow; ln -s / root; ln -s ../../.. up; mkfifo fifo; mkdir d; ln -s /etc d/etc; printf x > "$(printf \'a\\nb\')"',
  );
  assert.equal(made.exitCode, 0, made.stderr);
  for (const name of ['shadow', 'root', 'up', 'fifo'])
    assert.equal((await world.call('GET', `${path}/files/${name}`)).status, 409, name);
  for (const name of ['root/etc/passwd', 'up/x', 'd/etc/passwd'])
    assert.equal((await world.call('GET', `${path}/files/${name}`)).status, 404, name);
  const tar = await fetch(`${world.service.url}${path}/files/?archive=tar`, {
    headers: { authorization: `Bearer ${world.keys.owner}` },
  });
  const names = execFileSync('tar', ['-tvf', '-'], {
    input: Buffer.from(await tar.arrayBuffer()),
    encoding: 'utf8',
  });
  assert.match(names, /shadow -> \/etc\/shadow/);
  assert.ok(!names.includes('fifo') && !names.includes('passwd'));
});

test('a terminal is a real one: a size, colours, job control, and it comes back after a broken connection', async () => {
  const { world, path } = await newAgent('Terminal');
  const address = `${world.service.url.replace('http', 'ws')}${path}/terminal`;
  const headers = { authorization: `Bearer ${world.keys.owner}` };
  const connect = async (query: string) => {
    const socket = new WebSocket(`${address}${query}`, { headers });
    const parts: Buffer[] = [];
    const told: { type: string; terminalId: string; exitCode: number }[] = [];
    socket.on('message', (data, isBinary) =>
      isBinary ? parts.push(data as Buffer) : told.push(JSON.parse(String(data))),
    );
    socket.on('error', () => {});
    await once(socket, 'open');
    const text = () => Buffer.concat(parts).toString();
    return { socket, told, text, type: (keys: string) => socket.send(Buffer.from(keys)) };
  };
  const first = await connect('?columns=101&rows=33');
  first.type('stty size; tty; echo "$TERM"\n');
  await until('it answers', () => /33 101\r\n\/dev\/[^\r]+\r\nxterm-256color/.test(first.text()));
  first.socket.send('{"type":"resize","columns":77,"rows":22}');
  first.type('stty size\n');
  await until('it has the new size', () => first.text().includes('22 77'));
  // What it says itself shows that it runs: before that the keys would reach the shell, which goes on to it.
  first.type("sh -c 'echo up-$((1+1)); exec sleep 1000'\n");
  await until('it runs', () => first.text().includes('up-2'));
  first.type('\x03');
  first.type('echo alive-$((1+1))\n');
  await until('the command was interrupted and not the shell', () => first.text().includes('alive-2'));
  const seen = Buffer.byteLength(first.text());
  first.socket.terminate();
  const second = await connect(`?terminalId=${first.told[0]!.terminalId}&after=${seen}`);
  second.type('echo again; exit 4\n');
  const [code] = await closed(second.socket);
  assert.equal(code, 1000);
  assert.deepEqual([second.told.at(-1)!.type, second.told.at(-1)!.exitCode], ['exit', 4]);
});

test('a snapshot is taken of a sandbox that runs, restored, given to another agent, and goes with its agent', async () => {
  const { world, path, sh, agentId } = await newAgent('Snapshots');
  await sh('mkdir -p d; echo one > d/file; echo home > ~/note');
  const taken = await world.call('POST', `${path}/snapshots`, { name: 'one' });
  assert.equal(taken.status, 201, taken.text);
  const { snapshot } = taken.body;
  // Frozen for it and running on, or ended for it where none can be frozen.
  const state = (await canFreeze()) ? 'running' : 'stopped';
  assert.equal((await world.call('GET', path)).body.sandbox.state, state);
  await sh('rm -r d; echo two > two; echo changed > ~/note');
  const restored = await world.call('POST', `${path}/snapshots/${snapshot.id}/restore`, {});
  assert.equal(restored.status, 200, restored.text);
  assert.equal((await world.call('GET', path)).body.sandbox.state, 'stopped');
  const after = await sh('cat d/file ~/note; ls two; touch works');
  assert.equal(after.stdout, 'one\nhome\n');
  const other = await newAgent('Forked');
  const forked = await world.call('POST', `${path}/snapshots/${snapshot.id}/restore`, {
    toAgentId: other.agentId,
  });
  assert.equal(forked.status, 200, forked.text);
  assert.equal(
    (await other.sh('cat d/file; echo own > d/file; test -O d/file && echo mine')).stdout,
    'one\nmine\n',
  );
  assert.equal((await sh('cat d/file')).stdout, 'one\n');
  const foreign = await world.call('POST', `${path}/snapshots/${snapshot.id}/restore`, {
    toAgentId: world.foreignAgentId,
  });
  assert.equal(foreign.status, 404);
  const listed = (await world.call('GET', `${path}/snapshots`)).body.snapshots as { id: string }[];
  assert.deepEqual(
    listed.map(({ id }) => id),
    [snapshot.id],
  );
  await world.call('DELETE', `/v1/agents/${agentId}`);
  await until('its snapshots are gone', async () => {
    const rows = await world.db.sql`select id from snapshots where agent_id = ${agentId}`;
    return rows.length === 0;
  });
});

test('a snapshot is not restored under a turn, and taken under one only where it can stand still', async () => {
  const { world, path, agentId } = await newAgent('Busy');
  const taken = await world.call('POST', `${path}/snapshots`, {});
  const sent = await world.send('hold: snapshot', { agentId }, { prefer: 'respond-async' });
  await until('it runs', async () => (await world.call('GET', path)).body.sandbox.runningTurns === 1);
  const refused = await world.call('POST', `${path}/snapshots/${taken.body.snapshot.id}/restore`, {});
  assert.deepEqual([refused.status, refused.body.code], [409, 'conflict']);
  const taking = await world.call('POST', `${path}/snapshots`, {});
  if (await canFreeze()) assert.equal(taking.status, 201, taking.text);
  else assert.deepEqual([taking.status, taking.body.code], [409, 'conflict']);
  // Whatever came of it, the turn goes on.
  world.release('snapshot');
  await until(
    'it ended',
    async () => (await world.call('GET', `/v1/runs/${sent.body.runId}`)).body.run.status === 'completed',
  );
});
