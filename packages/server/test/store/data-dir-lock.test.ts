import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { DataDirError, lockDataDir } from '../../src/store/data-dir-lock.ts';
import { startLines } from '../support/process.ts';
import { until } from '../support/until.ts';

const CHILD = fileURLToPath(new URL('./fixtures/embedded-child.ts', import.meta.url));

test('a second service on the same data directory is refused with the pid of the first; kill -9 frees it', async () => {
  const dataDir = mkdtempSync(join(tmpdir(), 'berth-lock-'));
  const holder = startLines(process.execPath, [CHILD, dataDir, 'lock-only']);
  try {
    await until('the lock is taken', () => holder.lines.length > 0);
    assert.throws(
      () => lockDataDir(dataDir),
      (error: Error) => {
        assert.ok(error instanceof DataDirError);
        assert.match(
          error.message,
          new RegExp(`^Another Berth \\(pid ${holder.child.pid}\\) uses the data directory ${dataDir}`),
        );
        assert.ok(!error.message.includes('\n'));
        return true;
      },
    );
    await holder.kill9();
    lockDataDir(dataDir).release();
  } finally {
    await holder.kill9();
    rmSync(dataDir, { recursive: true });
  }
});

test('a pid file of a crash, with a pid that lives again, hinders nobody', () => {
  const dataDir = mkdtempSync(join(tmpdir(), 'berth-lock-'));
  writeFileSync(join(dataDir, 'service.pid'), `${process.ppid}\n`);
  writeFileSync(join(dataDir, 'lock'), '');
  const lock = lockDataDir(dataDir);
  assert.throws(() => lockDataDir(dataDir), new RegExp(`pid ${process.pid}`));
  lock.release();
  assert.equal(existsSync(join(dataDir, 'service.pid')), false, 'nobody has it any more');
  lockDataDir(dataDir).release();
  rmSync(dataDir, { recursive: true });
});

test('a data directory that cannot be written is refused with the reason', () => {
  const folder = mkdtempSync(join(tmpdir(), 'berth-lock-'));
  const file = join(folder, 'no-folder');
  writeFileSync(file, '');
  assert.throws(() => lockDataDir(file), /no-folder cannot be written \(E/);
  rmSync(folder, { recursive: true });
});
