import assert from 'node:assert/strict';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  writeFileSync,
} from 'node:fs';
import { createHash } from 'node:crypto';
import { createServer } from 'node:net';
import { once } from 'node:events';
import { join } from 'node:path';
import { after, before, describe, test, type TestContext } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import type { Isolation, RunningSandbox, SandboxCapabilities } from '../../src/domain/ports/sandbox.ts';
import { collect, isAlive, lineOf, littleMemory, MIB, pidsOf, type Fixture } from './fixture.ts';
import { until } from '../support/until.ts';

export interface Contract {
  label: string;
  isolation: Isolation;
  /** A fresh fixture, or the next service over the place of another one. */
  make(place?: { areaDir: string; name: string }): Fixture | Promise<Fixture>;
  /** Host pids of everything inside; absent where the host cannot see them. */
  pids?: (sandbox: RunningSandbox) => number[] | Promise<number[]>;
  skip?: string | false;
}

/** Places of the launch contract: plain processes find them below a root of their own. */
const ROOT = '$BERTH_SANDBOX_ROOT';

/** What every driver must do. What only an isolating one can do is left out for the others, by name. */
export function sandboxContract({ label, isolation, make, pids = pidsOf, skip = false }: Contract): void {
  describe(`sandbox contract: ${label}`, { skip }, () => {
    let fx: Fixture;
    let capabilities: SandboxCapabilities;
    before(async () => {
      fx = await make();
      capabilities = await fx.driver.capabilities();
    });
    after(() => fx.close());
    const isolated = isolation !== 'none';
    const only = { skip: isolated ? false : 'plain processes are not isolated' };
    const needs = (t: TestContext, isThere: boolean, what: string): boolean => {
      if (!isThere) t.skip(`${what} is a declared lack of this driver here`);
      return isThere;
    };

    test('the probe runs a real sandbox and finds the driver usable', async () => {
      assert.deepEqual(capabilities.problems, []);
      assert.equal(capabilities.usable, true);
      assert.equal(capabilities.isolation, isolation);
      assert.equal(await fx.driver.isolation(), isolation);
    });

    test('a second start of the service works with the files that the first one left', async () => {
      const second = await make({ areaDir: fx.areaDir, name: fx.name });
      try {
        assert.deepEqual((await second.driver.capabilities()).problems, []);
      } finally {
        await second.close();
      }
    });

    test('stdin reaches the program and its two outputs come back apart', async () => {
      const sandbox = await fx.start('cat; echo to-stderr >&2; exit 7');
      sandbox.stdin.end('to-stdin\n');
      const { exit, stdout, stderr } = await collect(sandbox);
      assert.deepEqual(exit, { reason: 'exit', code: 7, signal: null });
      assert.equal(stdout, 'to-stdin\n');
      assert.equal(stderr, 'to-stderr\n');
    });

    test('much input and much output pass whole and in order', async () => {
      const sandbox = await fx.start('md5sum; head -c 3000000 /dev/zero | tr "\\0" y');
      const input = Buffer.alloc(3_000_000, 'x');
      sandbox.stdin.end(input);
      const { stdout } = await collect(sandbox);
      assert.equal(stdout.slice(0, 32), createHash('md5').update(input).digest('hex'));
      assert.equal(stdout.length, 3_000_036);
      assert.match(stdout.slice(36), /^y+$/);
    });

    test('the environment is what was given and nothing of the service', async () => {
      const { stdout } = await fx.run('env', { env: { A: '1', B: 'two words\nand a line' } });
      const lines = stdout.split('\n').filter((line) => isolated || !line.startsWith('BERTH_SANDBOX'));
      // What a shell and an engine add by themselves.
      const added = /^(PWD=|SHLVL=|_=|HOSTNAME=agent$|HOME=\/home\/agent$|PATH=\/usr|TERM=xterm$|container=)/;
      assert.deepEqual(lines.filter((line) => !added.test(line)).sort(), [
        '',
        'A=1',
        'B=two words',
        'and a line',
      ]);
    });

    test('a program starts in /workspace and finds what an earlier sandbox left there and at home', async () => {
      await fx.run(`echo kept > here; echo kept > ${ROOT}/home/agent/there`);
      const { stdout } = await fx.run(`cat here ${ROOT}/home/agent/there ${ROOT}/workspace/here`);
      assert.equal(stdout, 'kept\nkept\nkept\n');
    });

    test('inside the user is nobody special, at the places of the launch contract', only, async () => {
      const { stdout } = await fx.run('pwd; id -un; hostname; id -u');
      // Namespaces can give everybody the same number; containers have that of the host.
      assert.match(stdout, /^\/workspace\nagent\nagent\n(1000|20\d{4})\n$/);
    });

    test('everything but the volume and the temporary folders is closed for writing', only, async () => {
      const places = '/ /etc /usr /dev /run/berth /proc /home';
      const { stdout, stderr } = await fx.run(
        `for p in ${places}; do touch $p/x 2>/dev/null && echo $p; done; touch /tmp/x /dev/shm/x`,
      );
      assert.deepEqual([stdout, stderr], ['', '']);
    });

    test('a bound file can be read at its path, and an isolated one not written', async () => {
      const hostPath = join(fx.folder, 'bound');
      writeFileSync(hostPath, 'from-host');
      chmodSync(hostPath, 0o666);
      const write = isolated ? '; echo x >> /berth/bound' : '';
      const { stdout, stderr } = await fx.run(`cat ${ROOT}/berth/bound${write}`, {
        binds: [{ hostPath, path: '/berth/bound' }],
      });
      assert.equal(stdout, 'from-host');
      if (isolated) assert.match(stderr, /Read-only file system/);
    });

    test('a socket in /run/berth answers, and an isolated one cannot be changed from inside', async () => {
      const spec = fx.spec([
        '/bin/sh',
        '-c',
        `${CONNECT}; rm -f /run/berth/m.sock; cd ${ROOT}/run/berth; echo *`,
      ]);
      const server = createServer((socket) => socket.end('from-host')).listen(join(spec.runDir, 'm.sock'));
      await once(server, 'listening');
      try {
        const { stdout, stderr } = await collect(await fx.driver.start(spec));
        assert.equal(stdout, 'from-host\nm.sock\n', stderr);
      } finally {
        server.close();
      }
    });

    test('a socket that comes into /run/berth after the start answers too', async () => {
      const spec = fx.spec(['/bin/sh', '-c', `read line; ${CONNECT}`]);
      const sandbox = await fx.driver.start(spec);
      const server = createServer((socket) => socket.end('late')).listen(join(spec.runDir, 'm.sock'));
      await once(server, 'listening');
      chmodSync(join(spec.runDir, 'm.sock'), 0o666);
      try {
        sandbox.stdin.end('go\n');
        const { stdout, stderr } = await collect(sandbox);
        assert.equal(stdout, 'late\n', stderr);
      } finally {
        server.close();
      }
    });

    test('kill ends a tree that ignores signals and left its session', async () => {
      const sandbox = await fx.start(
        'trap "" TERM INT HUP; setsid sh -c \'trap "" TERM; sleep 1000\' & echo up; sleep 1000',
      );
      await lineOf(sandbox.stdout, (line) => line === 'up');
      await until('all its processes are there', async () => (await sandbox.stats()).pids >= 3);
      const before = await pids(sandbox);
      const exit = await sandbox.kill();
      assert.equal(exit.reason, 'killed');
      assert.deepEqual(before.filter(isAlive), []);
      assert.deepEqual(await sandbox.kill(), exit);
    });

    test('when the first process ends, what it left in the background ends too', async () => {
      const sandbox = await fx.start('setsid sleep 1000 & echo up; read line');
      await lineOf(sandbox.stdout, (line) => line === 'up');
      const before = await pids(sandbox);
      sandbox.stdin.end('go\n');
      assert.equal((await sandbox.exited).reason, 'exit');
      assert.deepEqual(before.filter(isAlive), []);
      assert.ok(!(await fx.driver.list()).includes(sandbox.id));
    });

    test('stop lets the program say a last word, and ends what ignores it', async () => {
      const polite = await fx.start('trap "echo bye; exit 4" TERM; echo up; while :; do sleep 0.05; done');
      await lineOf(polite.stdout, (line) => line === 'up');
      const said = collect(polite);
      assert.deepEqual(await polite.stop(20_000), { reason: 'killed', code: 4, signal: null });
      assert.equal((await said).stdout, 'bye\n');
      const deaf = await fx.start('trap "" TERM; echo up; while :; do sleep 0.05; done');
      await lineOf(deaf.stdout, (line) => line === 'up');
      assert.equal((await deaf.stop(200)).reason, 'killed');
    });

    test('a frozen one stands still, goes on when thawed, and can be killed while frozen', async (t) => {
      if (!needs(t, capabilities.freeze, 'freezing')) return;
      const sandbox = await fx.start('while read line; do echo "$line"; done');
      sandbox.stdin.write('one\n');
      await lineOf(sandbox.stdout, (line) => line === 'one');
      await sandbox.freeze();
      assert.equal(sandbox.isFrozen, true);
      sandbox.stdin.write('two\n');
      const { cpuMicros } = await sandbox.stats();
      await sandbox.thaw();
      assert.equal(sandbox.isFrozen, false);
      await lineOf(sandbox.stdout, (line) => line === 'two');
      assert.ok((await sandbox.stats()).cpuMicros >= cpuMicros);
      await sandbox.freeze();
      assert.equal((await sandbox.kill()).reason, 'killed');
      assert.equal(sandbox.isFrozen, false);
    });

    test('a detached one outlives its driver; the next one adopts it with its log, counts and exit code', async (t) => {
      if (!needs(t, capabilities.detached, 'detaching')) return;
      const script = 'echo out; echo err >&2; while [ ! -e go ]; do sleep 0.05; done; echo last; exit 9';
      const sandbox = await fx.start(script, { detached: true, slot: 5 });
      const log = (): string => readFileSync(sandbox.logFile ?? '', 'utf8');
      // Two pipes have no order between them.
      await until('its words are in the log', () => ['out\nerr\n', 'err\nout\n'].includes(log()));
      const next = await make({ areaDir: fx.areaDir, name: fx.name });
      try {
        assert.ok((await next.driver.list()).includes(sandbox.id));
        const adopted = await next.driver.adopt(sandbox.id);
        assert.equal(adopted?.logFile, sandbox.logFile);
        assert.ok((await adopted.stats()).pids >= 1);
        writeFileSync(join(fx.folder, 'volume-5/workspace/go'), '');
        assert.deepEqual(await adopted.exited, { reason: 'exit', code: 9, signal: null });
        assert.match(log(), /last\n$/);
        assert.equal(await next.driver.adopt(sandbox.id), null);
      } finally {
        await next.close();
      }
    });

    test('a running sandbox is listed, cannot be started twice, and remove ends it', async () => {
      const spec = fx.spec(['/bin/cat']);
      const sandbox = await fx.driver.start(spec);
      assert.ok((await fx.driver.list()).includes(spec.id));
      await assert.rejects(fx.driver.start(spec), /running already/);
      const twice = fx.spec(['/bin/cat']);
      const both = await Promise.allSettled([fx.driver.start(twice), fx.driver.start(twice)]);
      assert.deepEqual(
        both.map(({ status }) => status),
        ['fulfilled', 'rejected'],
      );
      await fx.driver.remove(twice.id);
      await fx.driver.remove(spec.id);
      assert.equal((await sandbox.exited).reason, 'killed');
      assert.ok(!(await fx.driver.list()).includes(spec.id));
      await fx.driver.remove(spec.id);
    });

    test('a sandbox that cannot be set up fails with the reason and leaves nothing', async () => {
      const id = newId();
      const binds = [{ hostPath: '/does/not/exist', path: '/berth/x' }];
      await assert.rejects(fx.start('true', { id, binds }), /did not start: .*\/does\/not\/exist/);
      assert.ok(!(await fx.driver.list()).includes(id));
    });

    test('a command that does not exist is an error with its name, not a hang', async () => {
      const spec = fx.spec(['/no/such/program']);
      const outcome = await fx.driver.start(spec).then(collect, (error: Error) => error);
      if (outcome instanceof Error) assert.match(outcome.message, /\/no\/such\/program/);
      else {
        assert.equal(outcome.exit.reason, 'exit');
        assert.notEqual(outcome.exit.code, 0);
        assert.match(outcome.stderr, /\/no\/such\/program|No such file/);
      }
      assert.ok(!(await fx.driver.list()).includes(spec.id));
    });

    test('CPU time and memory of a sandbox are counted', async () => {
      const sandbox = await fx.start(
        // The last word keeps every shell from becoming the program, whose process would then be the only one.
        `perl -e 'sub c { my ($u, $s) = times; $u + $s } $x = "a" x 40000000; $t = c(); while (c() - $t < 0.4) {}; print "up\\n"; $| = 1; print "\\n"; sleep 100'; true`,
      );
      await lineOf(sandbox.stdout, (line) => line === 'up');
      const stats = await sandbox.stats();
      await until(
        'memory adds up over time',
        async () => (await sandbox.stats()).memoryByteSeconds > stats.memoryByteSeconds,
      );
      await sandbox.kill();
      assert.ok(stats.cpuMicros > 350_000 && stats.cpuMicros < 10_000_000, `${stats.cpuMicros} µs`);
      assert.ok(stats.memoryBytes > 35 * MIB && stats.memoryBytes < 256 * MIB, `${stats.memoryBytes} bytes`);
      assert.ok(stats.pids >= 2);
    });

    test('the limit of processes holds, as the capabilities say', async (t) => {
      if (!needs(t, capabilities.limits.pids !== 'none', 'a limit of processes')) return;
      const { stdout } = await fx.run(
        'perl -e \'$n = 0; while (1) { my $p = fork; last unless defined $p; if (!$p) { sleep 100; exit } $n++; last if $n > 500 } print "$n\\n"\'',
      );
      // A kernel in user space needs some of the host's threads for itself, and what is left over the agent may have.
      assert.ok(
        Number(stdout) < (isolation === 'user-kernel' ? 256 : 64),
        `${stdout.trim()} processes were started`,
      );
    });

    test('the limit of memory holds, as the capabilities say', async (t) => {
      if (!needs(t, capabilities.limits.memory !== 'none', 'a limit of memory')) return;
      const { stdout } = await fx.run('perl -e \'$x = "a" x 1_200_000_000; print "got it\\n"\'; echo after', {
        limits: littleMemory,
      });
      // A kernel in user space is one process of the host, and ends as a whole.
      assert.ok(stdout === 'after\n' || (isolation === 'user-kernel' && stdout === ''), stdout);
    });

    test('a program that runs out of memory is told from one that was killed', async (t) => {
      if (!needs(t, capabilities.limits.memory === 'hard', 'a hard limit of memory')) return;
      const bomb = await fx.driver.start(
        fx.spec(['/usr/bin/perl', '-e', '$x .= "a" x 1000000 while 1'], {
          limits: littleMemory,
        }),
      );
      assert.equal((await collect(bomb)).exit.reason, 'oom');
      const { exit } = await fx.run('kill -9 $$');
      assert.equal(exit.reason, 'exit');
    });

    test('the limit of open files holds', async (t) => {
      if (!needs(t, capabilities.limits.openFiles !== 'none', 'a limit of open files')) return;
      const { stdout } = await fx.run('ulimit -n; ulimit -n 5000 2>/dev/null && echo raised; true');
      assert.equal(stdout, '256\n');
    });

    test('Node starts and works within the limits, and sees nothing of the host', only, async () => {
      const script =
        'const os = require("os"); console.log(os.hostname(), os.homedir(), Object.keys(os.networkInterfaces()).join())';
      // A copy, since the checkout may lie where the sandbox's user cannot read.
      const hostPath = join(fx.folder, 'node');
      copyFileSync(process.execPath, hostPath);
      chmodSync(hostPath, 0o755);
      const binds = [{ hostPath, path: '/berth/node' }];
      const { stdout, stderr } = await collect(
        await fx.driver.start(fx.spec(['/berth/node', '-e', script], { binds })),
      );
      assert.equal(stderr, '');
      assert.match(stdout, /^agent \/home\/agent (lo)?\n$/);
    });

    test('no descriptor of the service is open inside', only, async () => {
      // bwrap's init closes its own while the program begins, whichever of the two is first: the launcher waits for that
      // (packages/harness/src/init.ts).
      const isBusy = '[ "$(readlink /proc/1/fd/3)" = /proc ]';
      const { stdout } = await fx.run(
        `while ${isBusy}; do sleep 0.01; done; ` +
          'for f in /proc/1/fd/* /proc/$$/fd/*; do [ -e $f ] && echo "$f -> $(readlink $f)"; done; true',
      );
      const links = [...stdout.matchAll(/\/(\d+) -> (.*)$/gm)].map(([, fd, target]) => ({
        fd: Number(fd),
        target,
      }));
      assert.ok(links.length >= 3, stdout);
      // The events are of an init: by one, bwrap's tells its monitor the exit code.
      const foreign = links.filter(({ fd, target }) => fd > 2 && !/eventfd|signalfd/.test(target ?? ''));
      assert.deepEqual(foreign, []);
    });

    test('a sandbox that closed its own folders starts again', only, async () => {
      await fx.run('chmod 000 /workspace /home/agent', { slot: 8 });
      const { stdout } = await fx.run('pwd', { slot: 8 });
      assert.equal(stdout, '/workspace\n');
    });

    test('removing a volume follows no link, opens closed folders, and may be repeated', async () => {
      const outside = join(fx.folder, 'outside');
      mkdirSync(outside, { mode: 0o755 });
      const { stderr } = await fx.run(
        `ln -s ${outside} evil; ln -s / ${ROOT}/home/agent/root; mkdir -p a/b; touch a/b/c; chmod 000 a`,
        { slot: 9 },
      );
      assert.equal(stderr, '');
      const volumeDir = join(fx.folder, 'volume-9');
      assert.ok(existsSync(volumeDir));
      await fx.driver.removeVolume(volumeDir);
      assert.ok(!existsSync(volumeDir));
      assert.ok(existsSync(outside) && readdirSync('/').includes('etc'));
      await fx.driver.removeVolume(volumeDir);
    });

    test('a volume can be made before the first start, and tells what it takes on the disk', async () => {
      const volumeDir = join(fx.folder, 'volume-10');
      await fx.driver.prepareVolume(volumeDir, 10);
      await fx.driver.prepareVolume(volumeDir, 10);
      const before = await fx.driver.volumeUse(volumeDir);
      const { stdout } = await fx.run(
        'head -c 3000000 /dev/zero > big; mkdir d; cd ..; [ -e workspace/big ] && echo there',
        {
          slot: 10,
        },
      );
      assert.equal(stdout, 'there\n');
      const after = await fx.driver.volumeUse(volumeDir);
      assert.ok(after.bytes - before.bytes >= 3_000_000, JSON.stringify({ before, after }));
      assert.equal(after.entries - before.entries, 2);
      await fx.driver.removeVolume(volumeDir);
    });

    test('room on the disk cannot be set aside unwritten, and who knows posix_fallocate gets it written', async (t) => {
      const volumeDir = join(fx.folder, 'volume-11');
      const taken = async (script: string): Promise<number> => {
        const before = await fx.driver
          .prepareVolume(volumeDir, 11)
          .then(() => fx.driver.volumeUse(volumeDir));
        const { stdout } = await fx.run(`${script} && echo done`, { slot: 11 });
        const after = await fx.driver.volumeUse(volumeDir);
        if (stdout !== 'done\n') return NaN;
        return after.bytes - before.bytes;
      };
      const written = await taken('fallocate --posix --length 1MiB written');
      assert.ok(written >= MIB && written < 2 * MIB, `${written} bytes`);
      if (!needs(t, isolation === 'kernel', 'a filter of system calls')) return;
      assert.ok((await taken('fallocate --punch-hole --offset 0 --length 1MiB written')) <= -MIB);
      const refused = '2>&1 | grep -q "not supported\\|unsupported"';
      assert.equal(await taken(`fallocate --length 1MiB a ${refused}`), 0);
      assert.equal(await taken(`fallocate --keep-size --length 1GiB a ${refused}`), 0);
      await fx.driver.removeVolume(volumeDir);
    });

    test('a variable that no environment can hold is refused by name', async () => {
      await assert.rejects(fx.run('true', { env: { BAD: 'a\0b' } }), /variable BAD/);
      await assert.rejects(fx.run('true', { env: { LONG: 'x'.repeat(200_000) } }), /variable LONG/);
      await assert.rejects(fx.run('true', { env: { 'A=B': '' } }), /"A=B"/);
    });
  });
}

const CONNECT = `perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0); connect(S, sockaddr_un("$ENV{BERTH_SANDBOX_ROOT}/run/berth/m.sock")) or die $!; print <S>, "\\n"'`;
