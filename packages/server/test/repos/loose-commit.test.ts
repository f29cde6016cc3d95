import assert from 'node:assert/strict';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { looseCommit } from '../../src/repos/loose-commit.ts';
import { RepoStore } from '../../src/repos/repo-store.ts';
import { clientGit } from '../support/git-world.ts';

/** A repository with two commits: `main` on the second, a branch `first`, an annotated tag and one that is a file's. */
async function repository(t: TestContext) {
  const root = await mkdtemp(join(tmpdir(), 'berth-loose-'));
  t.after(() => rm(root, { recursive: true, force: true }));
  const store = new RepoStore(root);
  const agentId = newId();
  const dir = store.dir(agentId);
  const run = clientGit(root);
  const git = async (...args: string[]): Promise<string> => {
    const { code, stdout, stderr } = await run(['--git-dir', dir, ...args]);
    assert.equal(code, 0, stderr);
    return stdout.trim();
  };
  await store.make(agentId, () => Promise.resolve());
  const tree = await git('hash-object', '-t', 'tree', '-w', '/dev/null');
  const first = await git('commit-tree', '-m', 'first', tree);
  const second = await git('commit-tree', '-m', 'second', '-p', first, tree);
  await git('update-ref', 'refs/heads/first', first);
  await git('update-ref', 'refs/heads/main', second);
  await git('tag', '-a', '-m', 'said', 'said', second);
  await git('update-ref', 'refs/tags/tree', tree);
  await git('symbolic-ref', 'refs/heads/other', 'refs/heads/first');
  const fileOf = (id: string): string => join(dir, 'objects', id.slice(0, 2), id.slice(2));
  return { store, agentId, dir, git, first, second, tree, fileOf };
}

test('a commit is known by its branch and by its id without a process of git', async (t) => {
  const { dir, first, second } = await repository(t);
  assert.equal(await looseCommit(dir, 'refs/heads/main'), second);
  assert.equal(await looseCommit(dir, 'refs/heads/first'), first);
  assert.equal(await looseCommit(dir, first), first);
  for (const absent of ['refs/heads/none', 'refs/heads/main/below', 'refs/berth/starter'])
    assert.equal(await looseCommit(dir, absent), null, absent);
});

test('what is symbolic, a tag, no commit or no name of a ref is left to git, which says what it is', async (t) => {
  const { store, agentId, dir, first, second, tree } = await repository(t);
  const told: [string, string | null][] = [
    ['HEAD', second],
    ['refs/heads/other', first],
    ['refs/tags/said', second],
    ['refs/tags/tree', null],
    [tree, null],
    ['0'.repeat(40), null],
    [second.slice(0, 10), second],
    ['refs/heads', null],
    ['refs/heads/../heads/main', null],
    ['refs/../../etc/passwd', null],
    [`refs/heads/${'long'.repeat(100)}`, null],
  ];
  for (const [name, commit] of told) {
    assert.equal(await looseCommit(dir, name), undefined, name);
    assert.equal(await store.commitOf(agentId, name), commit, name);
  }
});

test('a branch and commits that git has packed are found as before, and so is a ref that moved since', async (t) => {
  const { store, agentId, dir, git, first, second } = await repository(t);
  await git('pack-refs', '--all');
  assert.equal(await store.commitOf(agentId, 'refs/heads/main'), second);
  assert.equal(await store.commitOf(agentId, 'refs/heads/none'), null);
  await git('update-ref', 'refs/heads/main', first);
  assert.equal(await looseCommit(dir, 'refs/heads/main'), first);
  await git('repack', '-a', '-d', '-q');
  assert.equal(await looseCommit(dir, 'refs/heads/main'), undefined);
  assert.equal(await store.commitOf(agentId, 'refs/heads/main'), first);
  assert.equal(await store.commitOf(agentId, second), second);
});

test('a branch whose commit is missing, cut off or another is no commit', async (t) => {
  const { store, agentId, dir, first, second, fileOf } = await repository(t);
  await chmod(fileOf(second), 0o644);
  const whole = await readFile(fileOf(second));
  for (const broken of [
    whole.subarray(0, whole.length / 2),
    await readFile(fileOf(first)),
    Buffer.alloc(0),
  ]) {
    await writeFile(fileOf(second), broken);
    assert.equal(await looseCommit(dir, 'refs/heads/main'), undefined);
    assert.equal(await store.commitOf(agentId, 'refs/heads/main'), null);
  }
  await rm(fileOf(second));
  assert.equal(await store.commitOf(agentId, 'refs/heads/main'), null);
  await writeFile(join(dir, 'refs', 'heads', 'main'), 'no id\n');
  assert.equal(await store.commitOf(agentId, 'refs/heads/main'), null);
});
