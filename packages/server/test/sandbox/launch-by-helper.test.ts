import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import {
  allPids,
  isRunning,
  markedProcesses,
  processOf,
  statFields,
  tryKill,
} from '../../src/sandbox/processes.ts';
import type { RunningSandbox } from '../../src/domain/ports/sandbox.ts';
import type { Cgroups } from '../../src/sandbox/cgroup/cgroups.ts';
import { HELPER_VARIABLE, missingHelper, PERL, type Helper } from '../../src/sandbox/helper.ts';
import { launchByHelper } from '../../src/sandbox/launch-by-helper.ts';
import { hostProcesses } from '../support/scenario.ts';
import { until } from '../support/until.ts';
import { fixture, isRoot, lineOf, pidsOf, usualLimits, type Fixture } from './fixture.ts';

const skip = missingHelper(PERL) ?? false;

/** Without those that do a single order right now. */
function helpersOf({ name }: Fixture): number[] {
  const pids = hostProcesses((_line, env) => env.includes(`${HELPER_VARIABLE}=${name}\0`));
  return pids.filter((pid) => Number(statFields(pid)?.[1]) === process.pid);
}

function helperOf(fx: Fixture): number {
  const found = helpersOf(fx);
  assert.equal(found.length, 1);
  return found[0]!;
}

const descriptorsOf = (pid: number): number => readdirSync(`/proc/${pid}/fd`).length;

/** Its program ends with 5 once a file is there. */
const patient = 'while [ ! -e go ]; do sleep 0.05; done; exit 5';

test(
  'a sandbox is a child of the helper and not of the service, and has no signal blocked or ignored',
  { skip },
  async () => {
    const fx = fixture();
    try {
      const sandbox = await fx.start('exec sleep 1000', { detached: true });
      const parents = pidsOf(sandbox).map((pid) => Number(statFields(pid)![1]));
      assert.ok(!parents.includes(process.pid));
      const monitors = parents.map((pid) => Number(statFields(pid)?.[1]));
      const helper = helperOf(fx);
      assert.ok(monitors.includes(helper), 'it was launched by another process');
      // Keys of the service's terminal go to its process group.
      assert.notEqual(statFields(helper)![2], statFields(process.pid)![2]);
      const { stdout } = await fx.run('cat /proc/self/status', { slot: 2 });
      for (const set of ['SigBlk', 'SigIgn']) assert.match(stdout, new RegExp(`^${set}:\\s+0+$`, 'm'));
    } finally {
      await fx.close();
    }
  },
);

for (const [what, signal] of [
  ['was killed', 'SIGKILL'],
  ['stands still', 'SIGSTOP'],
] as const) {
  test(
    `the end of a sandbox and its exit code are known also when its helper ${what}`,
    { skip },
    async () => {
      const fx = fixture();
      try {
        const sandbox = await fx.start(patient, { detached: true });
        process.kill(helperOf(fx), signal);
        writeFileSync(join(fx.folder, 'volume-1/workspace/go'), '');
        assert.deepEqual(await sandbox.exited, { reason: 'exit', code: 5, signal: null });
        const next = await fx.start('exit 6', { detached: true });
        assert.deepEqual(await next.exited, { reason: 'exit', code: 6, signal: null });
        assert.deepEqual(await fx.driver.list(), []);
      } finally {
        await fx.close();
      }
    },
  );
}

test('a helper that gives no answer is not ended while a sandbox would end with it', { skip }, async () => {
  const fx = fixture();
  let helper = 0;
  try {
    const first = await fx.start('cat; exit 7');
    helper = helperOf(fx);
    process.kill(helper, 'SIGSTOP');
    const second = await fx.start('exit 6', { slot: 2 });
    assert.deepEqual(await second.exited, { reason: 'exit', code: 6, signal: null });
    first.stdin.write('still here\n');
    await lineOf(first.stdout, (line) => line === 'still here');
    process.kill(helper, 'SIGCONT');
    first.stdin.end();
    assert.deepEqual(await first.exited, { reason: 'exit', code: 7, signal: null });
    const third = await fx.start('exit 8', { slot: 3 });
    assert.deepEqual(await third.exited, { reason: 'exit', code: 8, signal: null });
  } finally {
    if (helper > 0) tryKill(helper);
    await fx.close();
  }
});

