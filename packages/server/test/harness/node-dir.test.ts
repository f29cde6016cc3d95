import assert from 'node:assert/strict';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { reachableNodeDir } from '../../src/harness/node-dir.ts';

function world(t: TestContext): { nodePath: string; targetDir: string; nodeDir: string } {
  const folder = mkdtempSync('/tmp/berth-node-');
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  chmodSync(folder, 0o711);
  const nodeDir = join(folder, 'closed', 'node');
  const targetDir = join(folder, 'runtime');
  mkdirSync(join(nodeDir, 'bin'), { recursive: true });
  mkdirSync(targetDir);
  const nodePath = join(nodeDir, 'bin', 'node');
  writeFileSync(nodePath, 'one');
  for (const path of [dirname(nodeDir), nodeDir, dirname(nodePath), nodePath]) chmodSync(path, 0o755);
  return { nodePath, targetDir, nodeDir };
}

test('Node is taken from where it is when every user can reach it, or when there is only one user', async (t) => {
  const { nodePath, targetDir, nodeDir } = world(t);
  assert.equal(await reachableNodeDir(nodePath, targetDir, true), nodeDir);
  chmodSync(dirname(nodeDir), 0o700);
  assert.equal(await reachableNodeDir(nodePath, targetDir, false), nodeDir);
  assert.deepEqual(readdirSync(targetDir), []);
});

test('Node in a folder that other users cannot enter is placed once where they can, and an old one goes away', async (t) => {
  const { nodePath, targetDir, nodeDir } = world(t);
  chmodSync(dirname(nodeDir), 0o700);
  const first = await reachableNodeDir(nodePath, targetDir, true);
  assert.equal(dirname(first), targetDir);
  assert.equal(readFileSync(join(first, 'bin', 'node'), 'utf8'), 'one');
  assert.equal(await reachableNodeDir(nodePath, targetDir, true), first);
  rmSync(nodePath);
  // Closed by a umask: then the file is copied, since a link would share its mode.
  writeFileSync(nodePath, 'second', { mode: 0o700 });
  const second = await reachableNodeDir(nodePath, targetDir, true);
  assert.equal(readFileSync(join(second, 'bin', 'node'), 'utf8'), 'second');
  for (const path of [second, join(second, 'bin'), join(second, 'bin', 'node')])
    assert.equal(statSync(path).mode & 0o005, 0o005);
  assert.equal(readdirSync(targetDir).length, 1);
});
