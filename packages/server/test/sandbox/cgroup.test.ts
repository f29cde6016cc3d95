import assert from 'node:assert/strict';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { Group } from '../../src/sandbox/cgroup/group.ts';
import { findHierarchies, type FindOptions } from '../../src/sandbox/cgroup/hierarchy.ts';
import { ownFolder, parseMounts, readMounts, type CgroupMount } from '../../src/sandbox/cgroup/mounts.ts';
import { openCgroups } from '../../src/sandbox/cgroup/cgroups.ts';
import { fixture, isRoot, lineOf, MIB } from './fixture.ts';
import { until } from '../support/until.ts';

const limits = { memoryBytes: 64 * MIB, cpus: 1.5, pids: 40, diskBytes: MIB, openFiles: 64 };

// The layouts below are plain folders in the shape of cgroup file systems: they show which files are read and written.
// That the kernel then enforces the limits is shown by the contract suite, on the layout of the host that it runs on.
describe('cgroup layouts', () => {
  let root: string;
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'berth-cgroup-'));
  });
  afterEach(() => rmSync(root, { recursive: true }));

  const text = (...path: string[]): string => readFileSync(join(root, ...path), 'utf8');
  const file = (path: string, content: string): void => {
    mkdirSync(join(root, path, '..'), { recursive: true });
    writeFileSync(join(root, path), content);
  };
  const options = (mounts: CgroupMount[], more: Partial<FindOptions> = {}): FindOptions => ({
    mounts,
    selfCgroup: '',
    name: 'berth-t',
    isRoot: true,
    ...more,
  });
  const version2 = (): CgroupMount => ({ version: 2, mountPoint: root, root: '/', controllers: [] });

  test('version 2 with controllers: they are handed down twice and limit each sandbox', async () => {
    file('cgroup.controllers', 'cpuset cpu io memory pids\n');
    file('cgroup.subtree_control', '');
    // A kernel answers with the names; the plain file keeps the request.
    file('berth-t/cgroup.subtree_control', 'cpu memory pids\n');
    file('berth-t/cgroup.freeze', '0\n');
    const found = findHierarchies(options([version2()]));
    const own = ownFolder(version2(), readMounts().selfCgroup);
    assert.deepEqual(found, [
      {
        version: 2,
        parent: join(root, 'berth-t'),
        controllers: ['memory', 'cpu', 'pids'],
        freezes: true,
        own,
      },
    ]);
    assert.equal(text('cgroup.subtree_control'), '+memory +cpu +pids');
    assert.ok(Number(text('berth-t/memory.max')) > 0);
    assert.equal(text('berth-t/cpu.weight'), '50');
    assert.ok(Number(text('berth-t/pids.max')) > 1000);

    const group = new Group(found, 'one');
    group.create();
    group.limit(limits);
    assert.equal(text('berth-t/one/memory.max'), String(64 * MIB));
    assert.equal(text('berth-t/one/memory.swap.max'), '0');
    assert.equal(text('berth-t/one/cpu.max'), '150000 100000');
    assert.equal(text('berth-t/one/cpu.weight'), '150');
    assert.equal(text('berth-t/one/pids.max'), '40');

    file('berth-t/one/memory.events', 'low 0\noom 2\noom_kill 1\n');
    file('berth-t/one/memory.stat', 'anon 1000\nfile 999999\nshmem 24\n');
    file('berth-t/one/cpu.stat', 'usage_usec 4321\nuser_usec 1\n');
    file('berth-t/one/pids.current', '7\n');
    file('berth-t/one/cgroup.procs', '11\n12\n');
    assert.equal(group.oomKills(), 1);
    assert.deepEqual(group.usage(), { cpuMicros: 4321, memoryBytes: 1024, pids: 7 });
    assert.deepEqual(group.pids(), [11, 12]);
    file('berth-t/one/cgroup.events', 'populated 1\nfrozen 1\n');
    await group.freeze();
    assert.equal(text('berth-t/one/cgroup.freeze'), '1');
    assert.equal(group.isFrozen(), true);
    group.thaw();
    assert.equal(text('berth-t/one/cgroup.freeze'), '0');
    group.kill();
    assert.equal(text('berth-t/one/cgroup.kill'), '1');
  });

  test('processes are counted by a file that is opened once, and closed when the group is removed', async () => {
    const mount: CgroupMount = { version: 1, mountPoint: root, root: '/', controllers: ['pids'] };
    const group = new Group(findHierarchies(options([mount])), 'one');
    const openFiles = () =>
      readdirSync('/proc/self/fd').filter((fd) => targetOf(fd).startsWith(join(root, 'berth-t/one'))).length;
    assert.equal(group.processCount(), null);
    file('berth-t/one/pids.current', '123\n');
    assert.equal(group.processCount(), 123);
    file('berth-t/one/pids.current', '7\n');
    assert.equal(group.processCount(), 7);
    assert.equal(openFiles(), 1);
    rmSync(join(root, 'berth-t/one'), { recursive: true });
    await group.destroy();
    assert.equal(group.processCount(), null);
    assert.equal(openFiles(), 0);
  });

  test('version 1 freezes by its freezer, and a kill thaws, since it would wait otherwise', async () => {
    const mount: CgroupMount = { version: 1, mountPoint: root, root: '/', controllers: ['freezer'] };
    const found = findHierarchies(options([mount]));
    const group = new Group(found, 'one');
    assert.equal(group.canFreeze, true);
    file('berth-t/one/freezer.state', 'THAWED\n');
    assert.equal(group.isFrozen(), false);
    await group.freeze();
    assert.equal(text('berth-t/one/freezer.state'), 'FROZEN');
    group.kill();
    assert.equal(text('berth-t/one/freezer.state'), 'THAWED');
  });

  test('a folder of all sandboxes that another process took away is made again with all that it had', () => {
    file('v2/cgroup.controllers', 'cpu memory pids\n');
    file('v2/cgroup.subtree_control', 'cpu memory pids\n');
    file('v2/berth-t/cgroup.subtree_control', 'cpu memory pids\n');
    const second: CgroupMount = { ...version2(), mountPoint: join(root, 'v2') };
    const found = findHierarchies(options([second]));
    const first: CgroupMount = {
      ...second,
      version: 1,
      mountPoint: join(root, 'v1'),
      controllers: ['memory'],
    };
    mkdirSync(join(root, 'v1'));
    found.push(...findHierarchies(options([first])));
    for (const { parent } of found) rmSync(parent, { recursive: true });
    const group = new Group(found, 'one');
    group.create();
    group.limit(limits);
    assert.equal(text('v2/berth-t/cgroup.subtree_control'), '+memory +cpu +pids');
    assert.ok(Number(text('v2/berth-t/memory.max')) > 0);
    assert.equal(text('v2/berth-t/one/memory.max'), String(64 * MIB));
    assert.ok(Number(text('v1/berth-t/memory.limit_in_bytes')) > 0);
    assert.equal(text('v1/berth-t/one/memory.limit_in_bytes'), String(64 * MIB));
  });

  test('version 2 without controllers claims no limit', () => {
    file('cgroup.controllers', 'hugetlb\n');
    const found = findHierarchies(options([version2()]));
    assert.deepEqual(found[0]?.controllers, []);
  });

  test('version 1 controllers are taken where version 2 has none, and CPU time is then counted by version 2', () => {
    file('unified/cgroup.controllers', '');
    const mounts: CgroupMount[] = [
      ...['memory', 'cpu', 'cpuacct', 'pids', 'freezer'].map((name): CgroupMount => ({
        version: 1,
        mountPoint: join(root, name),
        root: '/',
        controllers: [name],
      })),
      { version: 2, mountPoint: join(root, 'unified'), root: '/', controllers: [] },
    ];
    const found = findHierarchies(options(mounts));
    assert.deepEqual(
      found.map(({ version, controllers }) => [version, ...controllers]),
      [[2], [1, 'memory'], [1, 'cpu'], [1, 'pids']],
    );
    for (const unused of ['freezer', 'cpuacct']) assert.ok(!existsSync(join(root, unused, 'berth-t')));
  });

  test('version 1 alone: limits, counters and CPU time come from its own files', async () => {
    const mounts: CgroupMount[] = [
      { version: 1, mountPoint: join(root, 'memory'), root: '/', controllers: ['memory'] },
      { version: 1, mountPoint: join(root, 'cpu'), root: '/', controllers: ['cpu', 'cpuacct'] },
      { version: 1, mountPoint: join(root, 'pids'), root: '/', controllers: ['pids'] },
    ];
    const found = findHierarchies(options(mounts));
    const group = new Group(found, 'one');
    group.create();
    group.limit(limits);
    assert.equal(text('memory/berth-t/one/memory.limit_in_bytes'), String(64 * MIB));
    assert.equal(text('cpu/berth-t/one/cpu.cfs_quota_us'), '150000');
    assert.equal(text('cpu/berth-t/one/cpu.shares'), '1536');
    assert.equal(text('cpu/berth-t/cpu.shares'), '512');
    assert.equal(text('pids/berth-t/one/pids.max'), '40');
    file('memory/berth-t/one/memory.oom_control', 'oom_kill_disable 0\nunder_oom 0\noom_kill 3\n');
    file('memory/berth-t/one/memory.stat', 'cache 9\ntotal_rss 2048\ntotal_shmem 2\n');
    file('cpu/berth-t/one/cpuacct.usage', '5000000\n');
    assert.equal(group.oomKills(), 3);
    assert.equal(group.usage().cpuMicros, 5000);
    assert.equal(group.usage().memoryBytes, 2050);
  });

  test('without root the delegated folder of the service is used, also after the service moved to a leaf of it', () => {
    file('user.slice/app/cgroup.controllers', 'memory pids\n');
    file('user.slice/app/berth-t/cgroup.subtree_control', 'memory pids\n');
    for (const path of ['/user.slice/app', '/user.slice/app/berth-service']) {
      const found = findHierarchies(options([version2()], { isRoot: false, selfCgroup: `0::${path}\n` }));
      assert.equal(found[0]?.parent, join(root, 'user.slice/app/berth-t'));
      assert.deepEqual(found[0]?.controllers, ['memory', 'pids']);
    }
  });

  test('a folder that cannot be written is left out', () => {
    writeFileSync(join(root, 'file'), '');
    const mount: CgroupMount = { version: 2, mountPoint: join(root, 'file'), root: '/', controllers: [] };
    assert.deepEqual(findHierarchies(options([mount])), []);
  });
});

