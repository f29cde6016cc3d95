import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  rmdirSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { imageBytesFor, makeImage } from '../../src/sandbox/disk/image-file.ts';
import { tryImage } from '../../src/sandbox/disk/image-probe.ts';
import { isMounted, mountedFrom, mountImage } from '../../src/sandbox/disk/image-mounts.ts';
import type { BlankDiskOptions } from '../../src/sandbox/disk/blank-disk.ts';
import { Helper, missingHelper, PERL } from '../../src/sandbox/helper.ts';
import { moveMount } from '../../src/sandbox/mounter.ts';
import { TRIAL_DISK_BYTES, Volumes, type DiskMode } from '../../src/sandbox/volumes.ts';
import { fixture, MIB } from './fixture.ts';
import { noDisks } from '../support/disk-trial.ts';
import { silentLog } from '../support/log.ts';
import { until } from '../support/until.ts';

type MoveMount = BlankDiskOptions['move'];

const bytes = 16 * MIB;
const user = { uid: 200_123, gid: 200_123 };
const folder = `/tmp/berth-blank-disks-${process.pid}`;
const problem = await noDisks();

describe('the disk of a new agent', { skip: problem ?? missingHelper(PERL) ?? false }, () => {
  let helper: Helper;
  let count = 0;
  before(() => (helper = new Helper(PERL, `blank-disks-${process.pid}`)));
  after(() => {
    helper.close();
    assert.deepEqual(mountedFrom(folder), []);
    rmSync(folder, { recursive: true, force: true });
  });

  interface Place {
    volumes: Volumes;
    disks: string;
    at: (name: string) => string;
    warnings: string[];
    /** Makes one ready. */
    ready: () => Promise<void>;
    end: () => Promise<void>;
  }

  function place(options: { mode?: DiskMode; move?: MoveMount; root?: string } = {}): Place {
    count += 1;
    const root = options.root ?? join(folder, String(count));
    const disks = join(root, 'disks');
    const at = (name: string): string => join(root, 'volumes', name);
    mkdirSync(join(root, 'volumes'), { recursive: true });
    const warnings: string[] = [];
    const log = { ...silentLog, warn: (message: string) => void warnings.push(message) };
    const move = options.move ?? ((from: string, to: string) => moveMount(helper, from, to));
    const volumes = new Volumes({ mode: options.mode ?? 'image', imagesDir: disks, bytes }, log, {
      move,
      pauseMs: 1,
    });
    const ready = (): Promise<void> => volumes.expect(bytes);
    const end = async (): Promise<void> => {
      for (const name of readdirSync(join(root, 'volumes'))) await volumes.remove(at(name));
      assert.deepEqual(readdirSync(join(root, 'volumes')), []);
      await volumes.close([]);
      if (existsSync(disks)) assert.deepEqual(readdirSync(disks), [], 'nothing is left');
    };
    return { volumes, disks, at, warnings, ready, end };
  }

  /** The folder of the one that is ready. */
  function blankIn(disks: string): string {
    const name = readdirSync(disks).find((entry) => entry.startsWith('blank-') && !entry.includes('.'));
    assert.ok(name !== undefined, 'one is ready');
    return join(disks, name);
  }

  test('is made before it, and is nobody else’s from then on', async () => {
    const { volumes, disks, at, warnings, ready, end } = place();
    await ready();
    const blank = statSync(`${blankIn(disks)}.img`);
    assert.ok(blank.blocks * 512 >= imageBytesFor(bytes), 'its room is set aside');
    const [a, b] = await Promise.all(['a', 'b'].map((name) => volumes.open(at(name), user, bytes)));
    assert.equal(a?.quota, null);
    assert.equal(b?.quota, null);
    for (const name of ['a', 'b']) {
      assert.ok(isMounted(at(name)));
      assert.equal(statSync(at(name)).uid, user.uid);
      assert.deepEqual(readdirSync(join(at(name), 'workspace')), []);
      writeFileSync(join(at(name), 'workspace/whose'), name);
    }
    const inodes = ['a', 'b'].map((name) => statSync(join(disks, `${name}.img`)).ino);
    assert.equal(inodes.filter((inode) => inode === blank.ino).length, 1, 'one gets the one that was there');
    assert.notEqual(statSync(at('a')).dev, statSync(at('b')).dev);
    assert.deepEqual(
      mountedFrom(disks)
        .map((mount) => mount.folder)
        .toSorted(),
      [at('a'), at('b')],
    );
    await ready();
    await volumes.open(at('c'), user, bytes);
    assert.deepEqual(readdirSync(join(at('c'), 'workspace')), []);
    assert.deepEqual(warnings, []);
    await end();
  });

  const failures: [string, MoveMount][] = [
    ['nothing was moved', () => Promise.reject(new Error('refused'))],
    [
      'it is at both places',
      async (from, to) => {
        assert.equal(spawnSync('mount', ['--bind', from, to]).status, 0);
        throw new Error('refused');
      },
    ],
    [
      'another one was moved',
      async (_, to) => {
        assert.equal(spawnSync('mount', ['-t', 'tmpfs', 'none', to]).status, 0);
      },
    ],
  ];
  for (const [what, move] of failures) {
    test(`is its own all the same when the one that was ready could not be moved: ${what}`, async () => {
      const { volumes, disks, at, warnings, ready, end } = place({ move });
      await ready();
      await volumes.open(at('a'), user, bytes);
      writeFileSync(join(at('a'), 'workspace/kept'), '');
      assert.ok(mountedFrom(disks).some((mount) => mount.folder === at('a')));
      assert.deepEqual(warnings, ['A disk that was ready could not be given.']);
      await ready();
      assert.deepEqual(readdirSync(join(at('a'), 'workspace')), ['kept']);
      await volumes.open(at('b'), user, bytes);
      assert.deepEqual(readdirSync(join(at('b'), 'workspace')), []);
      await end();
    });
  }

  test('is not changed by an order to move one that was given up and is done late', async () => {
    const orders: (() => Promise<void>)[] = [];
    const move: MoveMount = (from, to) => {
      orders.push(() => moveMount(helper, from, to));
      return Promise.reject(new Error('no answer'));
    };
    const { volumes, disks, at, ready, end } = place({ move });
    await ready();
    await volumes.open(at('a'), user, bytes);
    writeFileSync(join(at('a'), 'workspace/kept'), '');
    await ready();
    const next = blankIn(disks);
    await assert.rejects(orders[0]!());
    assert.deepEqual(readdirSync(join(at('a'), 'workspace')), ['kept']);
    assert.ok(isMounted(next));
    // Should it come even later, and over what is there: that goes too.
    assert.equal(spawnSync('mount', ['-t', 'tmpfs', 'none', at('a')]).status, 0);
    await end();
  });

  test('is its own all the same when somebody has unmounted the one that was ready', async () => {
    const { volumes, disks, at, warnings, ready, end } = place();
    await ready();
    assert.equal(spawnSync('umount', [blankIn(disks)]).status, 0);
    await volumes.open(at('a'), user, bytes);
    assert.deepEqual(
      mountedFrom(disks).map((mount) => mount.folder),
      [at('a')],
    );
    assert.deepEqual(warnings, ['A disk that was ready could not be given.']);
    await ready();
    await volumes.open(at('b'), user, bytes);
    await end();
  });

  test('is a folder after all when `auto` cannot make it, and what `image` cannot make is told', async () => {
    const { volumes, disks, at, warnings, end } = place({ mode: 'auto' });
    const image = place({ mode: 'image' });
    for (const folder of [disks, image.disks])
      mkdirSync(join(folder, `a.img.new-${process.pid}`), { recursive: true });
    assert.equal((await volumes.open(at('a'), user, bytes)).quota?.fileBytes, bytes);
    assert.deepEqual(warnings, ['A new agent is watched, since its disk could not be made.']);
    assert.equal((await volumes.open(at('b'), user, bytes)).quota, null);
    await assert.rejects(image.volumes.open(image.at('a'), user, bytes));
    for (const folder of [disks, image.disks]) rmdirSync(join(folder, `a.img.new-${process.pid}`));
    assert.equal((await volumes.open(at('a'), user, bytes)).quota?.fileBytes, bytes, 'it stays what it is');
    assert.equal((await image.volumes.open(image.at('a'), user, bytes)).quota, null);
    await end();
    await image.end();
  });

  test('is not laid over the files of a volume that is a folder, whatever they are, nor made for a trial', async () => {
    for (const mode of ['auto', 'image'] as const) {
      const { volumes, at, end } = place({ mode });
      // As while a restore swaps the trees.
      mkdirSync(join(at('a'), 'next'), { recursive: true });
      await volumes.prepare(at('a'), null);
      assert.ok(!isMounted(at('a')));
      await end();
    }
    const { volumes, at, end } = place({ mode: 'auto' });
    assert.notEqual((await volumes.open(at('a'), user, TRIAL_DISK_BYTES)).quota, null);
    await end();
  });

  test('is unmounted by the end of a service whose data directory is named by a link', async () => {
    const real = join(folder, 'real');
    mkdirSync(real);
    const root = join(folder, 'link');
    symlinkSync(real, root);
    const { volumes, at, ready, end } = place({ root });
    await ready();
    for (const name of ['a', 'b']) await volumes.open(at(name), user, bytes);
    writeFileSync(join(at('a'), 'workspace/kept'), '');
    // As for a sandbox that lives on.
    await volumes.close([at('b')]);
    assert.deepEqual([isMounted(at('a')), isMounted(at('b'))], [false, true]);
    await volumes.open(at('a'), user, bytes);
    assert.ok(existsSync(join(at('a'), 'workspace/kept')));
    await end();
  });

  test('is removed by the end of the next service, though that watches, when a service was killed while it was nobody’s', async () => {
    const { volumes, disks, end } = place({ mode: 'watch' });
    // A container has the same few pids again and again.
    const left = join(disks, `blank-${process.ppid}`);
    mkdirSync(left, { recursive: true });
    await makeImage(`${left}.img`, bytes, null);
    await mountImage(`${left}.img`, left, silentLog);
    await volumes.close([]);
    assert.deepEqual(mountedFrom(disks), []);
    assert.deepEqual(readdirSync(disks), []);
    await end();
  });

  test('is found again when the service was killed while it gave it, and one that was nobody’s is removed', async () => {
    const { volumes, disks, at, ready, end } = place();
    const killed = process.ppid;
    const left = join(disks, `blank-${killed}`);
    mkdirSync(left, { recursive: true });
    await makeImage(join(disks, 'a.img'), bytes, null);
    await mountImage(join(disks, 'a.img'), left, silentLog);
    mkdirSync(join(left, 'workspace'));
    writeFileSync(join(left, 'workspace/kept'), '');
    writeFileSync(`${left}.img`, 'half');
    // `berth doctor` beside a service opens disks, too, and leaves alone what is ready there.
    await volumes.open(at('a'), user, bytes);
    assert.deepEqual(readdirSync(join(at('a'), 'workspace')), ['kept']);
    assert.ok(existsSync(`${left}.img`));
    await ready();
    assert.deepEqual(
      readdirSync(disks).filter((name) => name.startsWith(`blank-${killed}`)),
      [],
    );
    assert.deepEqual(readdirSync(join(at('a'), 'workspace')), ['kept']);
    await end();
  });

  test('is watched by `auto` where the data lies in memory, and that is said once', async () => {
    const root = join(folder, 'in-memory');
    mkdirSync(root, { recursive: true });
    assert.equal(spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=4g', 'none', root]).status, 0);
    try {
      const { volumes, disks, at, warnings, end } = place({ mode: 'auto', root });
      for (const name of ['a', 'b']) {
        const { quota } = await volumes.open(at(name), user, bytes);
        assert.equal(quota?.fileBytes, bytes);
      }
      assert.equal((await volumes.report(true)).isHard, false);
      assert.deepEqual(warnings, [
        'The disks of new agents are watched. The file system of BERTH_DATA_DIR lies in memory, or cannot set room aside.',
      ]);
      assert.deepEqual(readdirSync(disks), []);
      await end();
    } finally {
      assert.equal(spawnSync('umount', [root]).status, 0);
    }
  });

  /** A file system of the host. */
  function hostDisk(name: string, mib: number): string {
    const root = join(folder, name);
    mkdirSync(root, { recursive: true });
    const host = join(folder, `${name}.host`);
    writeFileSync(host, '');
    truncateSync(host, mib * MIB);
    assert.equal(spawnSync('mkfs.ext4', ['-q', '-F', '-m', '0', host]).status, 0);
    assert.equal(spawnSync('mount', ['-o', 'loop', host, root]).status, 0);
    return root;
  }

  test('that is nobody’s yet takes the room of one, however many sandboxes start meanwhile', async () => {
    const root = hostDisk('roomy', 1024 + 400);
    try {
      const { volumes, at, warnings, end } = place({ mode: 'auto', root });
      const asked = Array.from({ length: 100 }, () => volumes.expect(bytes));
      assert.equal((await volumes.open(at('a'), user, bytes)).quota, null);
      await Promise.all(asked);
      assert.deepEqual(warnings, []);
      await end();
    } finally {
      await until('it is unmounted', () => spawnSync('umount', [root]).status === 0);
    }
  });

  /** As when a service was killed while one was ready. */
  async function leaveBlank(disks: string): Promise<void> {
    const left = join(disks, `blank-${process.ppid}-1`);
    mkdirSync(left, { recursive: true });
    await makeImage(`${left}.img`, bytes, null);
    await mountImage(`${left}.img`, left, silentLog);
  }

  test('gets the room of one that was nobody’s of a service that was killed', async () => {
    for (const isMadeBefore of [true, false]) {
      // Room for one, and not for two.
      const root = hostDisk(`left-${isMadeBefore}`, 1024 + 100);
      try {
        const { volumes, disks, at, warnings, ready, end } = place({ mode: 'auto', root });
        await leaveBlank(disks);
        if (isMadeBefore) await ready();
        assert.equal((await volumes.open(at('a'), user, bytes)).quota, null);
        assert.deepEqual(warnings, []);
        await end();
      } finally {
        await until('it is unmounted', () => spawnSync('umount', [root]).status === 0);
      }
    }
  });

  test('is not made before it where the host would have less than a tenth of its disk, or a gibibyte', async () => {
    const root = hostDisk('nearly-full', 512);
    try {
      const { volumes, disks, at, ready, end } = place({ mode: 'image', root });
      await ready();
      assert.deepEqual(existsSync(disks) ? readdirSync(disks) : [], []);
      // For an agent that is there it is made.
      assert.equal((await volumes.open(at('a'), user, bytes)).quota, null);
      await end();
    } finally {
      await until('it is unmounted', () => spawnSync('umount', [root]).status === 0);
    }
  });

  test('is an image also when what was tried could not be removed', async () => {
    const { volumes, disks, at, warnings, end } = place({ mode: 'auto' });
    // A folder can be locked like a file, and is not removed like one.
    const lock = join(disks, `trial-${process.pid}.img.lock`);
    mkdirSync(lock, { recursive: true });
    assert.equal((await volumes.open(at('a'), user, bytes)).quota, null);
    assert.deepEqual(warnings, ['A disk that was tried could not be removed.']);
    rmdirSync(lock);
    for (const name of readdirSync(disks))
      if (name.startsWith('trial-')) rmSync(join(disks, name), { recursive: true });
    await end();
  });

  test('is watched by `auto` where less than a tenth of the host’s disk, or a gibibyte, would stay free', async () => {
    const root = hostDisk('small', 1024 + 120);
    try {
      const { volumes, disks, at, warnings, end } = place({ mode: 'auto', root });
      const names = ['a', 'b', 'c', 'd', 'e'];
      // All at once.
      const opened = await Promise.all(names.map((name) => volumes.open(at(name), user, bytes)));
      const own = names.filter((_, n) => opened[n]?.quota === null);
      assert.ok(own.length >= 1 && own.length <= 3, `with disks of their own: ${own.join(', ')}`);
      assert.deepEqual(
        readdirSync(disks).filter((name) => name.endsWith('.img')),
        own.map((name) => `${name}.img`),
      );
      const { isHard, notes } = await volumes.report(true);
      assert.ok(isHard);
      const said = notes.filter((note) => note.includes('no room'));
      assert.equal(said.length, 1);
      assert.deepEqual(warnings, Array(names.length - own.length).fill(said[0]));
      // Again and again the same: a volume stays what it is.
      for (const name of names)
        assert.equal((await volumes.open(at(name), user, bytes)).quota === null, own.includes(name));
      await volumes.remove(at(own[0]!));
      await until('its room is free', async () => !(await volumes.report(true)).notes.includes(said[0]!));
      assert.equal((await volumes.open(at('f'), user, bytes)).quota, null);
      await end();
    } finally {
      await until('it is unmounted', () => spawnSync('umount', [root]).status === 0);
    }
  });

  test('of a trial is nobody else’s: services and `berth doctor` try side by side', async () => {
    const disk = { mode: 'image' as const, imagesDir: join(folder, 'trials'), bytes };
    const fx = fixture({ disk });
    const reports = await Promise.all([1, 2, 3].map(() => fx.driver.capabilities(true)));
    for (const { problems, warmPool } of reports)
      assert.deepEqual({ problems, warmPool }, { problems: [], warmPool: true });
    await fx.close();
    assert.deepEqual(readdirSync(disk.imagesDir), []);
  });

  test('is looked for where there is no data directory yet, which others can go through then', async () => {
    const root = join(folder, 'not', 'yet');
    const trial = await tryImage(join(root, 'disks'), silentLog);
    assert.equal(trial.problem, null);
    const modes = ['not', 'not/yet', 'not/yet/disks'].map(
      (name) => statSync(join(folder, name)).mode & 0o777,
    );
    assert.deepEqual(modes, [0o711, 0o711, 0o700]);
  });

  test('is not tried before somebody asks whether it can be an image, unless only an image will do', async () => {
    const auto = place({ mode: 'auto' });
    assert.equal((await auto.volumes.report(false)).isHard, true);
    assert.equal(existsSync(auto.disks), false);
    assert.equal((await auto.volumes.report(true)).isHard, true);
    assert.equal(existsSync(auto.disks), true);
    const image = place({ mode: 'image' });
    assert.equal((await image.volumes.report(false)).isHard, true);
    assert.equal(existsSync(image.disks), true);
  });
});