test('a word of a command with a NUL byte is refused, and is not two words', async () => {
  const fx = fixture();
  try {
    await assert.rejects(fx.driver.start(fx.spec(['/bin/echo', 'a\0b'])), /A command holds a NUL byte/);
  } finally {
    await fx.close();
  }
});

test('launches leave no descriptor behind, neither in the service nor in its helper', { skip }, async () => {
  const fx = fixture();
  try {
    const once = async (detached: boolean): Promise<void> => {
      const sandbox = await fx.start('echo some words; echo others >&2', { detached });
      // Nobody reads them.
      await sandbox.exited;
    };
    for (const detached of [true, false]) await once(detached);
    const helper = helperOf(fx);
    const held = (): number[] => [descriptorsOf(process.pid), descriptorsOf(helper)];
    await until('nothing moves', () => held()[1]! < 12);
    const before = held();
    for (let round = 0; round < 5; round += 1) for (const detached of [true, false]) await once(detached);
    await until('all is closed', () => held().every((count, at) => count <= before[at]!));
  } finally {
    await fx.close();
  }
});

test('the helper sets the limits itself: no other program is run for them', { skip }, async () => {
  const fx = fixture({ prlimitPath: '/no/such/prlimit' });
  try {
    for (const detached of [true, false]) {
      const sandbox = await fx.start('exec sleep 1000', { detached, slot: detached ? 1 : 2 });
      await sandbox.kill();
    }
    const { stdout } = await fx.run('ulimit -n; ulimit -f', {
      slot: 3,
      limits: { ...usualLimits, openFiles: 123 },
    });
    assert.deepEqual(stdout.split('\n').slice(0, 2), ['123', String(usualLimits.diskBytes / 512)]);
  } finally {
    await fx.close();
  }
});

test(
  'of a start whose volume cannot be opened nothing is left, and it is told why',
  { skip: skip || !isRoot },
  async () => {
    const fx = fixture();
    try {
      const { volumeDir } = fx.spec(['none']);
      // A file stands where its folder is to be.
      writeFileSync(volumeDir, '');
      await assert.rejects(fx.start('exit 0', { detached: true }), /^Error: (EEXIST|ENOTDIR)/);
      rmSync(volumeDir);
      await until(
        'its processes are gone',
        () => !markedProcesses().some(({ mark }) => mark.startsWith(`${fx.name}/`)),
      );
      assert.equal((await fx.run('exit 4')).exit.code, 4);
    } finally {
      await fx.close();
    }
  },
);

test(
  'a limit that cannot be set is told as why the sandbox did not start',
  { skip: skip || !isRoot },
  async () => {
    const fx = fixture();
    try {
      const limits = { ...usualLimits, pids: -5 };
      await assert.rejects(fx.run('exit 0', { limits }), /^Error: The sandbox did not start: Error: EINVAL/);
    } finally {
      await fx.close();
    }
  },
);

/** A program as Perl, of a helper whose script has become another by this command of sed. */
const changedPerl = (change: string): string => String.raw`#!/bin/sh
script=$(printf '%s' "$2" | sed '${change}')
[ "$script" = "$2" ] && exit 1
shift 2
exec ${PERL} -e "$script" "$@"
`;
const WAIT = 'sysread(.go, my .word, 1)';

/** Works with a driver whose helper is run by this script, in a folder that users of sandboxes can enter. */
async function withPerl(
  script: (folder: string) => string,
  work: (fx: Fixture, folder: string) => Promise<void>,
): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'berth-perl-'));
  chmodSync(folder, 0o755);
  const perlPath = join(folder, 'perl');
  writeFileSync(perlPath, script(folder), { mode: 0o755 });
  const fx = fixture({ perlPath });
  try {
    await work(fx, folder);
  } finally {
    await fx.close();
    rmSync(folder, { recursive: true });
  }
}

/** Its bwrap waits between the word to go on and its exec, for as long as `file` is there. */
const slowPerl = (file: string): string =>
  changedPerl(String.raw`s|^  ${WAIT}.*|&\n  select(undef, undef, undef, 0.01) while -e "${file}";|`);
