import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { RepoStore } from '../../src/repos/repo-store.ts';

test('a removal of a repository that was cut off is gone on with by the next one, and touches no other', async (t) => {
  const root = await mkdtemp(join(tmpdir(), 'berth-repos-'));
  t.after(() => rm(root, { recursive: true, force: true }));
  const store = new RepoStore(root);
  const [one, other] = [newId(), newId()];
  for (const id of [one, other]) await mkdir(join(store.dir(id), 'objects'), { recursive: true });
  // The process ends in the middle: its folders are still there, under the name by which they were put aside.
  const broken = new RepoStore(root);
  await rename(store.dir(one), join(root, `.old-${one.replaceAll('-', '')}0123456789abcdef01`));
  await broken.remove(one);
  assert.deepEqual(await readdir(root), [`${other}.git`]);
  await store.remove(other);
  assert.deepEqual(await readdir(root), []);
});
