import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { TrialFolders } from '../../src/admin/trial-folders.ts';

const isRoot = process.getuid?.() === 0;

test(
  'A trial folder that cannot be removed keeps no other from being removed, and is told of.',
  {
    skip: isRoot ? false : 'only root can mount something in one',
  },
  () => {
    const parent = mkdtempSync(join(tmpdir(), 'berth-trials-'));
    const folders = new TrialFolders();
    const made = [folders.for(parent), folders.for(parent), folders.for(parent)];
    assert.equal(spawnSync('mount', ['-t', 'tmpfs', 'none', made[1]!]).status, 0);
    try {
      assert.throws(() => folders.remove(), /busy/i);
      assert.deepEqual(
        made.map((folder) => existsSync(folder)),
        [false, true, false],
      );
    } finally {
      assert.equal(spawnSync('umount', [made[1]!]).status, 0);
      rmSync(parent, { recursive: true });
    }
  },
);
