import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readdir } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { RepoError } from '../../src/domain/ports/repos.ts';
import { GateFull, KeyGate } from '../../src/domain/key-gate.ts';
import { gitWorld, type GitWorld } from '../support/git-world.ts';
import { until } from '../support/until.ts';

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
    await until('it is deployed', () => held.some(({ commit }) => commit === head));
    process.kill(-client.pid!, 'SIGKILL');
    await closed;
    held.find(({ commit }) => commit === head)!.end(outcome === 'fails' ? new RepoError('no') : null);
    const expected = outcome === 'fails' ? starter : head;
    await until(
      'the branch is there',
      async () => (await world.opened.repos.resolve(agent.id, 'main')) === expected,
    );
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
  // A pack of 200 objects that ends within its first one, a blob of 15 bytes: git waits for the rest.
  const half = Buffer.from([...Buffer.from('PACK'), 0, 0, 0, 2, 0, 0, 0, 200, 0x3f, 0x78, 0x9c]);
  upload.write(`${(line.length + 4).toString(16).padStart(4, '0')}${line}0000`);
  upload.write(half);
  const objects = join(world.bare(agent.id), 'objects');
  const quarantines = async () => (await readdir(objects)).filter((name) => name.includes('incoming-'));
  await until('git has begun to store it', async () => (await quarantines()).length > 0);
  // As one whose git was killed leaves it behind.
  await mkdir(join(objects, 'tmp_objdir-incoming-killed'));
  upload.destroy();
  await until('all of it is gone', async () => {
    const names = await readdir(world.bare(agent.id));
    return !names.includes('berth-pushing') && (await quarantines()).length === 0;
  });
  assert.deepEqual(
    (await readdir(objects)).filter((name) => name.startsWith('tmp')),
    [],
  );
  assert.equal(await world.opened.repos.resolve(agent.id, 'main'), before);
});

test('a gate holds what it may, queues what it must and refuses the rest', async () => {
  const gate = new KeyGate({ total: 2, perKey: 1, maxWaiting: 1 });
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
