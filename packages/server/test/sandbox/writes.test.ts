import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import type { RunningSandbox } from '../../src/domain/ports/sandbox.ts';
import { Group } from '../../src/sandbox/cgroup/group.ts';
import { findHierarchies } from '../../src/sandbox/cgroup/hierarchy.ts';
import type { CgroupMount } from '../../src/sandbox/cgroup/mounts.ts';
import { writeLimit } from '../../src/sandbox/cgroup/writes.ts';
import { until } from '../support/until.ts';
import { fixture, isRoot, MIB, type Fixture } from './fixture.ts';

const limits = { memoryBytes: 64 * MIB, cpus: 1, pids: 40, diskBytes: MIB, openFiles: 64 };

for (const { version, controllers, file, limited, open } of [
  {
    version: 1,
    controllers: ['blkio'],
    file: 'blkio.throttle.write_bps_device',
    limited: '8:16 1000',
    open: '8:16 0',
  },
  { version: 2, controllers: [], file: 'io.max', limited: '8:16 wbps=1000', open: '8:16 wbps=max' },
] as const) {
  test(`by version ${version} of cgroups writes are limited until what waits for them is to end`, async () => {
    const root = mkdtempSync(join(tmpdir(), 'berth-writes-'));
    const own = join(root, 'berth-t', 'one');
    const text = (name: string): string => readFileSync(join(own, name), 'utf8');
    try {
      mkdirSync(join(root, 'berth-t'));
      writeFileSync(join(root, 'cgroup.controllers'), 'io memory');
      if (version === 2) writeFileSync(join(root, 'berth-t', 'cgroup.freeze'), '0');
      const mount: CgroupMount = { version, mountPoint: root, root: '/', controllers: [...controllers] };
      const writes = { device: '8:16', bytesPerSecond: 1000 };
      const options = { mounts: [mount], selfCgroup: '', name: 'berth-t', isRoot: true };
      const group = new Group(findHierarchies({ ...options, writes }), 'one');
      group.create(limits);
      assert.equal(text(file), limited);
      if (version === 2) {
        const freezing = group.freeze();
        await until('what it wrote may go sooner', () => text(file) === '8:16 wbps=4000');
        await until('what it wrote may go at once', () => text(file) === open);
        writeFileSync(join(own, 'cgroup.events'), 'populated 1\nfrozen 1\n');
        await freezing;
        assert.equal(text(file), limited);
      }
      group.kill();
      assert.equal(text(file), open);
      rmSync(own, { recursive: true });
      new Group(findHierarchies(options), 'one').create(limits);
      assert.throws(() => text(file), /ENOENT/);
    } finally {
      rmSync(root, { recursive: true });
    }
  });
}

test('writes are not limited where nobody wants it, nor on what is no disk', () => {
  assert.equal(writeLimit(tmpdir(), 0), null);
  for (const folder of ['/proc', '/dev', '/no/such/folder']) assert.equal(writeLimit(folder, 1000), null);
});

for (const [what, options, isLimited] of [
  ['with a journal, whose commits would wait for them', [], false],
  ['without a journal', ['-O', '^has_journal'], true],
] as const) {
  test(`on ext4 ${what}, writes are ${isLimited ? '' : 'not '}limited`, (t) => {
    if (!isRoot) return t.skip('only root can mount a file system');
    const folder = mkdtempSync(join(tmpdir(), 'berth-writes-'));
    const [image, place] = [join(folder, 'image'), join(folder, 'place')];
    mkdirSync(place);
    try {
      execFileSync('truncate', ['-s', '64M', image]);
      execFileSync('mkfs.ext4', ['-q', '-F', ...options, image]);
      try {
        execFileSync('mount', ['-o', 'loop', image, place], { stdio: 'pipe' });
      } catch (error) {
        return t.skip(`no loop device: ${String(error)}`);
      }
      try {
        assert.equal(writeLimit(place, 1000) !== null, isLimited);
      } finally {
        execFileSync('umount', [place]);
      }
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
}

describe('the kernel holds a sandbox to what it may write', () => {
  const limited = (t: TestContext, mibPerSecond: number): Fixture | null => {
    const fx = fixture({ writeBytesPerSecond: mibPerSecond * MIB });
    mkdirSync(fx.areaDir, { recursive: true });
    if (isRoot && writeLimit(fx.areaDir, 1) !== null) return fx;
    t.skip('no root, or the temporary folder lies on no disk whose writes may be limited');
    return null;
  };
  const writing = (name: string): string => `dd if=/dev/zero of=${name} bs=1M count=40 conv=fsync; exec cat`;
  const hasWritten = (fx: Fixture, name: string): Promise<unknown> => {
    const file = join(fx.folder, 'volume-1/workspace', name);
    return until('all is written', () => statSync(file, { throwIfNoEntry: false })?.size === 40 * MIB);
  };

  test('what a program waits for takes as long as the limit says', async (t) => {
    const fx = limited(t, 4);
    if (!fx) return;
    try {
      const beganMs = performance.now();
      const { exit } = await fx.run('dd if=/dev/zero of=x bs=1M count=12 conv=fsync');
      assert.equal(exit.code, 0);
      assert.ok(performance.now() - beganMs > 2000);
    } finally {
      await fx.close();
    }
  });

  test('a sandbox that would wait for a minute is frozen and killed all the same', async (t) => {
    const fx = limited(t, 0.5);
    if (!fx) return;
    try {
      const first: RunningSandbox = await fx.start(writing('first'));
      await hasWritten(fx, 'first');
      await first.freeze();
      assert.equal(first.isFrozen, true);
      await first.thaw();
      await first.kill();
      const second = await fx.start(writing('second'));
      await hasWritten(fx, 'second');
      assert.equal((await second.kill()).reason, 'killed');
    } finally {
      await fx.close();
    }
  });
});
