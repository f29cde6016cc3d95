import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { newId } from '../../src/domain/ids.ts';
import type { Isolation, RunningSandbox, SandboxLimits } from '../../src/domain/ports/sandbox.ts';
import { Endpoint } from '../../src/harness/control/endpoint.ts';
import { scriptedAttacks, type Targets } from './attack-list.ts';
import { syscallNumber } from './probes.ts';
import { USER_KERNEL_THREADS } from '../../src/sandbox/docker/container.ts';
import { isAlive, lineOf, littleMemory, MIB, pidsOf, type Fixture } from './fixture.ts';
import { inTime, until } from '../support/until.ts';

export type Verdict = 'blocked' | 'reached';
export type Verdicts = Record<string, Verdict>;

interface LimitAttack {
  id: string;
  title: string;
  /** Rejects when a limit did not hold. */
  run(fx: Fixture, targets: Targets): Promise<Verdict | void>;
  /** Why it is reached where the sandbox has a kernel of its own. Absent where that would be a hole too. */
  ownKernel?: string;
}

const limits = { memoryBytes: 256 * MIB, cpus: 0.5, pids: 64, diskBytes: 64 * MIB, openFiles: 256 };

/** Those that try to use up what all share. Whatever the agent did, the sandbox next door must answer afterwards. */
export const limitAttacks: LimitAttack[] = [
  {
    id: '19',
    title: 'Fill `/tmp` and `/dev/shm`',
    async run(fx) {
      const { stdout } = await fx.run(
        'for d in /tmp /dev/shm; do head -c 400M /dev/zero > $d/x 2>/dev/null; s=$(stat -c %s $d/x); rm -f $d/x; [ $s -lt 300000000 ] && echo bounded; done; true',
        { limits },
      );
      // Where the kernel ends the whole sandbox for the memory that it took, nothing was printed.
      assert.ok(stdout === '' || stdout === 'bounded\nbounded\n', stdout);
    },
  },
  {
    id: '20',
    title: 'Fork bomb',
    run: (fx, { neighbour }) => forkBomb(fx, limits, () => answers(neighbour.sandbox)),
  },
  {
    id: '21',
    title: 'Memory bomb',
    async run(fx) {
      const { stdout } = await fx.run('perl -e \'$x .= "a" x 1000000 while 1\'; echo after', {
        limits: { ...limits, memoryBytes: littleMemory.memoryBytes },
      });
      assert.ok(['after\n', ''].includes(stdout));
    },
  },
  {
    id: '25',
    title: 'Daemons and programs that ignore signals, left behind',
    async run(fx) {
      const sandbox = await fx.start(
        'for i in 1 2 3; do setsid sh -c \'trap "" TERM HUP INT; (setsid sleep 1000 &) ; sleep 1000\' & done; echo up; wait',
        { limits },
      );
      await lineOf(sandbox.stdout, (line) => line === 'up');
      await sandbox.stop(100);
      assert.ok(!(await fx.driver.list()).includes(sandbox.id));
    },
  },
  {
    id: '26',
    title: 'Endless output',
    async run(fx) {
      const before = process.memoryUsage().rss;
      const sandbox = await fx.start('yes 0123456789012345678901234567890123456789 || cat /dev/zero', {
        limits,
      });
      let bytes = 0;
      sandbox.stdout.on('data', (chunk: Buffer) => (bytes += chunk.length));
      await until('much was written', () => bytes > 30 * MIB);
      sandbox.stdout.pause();
      await sandbox.kill();
      assert.ok(process.memoryUsage().rss - before < 150 * MIB, 'the service took memory for it');
    },
  },
  {
    id: '28a',
    title: 'Fill the workspace',
    async run(fx) {
      const small = { ...limits, diskBytes: 32 * MIB };
      const fill =
        'i=0; while [ $i -lt 4000 ]; do head -c 8000000 /dev/zero > f$i || exit 0; i=$((i+1)); done';
      const { exit } = await fx.run(fill, { limits: small, slot: 4 });
      const { bytes } = await fx.driver.volumeUse(join(fx.folder, 'volume-4'));
      assert.ok(exit.reason === 'disk_full' || bytes < 64 * MIB, `${exit.reason}, ${bytes} bytes`);
      assert.ok(bytes < 1024 * MIB, `${bytes} bytes were written`);
    },
  },
  {
    id: '28b',
    title:
      'Set room on the disk aside without writing: `fallocate`, and requests of file systems that do the same',
    ownKernel:
      'gVisor takes it from the host, where no filter of ours is asked, until the watch ends the sandbox: `--oci-seccomp` for runsc closes that',
    run: setRoomAside,
  },
  {
    id: '30',
    title: 'CPU, memory, processes and output at their limits at once, beside a working neighbour',
    run: hostileBesideNeighbour,
  },
  {
    id: '39',
    title: 'Find what an earlier sandbox of the same agent was given',
    async run(fx) {
      const word = 'earlier-secret-41c7';
      await fx.run('echo "$WORD" > /tmp/left; echo "$WORD" > /dev/shm/left; true', {
        env: { WORD: word },
        slot: 6,
      });
      const { stdout } = await fx.run(
        "cat /tmp/left /dev/shm/left; for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ; done; env",
        { slot: 6 },
      );
      assert.ok(!stdout.includes(word));
    },
  },
  {
    id: '40',
    title: 'Speak on the control channel in place of the launcher, while that one is connected',
    run: secondLauncher,
  },
];

