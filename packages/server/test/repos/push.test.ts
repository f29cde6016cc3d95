import assert from 'node:assert/strict';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { RepoError } from '../../src/domain/ports/repos.ts';
import { gitWorld, type GitWorld } from '../support/git-world.ts';

let world: GitWorld;
before(async () => {
  world = await gitWorld();
});
after(() => world.close());

test('a push deploys, shows its progress in the terminal and moves the branch', async () => {
  const agent = await world.newAgent();
  const tree = await world.workTree({ 'AGENTS.md': '# Hi\n', 'run.sh': 'echo 1\n' });
  const pushed = await world.git(['push', world.url(agent.id), 'main'], { cwd: tree });
  assert.equal(pushed.code, 0, pushed.stderr);
  assert.match(pushed.stderr, /remote: Reading agent\.json/);
  assert.match(pushed.stderr, /remote: Deployed [0-9a-f]{7} as /);
  const head = (await world.git(['rev-parse', 'HEAD'], { cwd: tree })).stdout.trim();
  assert.equal(await world.opened.repos.resolve(agent.id, 'main'), head);
  const active = await world.stores.deployments.activeOf(agent.id);
  assert.equal(active?.commit, head);
  const kept = await world.git(['--git-dir', world.bare(agent.id), 'for-each-ref', 'refs/berth/commits']);
  assert.match(kept.stdout, new RegExp(head));
});

test('a deployment that fails is shown in the terminal, fails the push, and leaves branch and deployment as they were', async () => {
  const agent = await world.newAgent();
  const tree = await world.workTree({ 'AGENTS.md': '# Hi\n' });
  const first = await world.git(['push', world.url(agent.id), 'main'], { cwd: tree });
  assert.equal(first.code, 0, first.stderr);
  const good = await world.opened.repos.resolve(agent.id, 'main');
  await world.commit(tree, { 'agent.json': '{ this is no JSON' });
  const pushed = await world.git(['push', world.url(agent.id), 'main'], { cwd: tree });
  assert.equal(pushed.code, 1);
  assert.match(pushed.stderr, /remote: Deployment failed: agent\.json/);
  assert.match(pushed.stderr, /\[remote rejected\] main -> main \(deployment failed\)/);
  assert.equal(await world.opened.repos.resolve(agent.id, 'main'), good);
  assert.equal((await world.stores.deployments.activeOf(agent.id))?.commit, good);
  // The corrected commit goes through afterwards.
  await world.commit(tree, { 'agent.json': '{}' });
  const again = await world.git(['push', world.url(agent.id), 'main'], { cwd: tree });
  assert.equal(again.code, 0, again.stderr);
});

test('a first push that fails takes the branch back to the starter commit', async () => {
  const agent = await world.newAgent();
  const starter = await world.opened.repos.resolve(agent.id, 'main');
  const tree = await world.workTree({ 'agent.json': 'no' });
  const pushed = await world.git(['push', world.url(agent.id), 'main'], { cwd: tree });
  assert.equal(pushed.code, 1);
  assert.equal(await world.opened.repos.resolve(agent.id, 'main'), starter);
});

test('a clone of a new agent has the starter file, and a push on top of it deploys', async () => {
  const agent = await world.newAgent();
  const tree = join(world.home, `clone-${agent.id}`);
  const cloned = await world.git(['clone', '-q', world.url(agent.id), tree]);
  assert.equal(cloned.code, 0, cloned.stderr);
  assert.match(await readFile(join(tree, 'AGENTS.md'), 'utf8'), /\S/);
  await world.commit(tree, { 'notes.txt': 'more\n' });
  const pushed = await world.git(['push', 'origin', 'main'], { cwd: tree });
  assert.equal(pushed.code, 0, pushed.stderr);
});

test('another branch is stored and not deployed, and the terminal says so', async () => {
  const agent = await world.newAgent();
  const before = await world.stores.deployments.activeOf(agent.id);
  const tree = await world.workTree({ 'AGENTS.md': '# Other\n' });
  const pushed = await world.git(['push', world.url(agent.id), 'main:feature'], { cwd: tree });
  assert.equal(pushed.code, 0, pushed.stderr);
  assert.match(pushed.stderr, /remote: Stored\. Only pushes to main deploy/);
  assert.deepEqual(await world.stores.deployments.activeOf(agent.id), before);
  assert.match((await world.opened.repos.resolve(agent.id, 'feature')) ?? '', /^[0-9a-f]{40}$/);
});

