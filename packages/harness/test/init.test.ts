import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, symlinkSync, unlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { initHasClosed } from '../src/init.ts';
import { LaunchError } from '../src/settings.ts';

test('nothing of an agent begins before the init of its sandbox has closed the /proc of the host', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'berth-init-'));
  try {
    symlinkSync('/dev/null', join(folder, '0'));
    await initHasClosed(folder);
    const held = join(folder, '3');
    symlinkSync('/proc', held);
    let isClosed = false;
    const waiting = initHasClosed(folder).then(() => assert.ok(isClosed));
    isClosed = true;
    unlinkSync(held);
    await waiting;

    symlinkSync('/proc', held);
    await assert.rejects(
      initHasClosed(folder, 5),
      (error) => error instanceof LaunchError && error.exitCode === 70,
    );
    // That of a container's engine is closed for everybody.
    await initHasClosed(join(folder, 'none'));
  } finally {
    rmSync(folder, { recursive: true });
  }
});