/** Every process forks as fast as it can, tells once that it may not any more, and goes on trying. */
const FORK_BOMB = `perl -e '$| = 1; while (1) { my $p = fork; next if defined $p; print "held\\n" unless $told++ }' & wait`;
/** How often the one next door is asked while the bomb burns. */
const ASKED_DURING_BOMB = 10;

/** It forks up to its limit and is held there, while the neighbour goes on; and it ends as a whole. */
export async function forkBomb(
  fx: Fixture,
  bombLimits: SandboxLimits,
  neighbourAnswers: () => Promise<void>,
): Promise<void> {
  const { isolation, limits: grades } = await fx.driver.capabilities();
  const most = bombLimits.pids;
  const sandbox = await fx.start(FORK_BOMB, { limits: bombLimits });
  if (isolation === 'user-kernel') {
    const threads = async (): Promise<number> => (await sandbox.stats()).pids;
    await until(
      'it has all threads that it may have',
      async () => (await threads()) >= most + USER_KERNEL_THREADS,
    );
    await inTime('the neighbour answers', neighbourAnswers());
    // Such a kernel is one program of the host, and may end of this.
    assert.match((await sandbox.kill()).reason, /^(exit|killed)$/);
    return;
  }
  // Only the kernel's refusal shows that it has come so far.
  await lineOf(sandbox.stdout, (line) => line === 'held');
  // Not the kernel's own count, which goes over the limit for the moment that each refusal takes.
  const isHeld = (count: number): boolean =>
    grades.pids === 'hard' ? count === most : count > most / 2 && count <= most;
  await until('it has forked up to its limit', () => isHeld(pidsOf(sandbox).length));
  for (let asked = 0; asked < ASKED_DURING_BOMB; asked += 1) {
    await inTime('the neighbour answers', neighbourAnswers());
    const count = pidsOf(sandbox).length;
    assert.ok(isHeld(count), `${count} processes where ${most} may be`);
  }
  const inside = pidsOf(sandbox);
  assert.equal((await sandbox.kill()).reason, 'killed');
  assert.ok(!(await fx.driver.list()).includes(sandbox.id));
  assert.deepEqual(inside.filter(isAlive), []);
}

/** A gigabyte in each way: in files that are no longer than one may be, beyond the end of a file, and by FS_IOC_RESVSP64. */
const SET_ASIDE = `use strict; my $call = ${syscallNumber('fallocate')}; my $length = 1 << 30;
  for my $n (1 .. 32) { open(my $f, ">", "aside-$n"); syscall($call, fileno($f), 0, 0, $length / 32) }
  for my $mode (0x01, 0x11) { open(my $f, ">", "beyond-$mode"); syscall($call, fileno($f), $mode, 0, $length) }
  open(my $f, ">", "reserved"); my $space = pack("s2 x4 q2 l6", 0, 0, 0, $length, (0) x 6); ioctl($f, 0x4030582a, $space);
  print "tried\n"`;

