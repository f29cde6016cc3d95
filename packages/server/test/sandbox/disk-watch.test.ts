import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { DiskWatch } from '../../src/sandbox/disk/watch.ts';
import { silentLog } from '../support/log.ts';
import { until } from '../support/until.ts';

const KIB = 1024;

test('a sandbox is measured five times a second at most for what others write, and goes on', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'berth-watch-'));
  const volumeDir = join(folder, 'volume');
  for (const tree of ['workspace', 'home']) mkdirSync(join(volumeDir, tree), { recursive: true });
  const watch = new DiskWatch(silentLog);
  const looks: number[] = [];
  let hasEnded = false;
  watch.add({
    id: 'one',
    volumeDir,
    // What is written beside it is soon more than that.
    quota: { bytes: 32 * KIB, entries: 1000, fileBytes: 32 * KIB },
    hostDir: folder,
    // It has no process, and so wrote nothing.
    pids: () => [],
    pace: null,
    isBroken: () => false,
    end: () => (hasEnded = true),
    hold: async () => assert.fail('it wrote nothing, and stands still'),
    // Once at the end of each measurement.
    release: () => looks.push(performance.now()),
  });
  try {
    let written = 0;
    await until('it was measured often', () => {
      writeFileSync(join(folder, `beside-${(written += 1)}`), Buffer.alloc(8 * KIB, 'x'));
      return looks.length >= 10;
    });
    // The first may come at once.
    const gaps = looks.slice(1).map((ms, index) => ms - looks[index]!);
    assert.ok(
      gaps.slice(1).every((ms) => ms > 190),
      gaps.map(Math.round).join(', '),
    );
    assert.equal(hasEnded, false);
  } finally {
    watch.remove('one');
    rmSync(folder, { recursive: true });
  }
});