test('mounts are read with their escapes, and the own folder relative to what is mounted', () => {
  const mounts = parseMounts(
    [
      '30 25 0:26 / /sys/fs/cgroup/a\\040b rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate',
      '31 25 0:27 /docker/x /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct',
      '32 25 0:28 / /proc rw - proc proc rw',
    ].join('\n'),
  );
  assert.deepEqual(
    mounts.map(({ mountPoint, version }) => [mountPoint, version]),
    [
      ['/sys/fs/cgroup/a b', 2],
      ['/sys/fs/cgroup/cpu', 1],
    ],
  );
  const self = '4:cpu,cpuacct:/docker/x/y\n0::/user.slice\n';
  assert.equal(ownFolder(mounts[0]!, self), '/sys/fs/cgroup/a b/user.slice');
  assert.equal(ownFolder(mounts[1]!, self), '/sys/fs/cgroup/cpu/y');
  assert.equal(ownFolder(mounts[1]!, '4:cpu:/elsewhere\n'), null);
});

const noCgroups = await cgroupsMissing();

test('the quota of CPU time holds over the whole sandbox', { skip: noCgroups }, async () => {
  const fx = fixture();
  try {
    const half = { memoryBytes: 64 * MIB, cpus: 0.5, pids: 32, diskBytes: 16 * MIB, openFiles: 64 };
    const burn = 'perl -e "1 while 1"';
    const sandbox = await fx.start(`${burn} & ${burn} & echo lit; read line`, { limits: half });
    await lineOf(sandbox.stdout, (line) => line === 'lit');
    const [beginMs, before] = [performance.now(), await sandbox.stats()];
    let stats = before;
    await until('0.3 s of CPU time were used', async () => {
      stats = await sandbox.stats();
      return stats.cpuMicros - before.cpuMicros > 300_000;
    });
    const cores = (stats.cpuMicros - before.cpuMicros) / 1000 / (performance.now() - beginMs);
    // Periods are 100 ms long, so a short look may catch one more of them.
    assert.ok(cores < 0.75, `${cores} cores were used`);
    await sandbox.kill();
  } finally {
    await fx.close();
  }
});

