import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, readFile, readdir, stat, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { RepoError } from '../../src/domain/ports/repos.ts';
import { gitWorld, type GitWorld } from '../support/git-world.ts';

let world: GitWorld;
before(async () => {
  world = await gitWorld({
    limits: { packBytes: 2 * 1024 * 1024, archiveEntries: 50, archiveBytes: 1024 * 1024, refsPerPush: 5 },
  });
});
after(() => world.close());

const raw = (tree: string, args: string[], input?: string | Buffer): string => {
  const done = spawnSync('git', args, {
    cwd: tree,
    ...(input === undefined ? {} : { input }),
    env: {
      PATH: process.env['PATH'],
      HOME: world.home,
      GIT_AUTHOR_NAME: 'A',
      GIT_AUTHOR_EMAIL: 'a@e.c',
      GIT_COMMITTER_NAME: 'A',
      GIT_COMMITTER_EMAIL: 'a@e.c',
    },
  });
  assert.equal(done.status, 0, done.stderr.toString());
  return done.stdout.toString().trim();
};

/** Puts a tree that no work tree could hold on `main`. */
function forge(tree: string, entries: string): string {
  const id = raw(
    tree,
    ['hash-object', '-t', 'tree', '-w', '--literally', '--stdin'],
    Buffer.from(entries, 'latin1'),
  );
  const commit = raw(tree, ['commit-tree', '-m', 'forged', id]);
  raw(tree, ['update-ref', 'refs/heads/main', commit]);
  return commit;
}

const entry = (mode: string, name: string, id: string): string =>
  `${mode} ${name}\0${Buffer.from(id, 'hex').toString('latin1')}`;

for (const name of ['.git', '..', '.', '.GIT', 'git~1', 'a/b']) {
  test(`a tree with an entry named ${JSON.stringify(name)} is refused with its whole pack`, async () => {
    const agent = await world.newAgent();
    const before = await world.opened.repos.resolve(agent.id, 'main');
    const tree = await world.workTree({ 'AGENTS.md': 'x\n' });
    const blob = raw(tree, ['hash-object', '-w', '--stdin'], 'x');
    forge(tree, entry('100644', name, blob));
    const pushed = await world.git(['push', '-f', world.url(agent.id), 'main'], { cwd: tree });
    assert.equal(pushed.code, 1, pushed.stderr);
    assert.match(pushed.stderr, /remote: (fatal|error)/);
    assert.equal(await world.opened.repos.resolve(agent.id, 'main'), before);
  });
}

test('a pack above the limit is refused with a clear line and leaves nothing behind', async () => {
  const agent = await world.newAgent();
  const tree = await world.workTree({ 'AGENTS.md': 'x\n' });
  await writeFile(join(tree, 'big.bin'), randomBytes(5 * 1024 * 1024));
  await world.commit(tree, {});
  const pushed = await world.git(['push', world.url(agent.id), 'main'], { cwd: tree });
  assert.equal(pushed.code, 1, pushed.stderr);
  assert.match(pushed.stderr, /pack exceeds maximum allowed size/);
  const left = await readdir(join(world.bare(agent.id), 'objects'));
  assert.deepEqual(
    left.filter((name) => /tmp|incoming/.test(name)),
    [],
  );
});

test('a push of more branches than allowed is refused', async () => {
  const agent = await world.newAgent();
  const tree = await world.workTree({ 'AGENTS.md': 'x\n' });
  const names = Array.from({ length: 6 }, (_, index) => `main:b${index}`);
  const pushed = await world.git(['push', world.url(agent.id), ...names], { cwd: tree });
  assert.notEqual(pushed.code, 0);
  assert.match(pushed.stderr, /413/);
  assert.equal(await world.opened.repos.resolve(agent.id, 'b0'), null);
});