/** Its bwrap is killed before that word, which takes its time, once `file` is there. */
const mortalPerl = (file: string): string =>
  changedPerl(
    String.raw`s|^  ${WAIT}|  kill 9, $$ if -e "${file}";\n&|; s|taken => sub {|& select(undef, undef, undef, 0.3);|`,
  );

test(
  'a launch whose process is killed before the word to go on takes neither the helper nor a sandbox with it',
  { skip },
  () =>
    withPerl(
      (folder) => mortalPerl(join(folder, 'deadly')),
      async (fx, folder) => {
        const deadly = join(folder, 'deadly');
        // It ends with the helper.
        const first = await fx.start('cat; exit 7');
        const helper = helperOf(fx);
        writeFileSync(deadly, '');
        await assert.rejects(fx.run('exit 6', { slot: 2 }), /bwrap ended with SIGKILL/);
        rmSync(deadly);
        assert.equal((await fx.run('exit 8', { slot: 3 })).exit.code, 8);
        assert.equal(helperOf(fx), helper);
        first.stdin.end('still here\n');
        assert.deepEqual(await first.exited, { reason: 'exit', code: 7, signal: null });
      },
    ),
);

test(
  'of a helper that is killed before the exec of bwrap nothing is left that waits beside the real one',
  { skip },
  () =>
    withPerl(
      (folder) => slowPerl(join(folder, 'wait')),
      async (fx, folder) => {
        const childrenOf = (pid: number) => allPids().filter((one) => Number(statFields(one)?.[1]) === pid);
        // The first start opens what is kept.
        assert.equal((await fx.run('exit 4')).exit.code, 4);
        // From now on none comes to its exec: only the one that is launched without a helper.
        writeFileSync(join(folder, 'wait'), '');
        for (let round = 0; round < 3; round += 1) {
          const starting = fx.start('echo up; exec cat');
          const helper = await until('there is a helper', () => helpersOf(fx)[0]);
          const children = await until('it has forked', () => {
            const pids = childrenOf(helper);
            return pids.length >= 2 ? pids.map(processOf) : null;
          });
          process.kill(helper, 'SIGKILL');
          const sandbox = await starting;
          await lineOf(sandbox.stdout, (line) => line === 'up');
          await until('its children are gone', () =>
            children.every(({ pid, since }) => !isRunning(pid, since)),
          );
          const mark = `${fx.name}/${sandbox.id}`;
          assert.equal(markedProcesses().filter((one) => one.mark === mark).length, 2);
          sandbox.stdin.end();
          assert.equal((await sandbox.exited).code, 0);
        }
      },
    ),
);

/** Lines of /proc/PID/cgroup, for the hierarchies that this sandbox joined. */
function groupsOf(pid: number, id: string, init: number): string[] {
  const lines = (of: number) => readFileSync(`/proc/${of}/cgroup`, 'utf8').trimEnd().split('\n');
  const joined = lines(init).flatMap((line) => (line.endsWith(`/${id}`) ? [line.split(':')[0]] : []));
  assert.ok(joined.length > 0);
  return lines(pid).filter((line) => joined.includes(line.split(':')[0]));
}

/** The process that watches over a sandbox, and the first one in it. */
function firstOf(sandbox: RunningSandbox): { monitor: number; init: number } {
  const pids = pidsOf(sandbox);
  const init = pids.find((pid) => !pids.includes(Number(statFields(pid)![1])));
  assert.ok(init !== undefined);
  return { init, monitor: Number(statFields(init)![1]) };
}