test('the groups of a driver are gone after it was closed', { skip: noCgroups }, async () => {
  const fx = fixture();
  await fx.run('true');
  const name = `berth-${fx.name}`;
  const { hierarchies } = await openCgroups({ ...readMounts(), name, isRoot });
  assert.ok(hierarchies.length > 0);
  await fx.close();
  const { mounts } = readMounts();
  assert.deepEqual(
    mounts.filter(({ mountPoint }) => existsSync(join(mountPoint, name))),
    [],
  );
});

test(
  'what a service that was killed has left empty is the next one’s, and gone when that was closed',
  { skip: noCgroups },
  async () => {
    const killed = fixture();
    const name = `berth-${killed.name}`;
    const { hierarchies } = await openCgroups({ ...readMounts(), name, isRoot });
    const left = () => hierarchies.filter(({ parent }) => existsSync(parent)).length;
    assert.ok(left() > 0 && left() === hierarchies.length);
    // It was killed in the middle of its look at what the host offers. No process has so high a number.
    for (const { parent } of hierarchies) mkdirSync(join(parent, 'probe-99999999'));
    // Under the same name, as after its start.
    const next = fixture({ name: killed.name });
    await next.run('true');
    assert.equal(left(), hierarchies.length);
    await next.close();
    assert.equal(left(), 0);
    await killed.close();
  },
);

async function cgroupsMissing(): Promise<string | false> {
  const fx = fixture();
  const { limits: grades } = await fx.driver.capabilities();
  await fx.close();
  return grades.cpu === 'hard' ? false : 'cgroups cannot be written on this host';
}

/** What a descriptor of this process is open on; the one that lists them is closed again meanwhile. */
function targetOf(fd: string): string {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`);
  } catch {
    return '';
  }
}