async function setRoomAside(fx: Fixture): Promise<Verdict> {
  const { exit, stdout } = await fx.run(`perl -e '${SET_ASIDE}'`, { limits, slot: 9 });
  const volumeDir = join(fx.folder, 'volume-9');
  const { bytes } = await fx.driver.volumeUse(volumeDir);
  await fx.driver.removeVolume(volumeDir);
  if (bytes > limits.diskBytes) return 'reached';
  assert.deepEqual([stdout, exit.reason], ['tried\n', 'exit']);
  assert.ok(bytes < MIB, `${bytes} bytes were set aside`);
  return 'blocked';
}

/** The launcher and an impostor in one sandbox: perl knows no more of the frames than their header. */
const DIAL = String.raw`sub dial { my $h = '{"version":1,"base":0,"received":0,"notes":[]}'; socket(my $s, PF_UNIX, SOCK_STREAM, 0);
  connect($s, sockaddr_un("/run/berth/control.sock")) or die $!; syswrite($s, pack("N C N", length $h, 1, 0) . $h); $s }
sub note { my ($s, $line) = @_; syswrite($s, pack("N C N", 6 + length $line, 3, 0) . "\0" x 6 . $line) }`;

async function secondLauncher(fx: Fixture): Promise<void> {
  const script = String.raw`use Socket; $SIG{PIPE} = "IGNORE"; ${DIAL} my $own = dial(); sysread($own, my $welcome, 9);
    if (!fork) { my $s = dial(); note($s, "impostor\n"); my $n = sysread($s, my $got, 1); print $n ? "served\n" : "closed\n"; exit }
    wait; note($own, "launcher\n"); sleep 100`;
  const spec = fx.spec(['/usr/bin/perl', '-e', script], { limits, slot: 8 });
  const endpoint = await Endpoint.open(join(spec.runDir, 'control.sock'), { onFault: () => undefined });
  const told: string[] = [];
  endpoint.events = {
    onLine: (line) => void told.push(line),
    onHello: () => endpoint.welcome(),
    onBroken: (why) => void told.push(why),
  };
  try {
    const sandbox = await fx.driver.start(spec);
    assert.equal(await lineOf(sandbox.stdout, (line) => /closed|served/.test(line)), 'closed');
    await until('the launcher is heard', () => told.length > 0);
    await sandbox.kill();
    assert.deepEqual(told, ['launcher']);
  } finally {
    endpoint.close();
  }
}

/** Isolation by counters: each is held to its own limits, and the other's work is done. How fast is for the bench. */
async function hostileBesideNeighbour(fx: Fixture): Promise<void> {
  const hostile = await fx.start(
    `perl -e 'print "lit\\n"; $| = 1; print ""; for (1 .. 40) { next if fork; if ($_ % 2) { 1 while 1 } else { $x .= "a" x 1000000 while 1 } } sleep 1000' & wait; sleep 1000`,
    { limits, slot: 3 },
  );
  const beginMs = performance.now();
  await lineOf(hostile.stdout, (line) => line === 'lit');
  const before = await hostile.stats();
  const work =
    'perl -e \'$x = "a" x 30000000; for (1 .. 10) { my $p = fork; exit if defined $p && !$p; wait }\'; i=0; while [ $i -lt 20 ]; do (echo $i > w$i); i=$((i+1)); done; cat w7 w19; perl -e \'$i++ while $i < 2000000; print "worked\\n"\'';
  const { exit, stdout } = await fx.run(work, { limits: { ...limits, cpus: 1 }, slot: 7 });
  const after = await hostile.stats().catch(() => null);
  // Not before the counters were read: on a busy machine they may have gone on for long by then.
  const tookMs = performance.now() - beginMs;
  assert.deepEqual([exit.reason, exit.code], ['exit', 0], 'the neighbour worked to its end');
  assert.match(stdout, /^7\n19\n(.*\n)*worked\n$/);
  const { limits: grades } = await fx.driver.capabilities();
  if (after) {
    const cores = (after.cpuMicros - before.cpuMicros) / 1000 / tookMs;
    // Quota periods are 100 ms long, so a short look may catch some more of them.
    if (grades.cpu === 'hard')
      assert.ok(cores < limits.cpus * 1.6 + 0.1, `the hostile one used ${cores} cores`);
    if (grades.memory === 'hard')
      assert.ok(after.memoryBytes <= limits.memoryBytes * 1.05, `it holds ${after.memoryBytes} bytes`);
  }
  await hostile.kill();
}

