import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  statfsSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { basename, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { isDiskFull } from '../../src/domain/disk-full.ts';
import { lockOf, makeImage } from '../../src/sandbox/disk/image-file.ts';
import { tryImage } from '../../src/sandbox/disk/image-probe.ts';
import { isLetGo, isMounted, mountedFrom, mountImage, unmount } from '../../src/sandbox/disk/image-mounts.ts';
import { Volumes } from '../../src/sandbox/volumes.ts';
import { fixture, MIB, type Fixture } from './fixture.ts';
import { noDisks } from '../support/disk-trial.ts';
import { silentLog } from '../support/log.ts';
import { disksSideBySide } from '../support/side-by-side.ts';
import { until } from '../support/until.ts';

const diskBytes = 32 * MIB;
const limits = { memoryBytes: 256 * MIB, cpus: 1, pids: 64, diskBytes, openFiles: 256 };
const roomy = { ...limits, diskBytes: 64 * MIB };
const FILL = 'head -c 100M /dev/zero | split -b 4M - f';

const problem = await noDisks();

function commandOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    // It has ended.
    return '';
  }
}

describe('a volume that is a disk of its own', { skip: problem ?? false }, () => {
  let fx: Fixture;
  let imagesDir: string;
  const open = (place: Partial<Fixture> = {}): Fixture => {
    const made = fixture({
      ...(place.areaDir ? { areaDir: place.areaDir } : {}),
      ...(place.name ? { name: place.name } : {}),
      disk: { mode: 'image', imagesDir, bytes: diskBytes },
    });
    return made;
  };
  before(() => {
    imagesDir = `/tmp/berth-disks-${process.pid}`;
    fx = open();
  });
  after(async () => {
    await fx.close();
    assert.deepEqual(mountedFrom(imagesDir), []);
    assert.deepEqual(readdirSync(imagesDir), [], 'no image outlives its volume');
    rmSync(imagesDir, { recursive: true });
  });
  const volume = (slot: number): string => join(fx.folder, `volume-${slot}`);
  const image = (slot: number): string => join(imagesDir, `volume-${slot}.img`);
  const stateOf = (slot: number): string =>
    /^Filesystem state:\s+(.*)$/m.exec(
      spawnSync('tune2fs', ['-l', image(slot)], { encoding: 'utf8' }).stdout,
    )?.[1] ?? 'not told';
  /** Until then others on the host may have a copy of the mount, and write to the image when they let it go. */
  const takeOff = async (slot: number): Promise<void> => {
    assert.equal(spawnSync('umount', [volume(slot)]).status, 0);
    await until('nobody has the image', () => isLetGo(image(slot)));
  };
  const taken = (slot: number): number => statSync(image(slot)).blocks * 512;
  /** The loop device by which it is mounted. */
  const deviceOf = (slot: number): string =>
    spawnSync('findmnt', ['--noheadings', '--output', 'SOURCE', volume(slot)], {
      encoding: 'utf8',
    }).stdout.trim();
  const roomOf = (slot: number): number => statfsSync(volume(slot)).blocks * 4096;
  /**
   * Starts with a limit until the disk has its size, which a start leaves to the next one while others on the host have a
   * copy of the mount. What is in it stays.
   */
  const untilStarted = (slot: number, wanted: typeof limits, sum: string, hasSize: () => boolean) =>
    until('it has another size', async () => {
      assert.equal((await fx.run('sha256sum data', { limits: wanted, slot })).stdout, sum);
      return hasSize();
    });

  test('is told as a hard limit', async () => {
    const { limits: grades, usable, notes } = await fx.driver.capabilities();
    assert.ok(usable);
    assert.equal(grades.disk, 'hard');
    assert.ok(notes.some((note) => note.includes('disk of their own')));
  });

  test('gives ENOSPC at its limit, lets the agent delete and go on, and has all its room of the host from its first start', async () => {
    const { stdout, exit } = await fx.run(
      `${FILL} 2>&1 | grep -o "No space left"; du -sm . | cut -f1; rm f*; echo fits > a && cat a; sync .`,
      { limits, slot: 1 },
    );
    const [message, used, after] = stdout.trim().split('\n');
    assert.equal(message, 'No space left');
    assert.ok(Number(used) >= 31 && Number(used) <= 37, `${used} MiB were written`);
    assert.equal(after, 'fits');
    assert.equal(exit.reason, 'exit');
    assert.ok(taken(1) >= statSync(image(1)).size, 'no write in it can meet a host without room');
  });

  test('is not mounted, and takes nothing, where the host has not its whole size', async () => {
    const small = join(fx.folder, 'small-host');
    mkdirSync(small);
    assert.equal(spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=100m', 'none', small]).status, 0);
    try {
      const file = join(small, 'agent.img');
      await makeImage(file, 64 * MIB, null);
      const before = statfsSync(small).bfree;
      const error = await mountImage(file, join(small, 'volume'), silentLog).catch(
        (thrown: unknown) => thrown,
      );
      assert.ok(isDiskFull(error), String(error));
      assert.equal(statfsSync(small).bfree, before);
    } finally {
      assert.equal(spawnSync('umount', [small]).status, 0);
    }
  });

  test('ends what fails while it is full as disk_full, and the next start has room to delete', async () => {
    const { exit } = await fx.run(`${FILL} 2>/dev/null || exit 3`, { limits, slot: 2 });
    assert.equal(exit.reason, 'disk_full');
    const again = await fx.run('head -c 2M /dev/zero > note && rm f* && head -c 30M /dev/zero > big && ls', {
      limits,
      slot: 2,
    });
    assert.equal(again.stdout, 'big\nnote\n');
    assert.equal(again.exit.reason, 'exit');
  });

  test('harms no neighbour when it is full', async () => {
    await fx.run(FILL, { limits, slot: 2 });
    assert.equal(
      (await fx.run('head -c 20M /dev/zero > x && stat -c %s x', { limits, slot: 3 })).stdout,
      '20971520\n',
    );
  });

  test('bounds the number of files', async () => {
    const { stdout } = await fx.run(
      `perl -e 'for (1 .. 40000) { open(F, ">", "f$_") or do { print "$_ $!"; last }; close F }'`,
      { limits, slot: 4 },
    );
    assert.match(stdout, /^(19|20)\d{3} No space left/);
  });

  test('cannot be used for devices or set-uid programs, and holds nothing of the host', async () => {
    await fx.driver.prepareVolume(volume(5), 5);
    const line = readFileSync('/proc/self/mountinfo', 'utf8')
      .split('\n')
      .find((text) => text.includes(` ${volume(5)} `));
    assert.match(line ?? '', /nosuid,nodev/);
    const { stdout } = await fx.run(
      'ls -A /workspace /home/agent; find / -path /proc -prune -o -name reserve -print 2>/dev/null',
      {
        limits,
        slot: 5,
      },
    );
    assert.equal(stdout, '/home/agent:\n\n/workspace:\n');
  });

  test('grows and shrinks with the limit, and keeps what is in it', async () => {
    const write = 'head -c 20M /dev/urandom > data && sha256sum data';
    const { stdout: sum } = await fx.run(write, { limits, slot: 6 });
    const first = roomOf(6);
    await untilStarted(6, roomy, sum, () => roomOf(6) > first + 30 * MIB);
    const more = await fx.run('head -c 35M /dev/zero > more && rm more && sha256sum data', {
      limits: roomy,
      slot: 6,
    });
    assert.equal(more.stdout, sum);
    await untilStarted(6, limits, sum, () => roomOf(6) < first + 4 * MIB);
  });

  test('that holds more than a lower limit stays as large and is watched', async () => {
    await fx.run('head -c 50M /dev/zero | split -b 10M - f', { limits: roomy, slot: 7 });
    const { exit } = await fx.run(
      'while :; do head -c 2M /dev/zero > $(mktemp -u ./XXXXXXXX); sleep 0.1; done',
      {
        limits,
        slot: 7,
      },
    );
    assert.equal(exit.reason, 'disk_full');
  });

  test('is not given another size while any process of the host has it mounted, so that nothing is lost', async () => {
    const { stdout: sum } = await fx.run('head -c 20M /dev/urandom > data && sha256sum data', {
      limits: roomy,
      slot: 15,
    });
    // As every start of a sandbox does for a moment.
    const holder = spawn('unshare', ['--mount', '--propagation', 'private', 'sh', '-c', 'echo up; exec cat']);
    try {
      await once(holder.stdout, 'data');
      const size = statSync(image(15)).size;
      assert.equal((await fx.run('sha256sum data', { limits, slot: 15 })).stdout, sum);
      assert.equal(statSync(image(15)).size, size);
    } finally {
      holder.stdin.end();
      await once(holder, 'close');
    }
    await untilStarted(15, limits, sum, () => roomOf(15) < 50 * MIB);
  });

  test('outlives the service and its mount', async () => {
    await fx.run('echo kept > a', { limits, slot: 8 });
    // As a reboot of the host leaves it.
    assert.equal(spawnSync('umount', [volume(8)]).status, 0);
    const next = open({ areaDir: fx.areaDir, name: `${fx.name}-next` });
    try {
      await next.driver.prepareVolume(volume(8), 8);
      assert.equal(readFileSync(join(volume(8), 'workspace/a'), 'utf8'), 'kept\n');
      await next.driver.prepareVolume(volume(8), 8);
      // A normal end leaves nothing mounted that nobody uses.
      await next.driver.close();
      assert.ok(!isMounted(volume(8)));
    } finally {
      rmSync(next.folder, { recursive: true });
    }
  });

  test('is mounted once, by whatever service', async () => {
    await fx.driver.prepareVolume(volume(9), 9);
    const next = open({ areaDir: fx.areaDir, name: `${fx.name}-next` });
    await next.driver.prepareVolume(volume(9), 9);
    assert.equal(mountedFrom(imagesDir).filter(({ folder: at }) => at === volume(9)).length, 1);
    await next.driver.removeVolume(volume(9));
    rmSync(next.folder, { recursive: true });
  });

  test('is written past the memory of the host, where nothing waits for one flush, also when an older service mounted it', async () => {
    const sizeMiB = 16;
    const heldMiB = (): number =>
      Number(
        spawnSync('fincore', ['--bytes', '--noheadings', '--output', 'RES', image(18)], { encoding: 'utf8' })
          .stdout,
      ) / MIB;
    const write = `head -c ${sizeMiB}M /dev/zero > a; sync a`;
    await fx.run(write, { limits, slot: 18 });
    const source = deviceOf(18);
    assert.ok(heldMiB() < sizeMiB / 4, `${heldMiB()} MiB are in the memory of the host`);
    // As one did that knew nothing of it.
    assert.equal(spawnSync('losetup', ['--direct-io=off', source]).status, 0);
    await fx.run(write, { limits, slot: 18 });
    assert.ok(heldMiB() >= sizeMiB, 'else the test could not tell');
    const next = open({ areaDir: fx.areaDir, name: `${fx.name}-next` });
    await next.driver.prepareVolume(volume(18), 18);
    assert.equal(readFileSync(`/sys/block/${basename(source)}/loop/dio`, 'utf8').trim(), '1');
    rmSync(next.folder, { recursive: true });
  });

  test('works on a disk that writes only whole blocks of 4 KiB, which knows no such writes', async () => {
    const [disk, at] = [join(fx.folder, 'large-sectors.img'), join(fx.folder, 'large-sectors')];
    writeFileSync(disk, '');
    truncateSync(disk, 256 * MIB);
    mkdirSync(at);
    const made = spawnSync('losetup', ['--find', '--show', '--sector-size', '4096', disk], {
      encoding: 'utf8',
    });
    const device = made.stdout.trim();
    assert.equal(spawnSync('mkfs.ext4', ['-q', '-b', '4096', device]).status, 0);
    assert.equal(spawnSync('mount', [device, at]).status, 0);
    try {
      assert.deepEqual(await tryImage(at, silentLog), { problem: null, isDirect: false, isSafe: true });
    } finally {
      await until('it is unmounted', () => spawnSync('umount', [at]).status === 0);
      spawnSync('losetup', ['--detach', device]);
    }
  });

  test('works on a file system that knows no direct writes', async () => {
    const plain = join(fx.folder, 'plain');
    mkdirSync(plain);
    // It has no disk to write to.
    assert.equal(spawnSync('mount', ['-t', 'ramfs', 'none', plain]).status, 0);
    const [file, at] = [join(plain, 'agent.img'), join(plain, 'volume')];
    try {
      await makeImage(file, diskBytes, null);
      // It cannot tell how much room it has, so that nothing may be left to take.
      writeFileSync(file, readFileSync(file));
      mkdirSync(at);
      assert.equal(await mountImage(file, at, silentLog), false);
      writeFileSync(join(at, 'a'), 'kept\n');
      assert.equal(await unmount(at, true), true);
      await until('nobody has the image', () => isLetGo(file));
    } finally {
      await until('it is unmounted', () => spawnSync('umount', [plain]).status === 0);
    }
  });

  test('is its own agent’s while others are made and removed beside it', async () => {
    const folder = join(fx.folder, 'side-by-side');
    const [own, at] = [join(folder, 'disks'), join(folder, 'volumes')];
    mkdirSync(at, { recursive: true });
    const volumes = new Volumes({ mode: 'image', imagesDir: own, bytes: 16 * MIB }, silentLog);
    await disksSideBySide({ volumes, imagesDir: own, volumesDir: at }, 3, 3);
    assert.deepEqual(mountedFrom(own), []);
  });

  test('is not taken for another one’s whose loop device it gets while its mount waits', async () => {
    const folder = join(fx.folder, 'changing-hands');
    const own = join(folder, 'disks');
    const at = (name: string): string => join(folder, 'volumes', name);
    const imageOf = (name: string): string => join(own, `${name}.img`);
    mkdirSync(join(folder, 'volumes'), { recursive: true });
    const volumes = new Volumes({ mode: 'image', imagesDir: own, bytes: 16 * MIB }, silentLog);
    await volumes.prepare(at('a'), null);
    writeFileSync(join(at('a'), 'workspace/of-a'), '');
    // Somebody has a copy of the mount, so that its device is found.
    const holder = spawn('unshare', ['--mount', '--propagation', 'private', 'sh', '-c', 'echo; exec cat'], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    await once(holder.stdout, 'data');
    assert.equal(await unmount(at('a'), true), true);
    const lock = spawn('flock', [lockOf(imageOf('a')), 'sh', '-c', 'echo; exec cat'], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    await once(lock.stdout, 'data');
    const mounting = mountImage(imageOf('a'), at('a'), silentLog);
    await until('its mount waits', () =>
      readdirSync('/proc')
        .filter((name) => /^\d+$/.test(name))
        .some((pid) => commandOf(pid).includes(`${lockOf(imageOf('a'))}\0mount`)),
    );
    holder.stdin.end();
    await until('nobody has the image', () => isLetGo(imageOf('a')));
    for (const name of ['b', 'c']) await volumes.prepare(at(name), null);
    lock.stdin.end();
    await mounting;
    assert.deepEqual(readdirSync(join(at('a'), 'workspace')), ['of-a']);
    for (const name of ['a', 'b', 'c']) await volumes.remove(at(name));
    assert.deepEqual(mountedFrom(own), []);
  });

  test('of a folder that was there before, nothing is made', async () => {
    const watching = fixture({ areaDir: fx.areaDir, name: `${fx.name}-w` });
    const volumeDir = volume(10);
    await watching.driver.prepareVolume(volumeDir, 10);
    writeFileSync(join(volumeDir, 'workspace/a'), 'old\n');
    assert.equal((await fx.run('cat a', { limits, slot: 10 })).stdout, 'old\n');
    assert.ok(!existsSync(image(10)) && !isMounted(volumeDir));
    rmSync(watching.folder, { recursive: true });
  });

  test('that was left dirty, and wrong in its counts, is repaired before it is mounted again', async () => {
    await fx.run('echo kept > a; head -c 3M /dev/zero > b', { limits, slot: 13 });
    await takeOff(13);
    const wrong = ['ssv state 2', 'ssv free_blocks_count 7', 'ssv free_inodes_count 7', 'quit'].join('\n');
    assert.equal(spawnSync('debugfs', ['-w', '-f', '-', image(13)], { input: wrong }).status, 0);
    assert.match(stateOf(13), /with errors/);
    const { stdout, exit } = await fx.run('cat a && rm a b && head -c 28M /dev/zero > c && ls', {
      limits,
      slot: 13,
    });
    assert.deepEqual([stdout, exit.reason], ['kept\nc\n', 'exit']);
    assert.equal(stateOf(13), 'clean');
  });

  test('that is damaged so that its repair takes a decision does not keep its agent from starting', async () => {
    await fx.run('echo kept > a; mkdir sub; echo lost > sub/b', { limits, slot: 16 });
    const { ino } = statSync(join(volume(16), 'workspace/sub'));
    await takeOff(16);
    const damage = [`clri <${ino}>`, 'ssv state 2', 'quit'].join('\n');
    assert.equal(spawnSync('debugfs', ['-w', '-f', '-', image(16)], { input: damage }).status, 0);
    const { stdout } = await fx.run('cat a; echo more > sub; ls', { limits, slot: 16 });
    assert.equal(stdout, 'kept\na\nsub\n');

    const { stdout: found } = spawnSync('sh', ['-c', 'cat *'], { cwd: join(volume(16), 'lost+found') });
    assert.match(String(found), /lost/, 'what has lost its name is not lost');
  });

  test('that the kernel has closed after an error is mended by the next start, with what was in it', async () => {
    await fx.run('echo kept > a; sync a .', { limits, slot: 14 });
    const { source } = JSON.parse(spawnSync('findmnt', ['--json', volume(14)], { encoding: 'utf8' }).stdout)
      .filesystems[0];
    // The kernel's own way to try what an error does; without it, what is seen from outside is the same.
    const trigger = `/sys/fs/ext4/${basename(source)}/trigger_fs_error`;
    if (existsSync(trigger)) writeFileSync(trigger, 'a test of berth');
    else assert.equal(spawnSync('mount', ['-o', 'remount,ro', volume(14)]).status, 0);
    assert.throws(() => writeFileSync(join(volume(14), 'workspace/b'), ''), { code: 'EROFS' });
    const { stdout, exit } = await fx.run('cat a && echo more > b && cat b', { limits, slot: 14 });
    assert.deepEqual([stdout, exit.reason], ['kept\nmore\n', 'exit']);
    assert.equal(stateOf(14), 'clean');
    assert.equal(mountedFrom(imagesDir).filter(({ folder: at }) => at === volume(14)).length, 1);
  });

  test('and an unfinished image, trial or loop device of a service that was killed is taken away', async () => {
    writeFileSync(join(imagesDir, 'volume-11.img.new-4194303'), '');
    const trial = join(imagesDir, 'trial-4194303');
    mkdirSync(trial);
    writeFileSync(`${trial}.img.lock`, '');
    assert.equal(spawnSync('mkfs.ext4', ['-q', `${trial}.img`, '8M']).status, 0);
    assert.equal(spawnSync('mount', ['-o', 'loop', `${trial}.img`, trial]).status, 0);
    const stray = join(imagesDir, 'volume-12.img');
    writeFileSync(stray, Buffer.alloc(MIB));
    assert.equal(spawnSync('losetup', ['--find', stray]).status, 0);
    rmSync(stray);
    const next = open({ areaDir: fx.areaDir, name: `${fx.name}-next` });
    await next.driver.prepareVolume(volume(11), 11);
    assert.deepEqual(
      readdirSync(imagesDir).filter((name) => /\.new|^trial/.test(name)),
      [],
    );
    assert.deepEqual(
      mountedFrom(imagesDir).filter(({ folder: at }) => at === trial),
      [],
    );
    assert.ok(!spawnSync('losetup', ['--all'], { encoding: 'utf8' }).stdout.includes(stray));
    await next.driver.removeVolume(volume(11));
    rmSync(next.folder, { recursive: true });
  });
});

test('without root rights there are no images, and the report says why', () => {
  const script = `import('${import.meta.resolve('../../src/sandbox/disk/image-probe.ts')}').then(async (m) => console.log((await m.tryImage('/tmp/none', null)).problem))`;
  const user = process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : {};
  const { stdout, stderr } = spawnSync(process.execPath, ['-e', script], { ...user, encoding: 'utf8' });
  assert.match(stdout, /need a service with root rights/, stderr);
});