test('a symbolic link to a file of the host is never followed, and goes into the archive as a link', async () => {
  const agent = await world.newAgent();
  const tree = await world.workTree({ 'real.txt': 'real\n' });
  await symlink('/etc/passwd', join(tree, 'AGENTS.md'));
  await symlink('real.txt', join(tree, 'inner'));
  await symlink('/etc', join(tree, 'folder'));
  const commit = await world.commit(tree, {});
  const pushed = await world.git(['push', world.url(agent.id), 'main'], { cwd: tree });
  assert.equal(pushed.code, 0, pushed.stderr);
  const { repos } = world.opened;
  for (const path of [
    'AGENTS.md',
    'inner',
    'folder/passwd',
    '../../../etc/passwd',
    '/etc/passwd',
    'real.txt/x',
    '',
  ]) {
    assert.equal(await repos.readFile(agent.id, commit, path, 1000), null, path);
  }
  assert.equal((await repos.readFile(agent.id, commit, 'real.txt', 1000))?.toString(), 'real\n');
  await assert.rejects(repos.readFile(agent.id, commit, 'real.txt', 2), RepoError);
  const target = join(world.home, `${agent.id}.tar`);
  await repos.writeArchive(agent.id, commit, target);
  const listed = spawnSync('tar', ['-tvf', target]).stdout.toString();
  assert.match(listed, /^l.* AGENTS\.md -> \/etc\/passwd$/m);
});

test('a submodule aimed at the host is not fetched and unpacks as an empty directory', async () => {
  let asked = 0;
  const host = createServer((_request, response) => {
    asked += 1;
    response.end();
  });
  host.listen(0, '127.0.0.1');
  await once(host, 'listening');
  try {
    const agent = await world.newAgent();
    const url = `http://127.0.0.1:${(host.address() as AddressInfo).port}/secret`;
    const tree = await world.workTree({
      'AGENTS.md': 'x\n',
      '.gitmodules': `[submodule "sub"]\n\tpath = sub\n\turl = ${url}\n`,
    });
    raw(tree, ['update-index', '--add', '--cacheinfo', `160000,${'1'.repeat(40)},sub`]);
    raw(tree, ['commit', '-q', '-m', 'sub']);
    const commit = raw(tree, ['rev-parse', 'HEAD']);
    const pushed = await world.git(['push', world.url(agent.id), 'main'], { cwd: tree });
    assert.equal(pushed.code, 0, pushed.stderr);
    const target = join(world.home, `${agent.id}.tar`);
    await world.opened.repos.writeArchive(agent.id, commit, target);
    assert.match(spawnSync('tar', ['-tvf', target]).stdout.toString(), /^d.* sub\/$/m);
    assert.equal(asked, 0);
  } finally {
    host.close();
  }
});

test('the attributes of a tree neither hide files from the archive nor change them nor run anything', async () => {
  const agent = await world.newAgent();
  const proof = join(world.home, `filter-ran-${agent.id}`);
  const text = 'line one\r\n$Format:%H$\n';
  const tree = await world.workTree({
    '.gitattributes': `hidden.txt export-ignore\nfile.txt export-subst\nfile.txt filter=evil\n`,
    'hidden.txt': 'here\n',
  });
  raw(tree, ['config', 'core.autocrlf', 'false']);
  await writeFile(join(tree, 'file.txt'), text);
  await mkdir(join(tree, 'deep', 'x'.repeat(90)), { recursive: true });
  await writeFile(join(tree, 'deep', 'x'.repeat(90), 'y'.repeat(90)), 'long\n');
  await writeFile(join(tree, 'run.sh'), '#!/bin/sh\n', { mode: 0o755 });
  const commit = await world.commit(tree, {});
  await world.git(['--git-dir', world.bare(agent.id), 'config', 'filter.evil.smudge', `touch ${proof}`]);
  const pushed = await world.git(['push', world.url(agent.id), 'main'], { cwd: tree });
  assert.equal(pushed.code, 0, pushed.stderr);
  const target = join(world.home, `${agent.id}.tar`);
  await world.opened.repos.writeArchive(agent.id, commit, target);
  assert.equal((await stat(target)).mode & 0o777, 0o644);
  const out = join(world.home, `out-${agent.id}`);
  await mkdir(out);
  const unpacked = spawnSync('tar', ['-xf', target, '-C', out]);
  assert.equal(unpacked.status, 0, unpacked.stderr.toString());
  assert.equal(await readFile(join(out, 'hidden.txt'), 'utf8'), 'here\n');
  assert.equal(await readFile(join(out, 'file.txt'), 'utf8'), text);
  assert.equal(await readFile(join(out, 'deep', 'x'.repeat(90), 'y'.repeat(90)), 'utf8'), 'long\n');
  assert.equal((await stat(join(out, 'run.sh'))).mode & 0o111, 0o111);
  await assert.rejects(stat(proof), { code: 'ENOENT' });
  // A second archive comes from the cache and is the same.
  const second = join(world.home, `${agent.id}-2.tar`);
  await world.opened.repos.writeArchive(agent.id, commit, second);
  assert.deepEqual(await readFile(second), await readFile(target));
});