/** Runs every attack against a driver. Rejects when one got through that must not. */
export async function runAttacks(fx: Fixture, isolation: Isolation): Promise<Verdicts> {
  const targets = await setUp(fx);
  try {
    const verdicts = await runScripted(fx, targets, isolation);
    for (const attack of limitAttacks) {
      const verdict = await attack.run(fx, targets).catch((error: unknown) => {
        throw new Error(`Attack ${attack.id} (${attack.title}) got through: ${String(error)}`, {
          cause: error,
        });
      });
      if (verdict === 'reached' && (attack.ownKernel === undefined || isolation === 'kernel'))
        throw new Error(`Attack ${attack.id} (${attack.title}) got through.`);
      await answers(targets.neighbour.sandbox);
      verdicts[attack.id] = verdict ?? 'blocked';
    }
    return verdicts;
  } finally {
    await targets.close();
  }
}

async function runScripted(
  fx: Fixture,
  targets: Targets & { connections(): number },
  isolation: Isolation,
): Promise<Verdicts> {
  const script = scriptedAttacks
    .map((attack) => `echo; echo "@@ ${attack.id}"; ( ${attack.script(targets)} ) </dev/null 2>&1`)
    .join('\n');
  const wide = { ...limits, cpus: 2 };
  const { stdout, stderr, exit } = await fx.run(`${script}\necho; echo "@@ end"`, { limits: wide });
  assert.match(
    stdout,
    /@@ end\n$/,
    `the attacks did not come to their end: ${exit.reason} ${exit.code} ${stderr}`,
  );
  const sections = new Map(
    stdout.split(/^@@ /m).map((part): [string, string] => {
      const line = part.indexOf('\n');
      return [part.slice(0, line), part.slice(line + 1)];
    }),
  );
  const verdicts: Verdicts = {};
  for (const attack of scriptedAttacks) {
    const printed = sections.get(attack.id) ?? '';
    const reached = attack.reached(printed, targets);
    const isHarmless = attack.harmless !== undefined || (attack.ownKernel === true && isolation !== 'kernel');
    if (reached && !isHarmless)
      throw new Error(`Attack ${attack.id} (${attack.title}) got through: ${printed.slice(0, 1000)}`);
    verdicts[attack.id] = reached ? 'reached' : 'blocked';
  }
  await answers(targets.neighbour.sandbox);
  assert.equal(targets.connections(), 0, 'the host was connected to');
  return verdicts;
}

async function setUp(fx: Fixture) {
  const secret = `secret-${newId()}`;
  const hostFile = join(fx.folder, 'host-file');
  writeFileSync(hostFile, secret, { mode: 0o644 });
  let connections = 0;
  const tcp = createServer((socket) => (connections++, socket.destroy())).listen(0, '127.0.0.1');
  const abstractName = `berth-${newId()}`;
  const abstract = createServer((socket) => (connections++, socket.destroy())).listen(`\0${abstractName}`);
  await Promise.all([once(tcp, 'listening'), once(abstract, 'listening')]);
  const spec = fx.spec(['/bin/sh', '-c', 'echo "$TOKEN" > secret; echo ready; exec cat'], {
    slot: 2,
    env: { TOKEN: secret, PATH: '/usr/bin:/bin' },
  });
  const sandbox = await fx.driver.start(spec);
  await lineOf(sandbox.stdout, (line) => line === 'ready');
  const targets: Targets = {
    ...{ hostFile, secret, abstractName, fx },
    hostPort: (tcp.address() as { port: number }).port,
    servicePid: process.pid,
    neighbour: { sandbox, volumeDir: spec.volumeDir, runDir: spec.runDir },
  };
  return {
    ...targets,
    connections: () => connections,
    async close() {
      tcp.close();
      abstract.close();
      await sandbox.kill();
    },
  };
}

async function answers(sandbox: RunningSandbox): Promise<void> {
  const word = `ping-${newId()}`;
  sandbox.stdin.write(`${word}\n`);
  await lineOf(sandbox.stdout, (line) => line === word);
}