/** As by a kernel that knows of no processes that are born in a group, and by one that lets no thread move itself. */
const olderPerls: [string, string | null][] = [
  ['', null],
  [
    ' where nothing can be born in a group',
    's|, fileno .group);|, 999999);|; s|/tasks") or next|/none") or next|',
  ],
  [' where nobody could leave them again', 's|map { .split /:/. }|map { [(split /:/)[0], "-"] }|'],
];
for (const [where, change] of olderPerls) {
  test(
    `the processes of a sandbox are in its groups from the first on, and who watches over them is where the service is${where}`,
    { skip: skip || !isRoot },
    async () => {
      const work = async (fx: Fixture): Promise<void> => {
        for (const detached of [true, false]) {
          const sandbox = await fx.start('exec sleep 1000', { detached, slot: detached ? 1 : 2 });
          const { monitor, init } = firstOf(sandbox);
          assert.ok(!pidsOf(sandbox).includes(monitor));
          assert.deepEqual(groupsOf(monitor, sandbox.id, init), groupsOf(process.pid, sandbox.id, init));
          for (const pid of pidsOf(sandbox))
            assert.ok(groupsOf(pid, sandbox.id, init).every((line) => line.endsWith(`/${sandbox.id}`)));
          assert.equal((await sandbox.kill()).reason, 'killed');
        }
        // The root of what a process sees of groups is where it was made.
        const { stdout } = await fx.run('cat /proc/self/cgroup', { slot: 3 });
        const isBorn = stdout.split('\n').filter((line) => line.endsWith(':/')).length;
        if (change === null) assert.ok(!stdout.includes('/..'), stdout);
        else assert.match(stdout, /\/\.\./);
        assert.ok(isBorn > 0 || change !== null);
      };
      if (change !== null) return withPerl(() => changedPerl(change), work);
      const fx = fixture();
      await work(fx).finally(() => fx.close());
    },
  );
}

test(
  'who watches over a sandbox is out of its groups also when the helper does not see to it',
  { skip: skip || !isRoot },
  () =>
    withPerl(
      () => changedPerl('s|^  leave_groups|  kill 9, $$; leave_groups|'),
      async (fx) => {
        const sandbox = await fx.start('cat; exit 7');
        const { monitor, init } = firstOf(sandbox);
        assert.deepEqual(groupsOf(monitor, sandbox.id, init), groupsOf(process.pid, sandbox.id, init));
        sandbox.stdin.end();
        assert.deepEqual(await sandbox.exited, { reason: 'exit', code: 7, signal: null });
      },
    ),
);

const noCgroups = { own: null, hierarchies: [] } as unknown as Cgroups;
const noRequest = {
  ...{ bwrap: '/no/such/bwrap', args: Buffer.from('--none\0'), command: ['none'], mark: 'none/none' },
  ...{ filterFile: '/dev/null', user: null, leaking: [], detached: null, isBlank: false },
  gate: { fd: 0, open: () => {}, close: () => {} },
};
const noLimits = {
  limits: { memoryBytes: 1, cpus: 1, pids: 1, diskBytes: 1, openFiles: 1 },
  enforced: [],
  fileBytes: 1,
};

test('a helper has its whole time from when the volume is there, however long that took', async () => {
  const volume = Promise.withResolvers<typeof noLimits>();
  const told: string[] = [];
  const helper = {
    order: (_order: string, _values: unknown, onLine: (said: string) => void) => {
      queueMicrotask(() => onLine('started 4194303'));
      const add = (word: string) => {
        told.push(word);
        if (word === 'taken') for (const line of ['init 4194302', 'limited', 'ok']) onLine(line);
      };
      return { pid: 1, first: Promise.resolve(''), add, end: () => {} };
    },
  };
  const launched = launchByHelper(
    { helper: helper as unknown as Helper, cgroups: noCgroups },
    noRequest,
    { user: null, group: null },
    () => volume.promise,
    10,
  );
  // Longer than what the helper has.
  setTimeout(() => volume.resolve(noLimits), 100);
  assert.equal(await (await launched)?.initPid, 4194302);
  assert.deepEqual(told, ['taken']);
});

for (const [what, lines] of [
  ['whose child alone has spoken', ['init 77']],
  ['that cannot fork', ['failed fork: Resource temporarily unavailable']],
  ['whose child that sets the limits was killed', ['started 4194303', 'gone']],
  ['that ended', ['started 4194303', 'the helper ended']],
] as const) {
  test(`a launch by a helper ${what} is given up, and told to it`, async () => {
    const told: string[] = [];
    const helper = {
      order: (_order: string, _values: unknown, onLine: (said: string) => void) => {
        queueMicrotask(() => lines.forEach((line) => onLine(line)));
        return { pid: 1, first: Promise.resolve(''), add: (word: string) => told.push(word), end: () => {} };
      },
    };
    const launched = await launchByHelper(
      { helper: helper as unknown as Helper, cgroups: noCgroups },
      noRequest,
      { user: null, group: null },
      () => Promise.resolve(noLimits),
      50,
    );
    assert.equal(launched, null);
    assert.equal(told.at(-1), 'dropped');
  });
}