test('too many files, too many bytes and a tree that names itself over and over are refused', async () => {
  const agent = await world.newAgent();
  const { checkTree, repos } = world.opened;
  const tree = await world.workTree({ 'AGENTS.md': 'x\n' });
  const many = await world.commit(
    tree,
    Object.fromEntries(Array.from({ length: 51 }, (_, index) => [`f${index}`, `${index}`])),
  );
  await world.git(['push', world.url(agent.id), 'main:many'], { cwd: tree });
  await assert.rejects(checkTree(agent.id, many), /more than 50 files/);

  const wide = await world.workTree({ zeros: '\0'.repeat(1024 * 1024 + 1) });
  await world.git(['push', world.url(agent.id), 'main:wide'], { cwd: wide });
  const target = join(world.home, `${agent.id}.tar`);
  const wideCommit = (await repos.resolve(agent.id, 'wide'))!;
  await assert.rejects(repos.writeArchive(agent.id, wideCommit, target), /larger than 1 MiB/);
  await assert.rejects(stat(target), { code: 'ENOENT' });

  // Ten levels of ten times the same tree: ten thousand million paths in a few hundred bytes.
  const bomb = await world.workTree({ x: 'x' });
  let id = raw(bomb, ['rev-parse', 'HEAD^{tree}']);
  for (let level = 0; level < 10; level += 1) {
    const lines = Array.from({ length: 10 }, (_, index) => `040000 tree ${id}\td${index}\n`).join('');
    id = raw(bomb, ['mktree'], lines);
  }
  raw(bomb, ['update-ref', 'refs/heads/main', raw(bomb, ['commit-tree', '-m', 'bomb', id])]);
  const pushed = await world.git(['push', world.url(agent.id), 'main:bomb'], { cwd: bomb });
  assert.equal(pushed.code, 0, pushed.stderr);
  await assert.rejects(checkTree(agent.id, (await repos.resolve(agent.id, 'bomb'))!), /more than 50 files/);
});

test('what names no ref, commit or agent is refused before git sees it', async () => {
  const agent = await world.newAgent();
  const { repos } = world.opened;
  for (const ref of [
    '--upload-pack=x',
    '-q',
    'a..b',
    'main^{tree}',
    'main:AGENTS.md',
    '@{-1}',
    '',
    'x y',
    '../x',
  ]) {
    assert.equal(await repos.resolve(agent.id, ref), null, ref);
  }
  await assert.rejects(repos.readFile(agent.id, '--help', 'x', 10), RepoError);
  await assert.rejects(repos.readFile('../../etc', '1'.repeat(40), 'x', 10), RepoError);
  await assert.rejects(repos.keep(agent.id, '1'.repeat(40)), RepoError);
});
