import assert from 'node:assert/strict';
import { closeSync, fsyncSync, mkdirSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { openCgroups, type Cgroups } from '../../src/sandbox/cgroup/cgroups.ts';
import { readMounts } from '../../src/sandbox/cgroup/mounts.ts';
import { makeImage } from '../../src/sandbox/disk/image-file.ts';
import { mountImage, unmount } from '../../src/sandbox/disk/image-mounts.ts';
import { diskPace } from '../../src/sandbox/disk/pace.ts';
import { DiskWatch } from '../../src/sandbox/disk/watch.ts';
import { noDisks } from '../support/disk-trial.ts';
import { silentLog } from '../support/log.ts';
import { until } from '../support/until.ts';
import { fixture, MIB, usualLimits, type Fixture } from './fixture.ts';

const problem = await noDisks();

describe('what is written to a disk of an agent’s own in a second', { skip: problem ?? false }, () => {
  let folder: string;
  let volumeDir: string;
  before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'berth-pace-'));
    volumeDir = join(folder, 'volume');
    mkdirSync(volumeDir);
    await makeImage(join(folder, 'agent.img'), 48 * MIB, null);
    await mountImage(join(folder, 'agent.img'), volumeDir, silentLog);
  });
  after(async () => {
    await unmount(volumeDir, true);
    rmSync(folder, { recursive: true });
  });

  const write = (mib: number): void => {
    const file = openSync(join(volumeDir, 'file'), 'w');
    for (let one = 0; one < mib; one += 1) writeSync(file, Buffer.alloc(MIB, 'x'));
    fsyncSync(file);
    closeSync(file);
  };
  /** A stand-in for a sandbox whose disk this is: when it was told to stand still, and to go on. */
  const watched = (watch: DiskWatch, bytesPerSecond: number) => {
    const told = { heldMs: [] as number[], releasedMs: [] as number[], looks: 0 };
    const pace = diskPace(volumeDir, bytesPerSecond)!;
    const look = pace.look.bind(pace);
    pace.look = () => {
      told.looks += 1;
      return look();
    };
    watch.add({
      id: 'one',
      volumeDir,
      quota: null,
      pace,
      hostDir: folder,
      pids: () => [],
      isBroken: () => false,
      end: () => assert.fail('it is ended'),
      hold: async () => void told.heldMs.push(performance.now()),
      release: () => told.releasedMs.push(performance.now()),
    });
    return told;
  };

  test('is counted, also when the program did not ask for it to be kept', () => {
    const pace = diskPace(volumeDir, MIB)!;
    assert.equal(pace.look(), 0);
    write(12);
    // Eight at once, and one each second.
    const restMs = pace.look();
    assert.ok(restMs > 1000 && restMs <= 2000, `${restMs} ms`);
    pace.close();
    assert.equal(diskPace(volumeDir, 0), null);
  });

  test('lets a sandbox stand still that is ahead, for as long as it is', async () => {
    const watch = new DiskWatch(silentLog);
    const told = watched(watch, 2 * MIB);
    const { heldMs, releasedMs } = told;
    try {
      write(8);
      told.looks = 0;
      await until('it was looked at', () => told.looks >= 2);
      assert.deepEqual(heldMs, [], 'what comes at once now and then is let pass');
      write(12);
      await until('it goes on', () => releasedMs.length === 1);
      const restedMs = releasedMs[0]! - heldMs[0]!;
      assert.ok(restedMs > 500, `${restedMs} ms`);
    } finally {
      watch.close();
    }
  });

  test('leaves nobody standing still whose service ends', async () => {
    const watch = new DiskWatch(silentLog);
    const { heldMs, releasedMs } = watched(watch, MIB);
    write(20);
    await until('it stands still', () => heldMs.length === 1);
    assert.deepEqual(releasedMs, []);
    watch.close();
    assert.equal(releasedMs.length, 1);
  });
});

describe('a sandbox that writes without end', { skip: problem ?? false }, () => {
  let fx: Fixture;
  let imagesDir: string;
  let cgroups: Cgroups;
  const limits = { ...usualLimits, diskBytes: 48 * MIB };
  before(async () => {
    imagesDir = mkdtempSync(join(tmpdir(), 'berth-paced-'));
    fx = fixture({ disk: { mode: 'image', imagesDir, bytes: limits.diskBytes, bytesPerSecond: MIB } });
    cgroups = await openCgroups({ ...readMounts(), name: `berth-${fx.name}`, isRoot: true });
  });
  after(async () => {
    await fx.close();
    rmSync(imagesDir, { recursive: true });
  });

  test('stands still and goes on again and again, is not told to be frozen, and can be killed', async (t) => {
    if (!cgroups.canFreeze) return t.skip('sandboxes cannot be frozen here');
    const sandbox = await fx.start('while :; do head -c 4M /dev/zero > fill; sync fill; done', { limits });
    const group = cgroups.group(sandbox.id);
    for (let times = 0; times < 2; times += 1) {
      await until('it stands still', () => group.isFrozen());
      assert.equal(sandbox.isFrozen, false);
      await until('it goes on', () => !group.isFrozen());
    }
    await until('it stands still', () => group.isFrozen());
    assert.equal((await sandbox.kill()).reason, 'killed');
  });
});
