import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { RepoError } from '../../src/domain/ports/repos.ts';
import { Gate, GateFull } from '../../src/repos/gate.ts';
import { gitWorld, type GitWorld } from '../support/git-world.ts';

let world: GitWorld;
/** The deployments that wait for the test to decide. */
const held: { commit: string; end: (error: Error | null) => void }[] = [];

before(async () => {
  world = await gitWorld({
    deploy: (_agentId, { commit }, progress) =>
      new Promise((resolve, reject) => {
        progress('begun');
        held.push({ commit, end: (error) => (error ? reject(error) : resolve()) });
      }),
  });
});
after(() => world.close());

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = Date.now() + 20_000;
  while (!(await condition())) {
    assert.ok(Date.now() < deadline, 'the condition never came true');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

for (const outcome of ['succeeds', 'fails'] as const) {
  test(`when the client goes away in the middle of a deployment that ${outcome}, the branch tells the truth`, async () => {
    const agent = await world.newAgent();
    const starter = await world.opened.repos.resolve(agent.id, 'main');
    const tree = await world.workTree({ 'AGENTS.md': `${outcome}\n` });
    const head = (await world.git(['rev-parse', 'HEAD'], { cwd: tree })).stdout.trim();
    const client = spawn('git', ['push', world.url(agent.id), 'main'], {
      cwd: tree,
      detached: true,
      stdio: 'ignore',
    });
    const closed = once(client, 'close');
    await until(() => held.some(({ commit }) => commit === head));
    process.kill(-client.pid!, 'SIGKILL');
    await closed;
    held.find(({ commit }) => commit === head)!.end(outcome === 'fails' ? new RepoError('no') : null);
    const expected = outcome === 'fails' ? starter : head;
    await until(async () => (await world.opened.repos.resolve(agent.id, 'main')) === expected);
    // The lock of the repository is free again: the next push is taken.
    const next = world.git(['push', '-f', world.url(agent.id), 'main:other'], { cwd: tree });
    assert.equal((await next).code, 0);
  });
}

test('a client that goes away in the middle of its upload changes nothing and leaves no objects', async () => {
  const agent = await world.newAgent();
  const before = await world.opened.repos.resolve(agent.id, 'main');
  const line = `${'0'.repeat(40)} ${'1'.repeat(40)} refs/heads/main\0 report-status side-band-64k`;
  const upload = httpRequest({
    port: world.port,
    host: '127.0.0.1',
    method: 'POST',
    path: `/git/${agent.id}.git/git-receive-pack`,
    headers: {
      'Content-Type': 'application/x-git-receive-pack-request',
      Authorization: `Bearer ${await world.key('edit')}`,
    },
  });
  upload.on('error', () => undefined);
  const half = Buffer.concat([
    Buffer.from('PACK'),
    Buffer.from([0, 0, 0, 2, 0, 0, 0, 200]),
    Buffer.alloc(10),
  ]);
  upload.write(`${(line.length + 4).toString(16).padStart(4, '0')}${line}0000`);
  upload.write(half);
  await once(upload, 'response');
  upload.destroy();
  await until(async () => {
    const names = await readdir(world.bare(agent.id));
    const objects = await readdir(join(world.bare(agent.id), 'objects'));
    return !names.includes('berth-pushing') && !objects.some((name) => /tmp|incoming/.test(name));
  });
  assert.equal(await world.opened.repos.resolve(agent.id, 'main'), before);
});

test('a gate holds what it may, queues what it must and refuses the rest', async () => {
  const gate = new Gate({ total: 2, perKey: 1, maxWaiting: 1 });
  const first = await gate.enter('a');
  const second = await gate.enter('b');
  const order: string[] = [];
  const third = gate.enter('a').then((leave) => {
    order.push('a again');
    return leave;
  });
  await assert.rejects(gate.enter('c'), GateFull);
  second();
  await Promise.resolve();
  assert.deepEqual(order, []);
  first();
  (await third)();
  assert.deepEqual(order, ['a again']);
  const gone = new AbortController();
  const leave = await gate.enter('a');
  const waiting = gate.enter('a', gone.signal);
  gone.abort(new Error('gone'));
  await assert.rejects(waiting, /gone/);
  leave();
  (await gate.enter('a'))();
});