test('an unforced push of other history is rejected, a forced one deploys, and the earlier commit stays readable', async () => {
  const agent = await world.newAgent();
  const one = await world.workTree({ 'AGENTS.md': 'one\n' });
  assert.equal((await world.git(['push', world.url(agent.id), 'main'], { cwd: one })).code, 0);
  const earlier = (await world.opened.repos.resolve(agent.id, 'main'))!;
  const two = await world.workTree({ 'AGENTS.md': 'two\n' });
  const plain = await world.git(['push', world.url(agent.id), 'main'], { cwd: two });
  assert.equal(plain.code, 1);
  const forced = await world.git(['push', '-f', world.url(agent.id), 'main'], { cwd: two });
  assert.equal(forced.code, 0, forced.stderr);
  const gc = await world.git(['--git-dir', world.bare(agent.id), 'gc', '-q', '--prune=now']);
  assert.equal(gc.code, 0, gc.stderr);
  const bytes = await world.opened.repos.readFile(agent.id, earlier, 'AGENTS.md', 100);
  assert.equal(bytes?.toString(), 'one\n');
});

test('of pushes at the same moment one wins and the others are told to fetch first', async () => {
  const agent = await world.newAgent();
  const base = await world.workTree({ 'AGENTS.md': 'base\n' });
  assert.equal((await world.git(['push', world.url(agent.id), 'main'], { cwd: base })).code, 0);
  const trees = await Promise.all(
    [1, 2, 3].map(async (number) => {
      const tree = join(world.home, `race-${agent.id}-${number}`);
      await world.git(['clone', '-q', world.url(agent.id), tree]);
      await world.commit(tree, { 'who.txt': `${number}\n` });
      return tree;
    }),
  );
  const results = await Promise.all(trees.map((cwd) => world.git(['push', 'origin', 'main'], { cwd })));
  assert.equal(
    results.filter((result) => result.code === 0).length,
    1,
    results.map((r) => r.stderr).join('\n'),
  );
  for (const { code, stderr } of results) if (code !== 0) assert.match(stderr, /fetch first/);
  const winner = trees[results.findIndex((result) => result.code === 0)]!;
  const head = (await world.git(['rev-parse', 'HEAD'], { cwd: winner })).stdout.trim();
  assert.equal(await world.opened.repos.resolve(agent.id, 'main'), head);
  assert.equal((await world.stores.deployments.activeOf(agent.id))?.commit, head);
});

test('a branch that can not be made for another reason is not told to be fetched', async () => {
  const agent = await world.newAgent();
  const tree = await world.workTree({ 'AGENTS.md': 'x\n' });
  assert.equal((await world.git(['push', world.url(agent.id), 'main'], { cwd: tree })).code, 0);
  const refused = await world.git(['push', world.url(agent.id), 'main:main/sub'], { cwd: tree });
  assert.notEqual(refused.code, 0);
  assert.match(refused.stderr, /failed to update ref/);
  assert.doesNotMatch(refused.stderr, /fetch first/);
});

test('deleting the branch that deploys is refused, deleting another one works', async () => {
  const agent = await world.newAgent();
  const tree = await world.workTree({ 'AGENTS.md': 'x\n' });
  const both = await world.git(['push', world.url(agent.id), 'main', 'main:side'], { cwd: tree });
  assert.equal(both.code, 0, both.stderr);
  assert.equal((await world.git(['push', world.url(agent.id), ':side'], { cwd: tree })).code, 0);
  const refused = await world.git(['push', world.url(agent.id), ':main'], { cwd: tree });
  assert.equal(refused.code, 1);
  assert.match((await world.opened.repos.resolve(agent.id, 'main')) ?? '', /^[0-9a-f]{40}$/);
});

