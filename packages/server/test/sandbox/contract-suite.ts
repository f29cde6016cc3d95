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
import { createServer } from 'node:net';
import { once } from 'node:events';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import type { SandboxCapabilities } from '../../src/domain/ports/sandbox.ts';
import { namespacePids } from '../../src/sandbox/process-stats.ts';
import type { BubblewrapSandbox } from '../../src/sandbox/running.ts';
import { collect, fixture, lineOf, MIB, type Fixture } from './fixture.ts';

/** What every driver must do; `make` gives a fresh one. */
export function sandboxContract(label: string, make: () => Fixture): void {
  describe(`sandbox contract: ${label}`, () => {
    let fx: Fixture;
    let capabilities: SandboxCapabilities;
    before(async () => {
      fx = make();
      capabilities = await fx.driver.capabilities();
    });
    after(() => fx.close());

    test('the probe runs a real sandbox and finds the driver usable', () => {
      assert.deepEqual(capabilities.problems, []);
      assert.equal(capabilities.usable, true);
      assert.equal(capabilities.isolation, 'kernel');
    });

    test('a second start of the service works with the files that the first one left', async () => {
      const second = fixture({ areaDir: fx.areaDir });
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

    test('the environment is what was given and nothing of the service', async () => {
      const { stdout } = await fx.run('env', { env: { A: '1', B: 'two words\nand a line' } });
      assert.equal(stdout, 'A=1\nB=two words\nand a line\nPWD=/workspace\n');
    });

    test('a program starts in /workspace and finds what an earlier sandbox left there and at home', async () => {
      await fx.run('echo kept > here; echo kept > /home/agent/there');
      const { stdout } = await fx.run('pwd; cat here /home/agent/there; id -u');
      assert.equal(stdout, '/workspace\nkept\nkept\n1000\n');
    });

    test('everything but the volume and the temporary folders is closed for writing', async () => {
      const places = '/ /etc /usr /dev /run/berth /proc /home';
      const { stdout } = await fx.run(
        `for p in ${places}; do touch $p/x 2>/dev/null && echo $p; done; touch /tmp/x /dev/shm/x`,
      );
      assert.equal(stdout, '');
    });

    test('a bound file can be read at its path and not written', async () => {
      const hostPath = join(fx.folder, 'bound');
      writeFileSync(hostPath, 'from-host');
      chmodSync(hostPath, 0o666);
      const { stdout, stderr } = await fx.run('cat /berth/bound; echo x >> /berth/bound', {
        binds: [{ hostPath, path: '/berth/bound' }],
      });
      assert.equal(stdout, 'from-host');
      assert.match(stderr, /Read-only file system/);
    });

    test('a socket in /run/berth answers, and the folder cannot be changed from inside', async () => {
      const spec = fx.spec(['/bin/sh', '-c', `${CONNECT}; rm -f /run/berth/m.sock; ls /run/berth`]);
      const server = createServer((socket) => socket.end('from-host')).listen(join(spec.runDir, 'm.sock'));
      await once(server, 'listening');
      try {
        const { stdout } = await collect(await fx.driver.start(spec));
        assert.equal(stdout, 'from-host\nm.sock\n');
      } finally {
        server.close();
      }
    });

    test('kill ends a tree that ignores signals and left its session', async () => {
      const sandbox = await fx.start(
        'trap "" TERM INT HUP; setsid sh -c \'trap "" TERM; sleep 1000\' & echo up; sleep 1000',
      );
      await lineOf(sandbox.stdout, (line) => line === 'up');
      const init = (sandbox as BubblewrapSandbox).initPid;
      const pids = namespacePids(init);
      assert.ok(pids.length >= 3);
      const exit = await sandbox.kill();
      assert.equal(exit.reason, 'killed');
      assert.deepEqual(
        pids.filter((pid) => isAlive(pid)),
        [],
      );
      assert.deepEqual(await sandbox.kill(), exit);
    });

    test('when the first process ends, what it left in the background ends too', async () => {
      const sandbox = await fx.start('setsid sleep 1000 & echo up; read line');
      await lineOf(sandbox.stdout, (line) => line === 'up');
      const pids = namespacePids((sandbox as BubblewrapSandbox).initPid);
      sandbox.stdin.end('go\n');
      assert.equal((await sandbox.exited).reason, 'exit');
      assert.deepEqual(
        pids.filter((pid) => isAlive(pid)),
        [],
      );
      assert.ok(!(await fx.driver.list()).includes(sandbox.id));
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

    test('a command that does not exist is an exit with an error, not a hang', async () => {
      const { exit, stderr } = await collect(await fx.driver.start(fx.spec(['/no/such/program'])));
      assert.equal(exit.reason, 'exit');
      assert.notEqual(exit.code, 0);
      assert.match(stderr, /\/no\/such\/program/);
    });

    test('CPU time and memory of a sandbox are counted', async () => {
      const sandbox = await fx.start(
        'perl -e \'$x = "a" x 40000000; $t = times; while (times() - $t < 0.4) {}; print "up\\n"; $| = 1; print "\\n"; sleep 100\'',
      );
      await lineOf(sandbox.stdout, (line) => line === 'up');
      const stats = await sandbox.stats();
      await sandbox.kill();
      assert.ok(stats.cpuMicros > 350_000 && stats.cpuMicros < 10_000_000, `${stats.cpuMicros} µs`);
      assert.ok(stats.memoryBytes > 35 * MIB && stats.memoryBytes < 256 * MIB, `${stats.memoryBytes} bytes`);
      assert.ok(stats.pids >= 2);
    });

    test('the limit of processes holds, as the capabilities say', async () => {
      assert.notEqual(capabilities.limits.pids, 'none');
      const { stdout } = await fx.run(
        'perl -e \'$n = 0; while (1) { my $p = fork; last unless defined $p; if (!$p) { sleep 100; exit } $n++; last if $n > 500 } print "$n\\n"\'',
      );
      assert.ok(Number(stdout) < 64, `${stdout.trim()} processes were started`);
    });

    test('the limit of memory holds, as the capabilities say', async () => {
      assert.notEqual(capabilities.limits.memory, 'none');
      const { stdout } = await fx.run('perl -e \'$x = "a" x 1_200_000_000; print "got it\\n"\'; echo after');
      assert.equal(stdout, 'after\n');
    });

    test('Node starts and works within the limits, and sees nothing of the host', async () => {
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

    test('no descriptor of the service is open inside', async () => {
      const { stdout } = await fx.run('ls -l /proc/1/fd /proc/self/fd');
      const links = [...stdout.matchAll(/ (\d+) -> (.*)$/gm)].map(([, fd, target]) => ({
        fd: Number(fd),
        target,
      }));
      assert.ok(links.length >= 6);
      // The event is bwrap's own, by which its init tells its monitor the exit code; the folder is what ls reads.
      const foreign = links.filter(
        ({ fd, target }) => fd > 2 && !/eventfd|^\/proc\/\d+\/fd$/.test(target ?? ''),
      );
      assert.deepEqual(foreign, []);
    });

    test('a sandbox that closed its own folders starts again', async () => {
      await fx.run('chmod 000 /workspace /home/agent', { slot: 8 });
      const { stdout } = await fx.run('pwd', { slot: 8 });
      assert.equal(stdout, '/workspace\n');
    });

    test('removing a volume follows no link, opens closed folders, and may be repeated', async () => {
      const outside = join(fx.folder, 'outside');
      mkdirSync(outside, { mode: 0o755 });
      const { stderr } = await fx.run(
        `ln -s ${outside} /workspace/evil; ln -s / /home/agent/root; mkdir -p a/b; touch a/b/c; chmod 000 a`,
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
      const { stdout } = await fx.run('head -c 3000000 /dev/zero > big; mkdir d; ls -d /workspace/big', {
        slot: 10,
      });
      assert.equal(stdout, '/workspace/big\n');
      const after = await fx.driver.volumeUse(volumeDir);
      assert.ok(after.bytes - before.bytes >= 3_000_000, JSON.stringify({ before, after }));
      assert.equal(after.entries - before.entries, 2);
      await fx.driver.removeVolume(volumeDir);
    });

    test('a variable that no environment can hold is refused by name', async () => {
      await assert.rejects(fx.run('true', { env: { BAD: 'a\0b' } }), /variable BAD/);
      await assert.rejects(fx.run('true', { env: { LONG: 'x'.repeat(200_000) } }), /variable LONG/);
      await assert.rejects(fx.run('true', { env: { 'A=B': '' } }), /"A=B"/);
    });
  });
}

const CONNECT =
  'perl -MSocket -e \'socket(S, PF_UNIX, SOCK_STREAM, 0); connect(S, sockaddr_un("/run/berth/m.sock")) or die $!; print <S>, "\\n"\'';

/** Zombies count as ended. */
function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}