test('a client cannot see or write the refs of the service', async () => {
  const agent = await world.newAgent();
  const tree = await world.workTree({ 'AGENTS.md': 'x\n' });
  for (const ref of ['refs/berth/commits/x', 'refs/replace/x']) {
    const pushed = await world.git(['push', world.url(agent.id), `main:${ref}`], { cwd: tree });
    assert.equal(pushed.code, 1);
    assert.match(pushed.stderr, /deny updating a hidden ref/);
  }
  const seen = await world.git(['ls-remote', world.url(agent.id)]);
  assert.equal(seen.code, 0, seen.stderr);
  assert.doesNotMatch(seen.stdout, /refs\/berth/);
});

test('hooks in the repository directory and in the pushed tree are never run', async () => {
  const agent = await world.newAgent();
  const proof = join(world.home, `hook-ran-${agent.id}`);
  const hook = `#!/bin/sh\ntouch ${proof}\n`;
  const { mkdir } = await import('node:fs/promises');
  await mkdir(join(world.bare(agent.id), 'hooks'));
  for (const name of ['pre-receive', 'update', 'post-receive', 'post-update', 'reference-transaction']) {
    await writeFile(join(world.bare(agent.id), 'hooks', name), hook, { mode: 0o755 });
  }
  const tree = await world.workTree({ 'hooks/post-receive': hook, 'AGENTS.md': 'x\n' });
  assert.equal((await world.git(['push', world.url(agent.id), 'main'], { cwd: tree })).code, 0);
  await assert.rejects(stat(proof), { code: 'ENOENT' });
});

test('an interrupted push is undone by the next request, so that pushing again deploys', async () => {
  const agent = await world.newAgent();
  const tree = await world.workTree({ 'AGENTS.md': 'x\n' });
  assert.equal((await world.git(['push', world.url(agent.id), 'main'], { cwd: tree })).code, 0);
  const oldId = (await world.opened.repos.resolve(agent.id, 'main'))!;
  const newId = await world.commit(tree, { 'AGENTS.md': 'y\n' });
  // What a service killed between git's answer and the deployment leaves behind.
  await world.git(['push', world.url(agent.id), 'main:aside'], { cwd: tree });
  await world.git(['--git-dir', world.bare(agent.id), 'update-ref', 'refs/heads/main', newId]);
  const marker = JSON.stringify({ ref: 'refs/heads/main', oldId, newId });
  await writeFile(join(world.bare(agent.id), 'berth-pushing'), marker);
  const again = await world.git(['push', world.url(agent.id), 'main'], { cwd: tree });
  assert.equal(again.code, 0, again.stderr);
  assert.match(again.stderr, /remote: Deployed/);
  assert.ok(!(await readdir(world.bare(agent.id))).includes('berth-pushing'));
});

test('a client without side-band gets a report that is true, too', async () => {
  const deploys: string[] = [];
  const own = await gitWorld({
    deploy: async (_agentId, { commit }) => {
      deploys.push(commit);
      throw new RepoError('not today');
    },
  });
  try {
    const agent = await own.newAgent();
    const tree = await own.workTree({ 'AGENTS.md': 'x\n' });
    const head = (await own.git(['rev-parse', 'HEAD'], { cwd: tree })).stdout.trim();
    const { spawnSync } = await import('node:child_process');
    const pack = spawnSync('git', ['pack-objects', '--revs', '--stdout', '-q'], {
      cwd: tree,
      input: `${head}\n`,
    });
    const line = `${'0'.repeat(40)} ${head} refs/heads/main\0report-status`;
    const body = Buffer.concat([
      Buffer.from(`${(line.length + 4).toString(16).padStart(4, '0')}${line}0000`),
      pack.stdout,
    ]);
    const answer = await fetch(`http://127.0.0.1:${own.port}/git/${agent.id}.git/git-receive-pack`, {
      method: 'POST',
      headers: {
        'Content-Type': 'application/x-git-receive-pack-request',
        Authorization: `Bearer ${await own.key('edit')}`,
      },
      body,
    });
    assert.equal(answer.status, 200);
    const text = await answer.text();
    assert.match(text, /^000eunpack ok\n[0-9a-f]{4}ng refs\/heads\/main deployment failed\n0000$/);
    assert.deepEqual(deploys, [head]);
  } finally {
    await own.close();
  }
});
