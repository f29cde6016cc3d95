import assert from 'node:assert/strict';
import { readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { once } from 'node:events';
import { join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import type { RunningSandbox } from '../../src/domain/ports/sandbox.ts';
import { forkBomb } from './attack-suite.ts';
import { collect, fixture, isRoot, lineOf, littleMemory, local, pidsOf, type Fixture } from './fixture.ts';
import { errno, errnosOf, syscallLine } from './probes.ts';

const SECRET = 'neighbour-secret-5f1c';

describe('attacks from inside a sandbox are refused', () => {
  let fx: Fixture;
  let neighbour: RunningSandbox;
  before(async () => {
    fx = fixture();
    neighbour = await fx.start(`echo ${SECRET} > secret; echo ready; exec cat`, {
      slot: 2,
      env: { TOKEN: SECRET },
    });
    await lineOf(neighbour.stdout, (line) => line === 'ready');
  });
  after(() => fx.close());
  const neighbourAnswers = async (): Promise<void> => {
    const word = `ping-${Math.random()}`;
    neighbour.stdin.write(`${word}\n`);
    await lineOf(neighbour.stdout, (line) => line === word);
  };
  // Whatever was tried, the sandbox next door still answers.
  afterEach(neighbourAnswers);

  test('the host has no /etc/shadow, no home folders and no /sys inside', async () => {
    const { stdout, stderr } = await fx.run(
      'cat /etc/shadow; ls -d /root /var /sys /srv /opt /mnt /boot; ls /home',
    );
    assert.equal(stdout, 'agent\n');
    assert.match(stderr, /\/etc\/shadow: No such file/);
  });

  test('the workspace and the sockets of another agent cannot be found by path or by /proc', async () => {
    const volume = join(fx.folder, 'volume-2');
    const run = join(fx.folder, `run-${neighbour.id}`);
    const script = `cat ${volume}/workspace/secret; ls ${run} ${fx.folder} ..; cat /proc/*/root${volume}/workspace/secret; cat /proc/*/environ`;
    const { stdout, stderr } = await fx.run(script);
    assert.ok(!`${stdout}${stderr}`.includes(SECRET));
    assert.match(stderr, new RegExp(`${volume}/workspace/secret.*No such file`));
    if (isRoot) {
      assert.equal(statSync(volume).mode & 0o777, 0o700);
      assert.notEqual(statSync(volume).uid, statSync(join(fx.folder, 'volume-1')).uid);
    }
  });

  test('processes of the host and of other sandboxes can neither be seen nor signalled', async () => {
    const [other] = pidsOf(neighbour);
    const { stdout } = await fx.run(
      `ls /proc | grep -c '^[0-9]'; kill -9 ${process.pid} ${other} 2>&1 | grep -c 'No such process'; kill -9 -1`,
    );
    const [count, refused] = stdout.split('\n').map(Number);
    assert.ok(count! <= 6, `${count} processes are visible`);
    assert.equal(refused, 2);
  });

  test('neither the loopback of the host nor the metadata address can be reached', async () => {
    let connections = 0;
    const tcp = createServer((socket) => (connections++, socket.destroy())).listen(0, '127.0.0.1');
    const abstract = createServer((socket) => (connections++, socket.destroy())).listen(`\0berth-${fx.name}`);
    await Promise.all([once(tcp, 'listening'), once(abstract, 'listening')]);
    const { port } = tcp.address() as { port: number };
    try {
      const { stdout, stderr } = await fx.run(
        [
          ...[`127.0.0.1/${port}`, '169.254.169.254/80', '1.1.1.1/53'].map(
            (to) => `timeout 5 bash -c 'exec 3<>/dev/tcp/${to} && echo connected'`,
          ),
          `timeout 5 bash -c 'exec 3<>/dev/udp/1.1.1.1/53 && echo x >&3 && echo connected'`,
          `perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0); connect(S, pack("Sa*", PF_UNIX, "\\0berth-${fx.name}")) and print "connected\\n"'`,
          'getent hosts example.com',
        ].join('\n'),
      );
      assert.equal(stdout, '');
      assert.match(stderr, /Connection refused/);
      assert.equal(stderr.match(/connect: Network is unreachable/g)?.length, 3);
      assert.equal(connections, 0);
    } finally {
      tcp.close();
      abstract.close();
    }
  });

  test('a fork bomb is held at its limit, slows down no neighbour, and ends with its sandbox', () =>
    forkBomb(fx, fx.spec([]).limits, neighbourAnswers));

  test('a memory bomb is ended by the kernel and told as such', async (t) => {
    if ((await fx.driver.capabilities()).limits.memory !== 'hard') return t.skip('no memory cgroup here');
    const sandbox = await fx.driver.start(
      fx.spec(['/usr/bin/perl', '-e', '$x .= "a" x 1000000 while 1'], { limits: littleMemory }),
    );
    assert.equal((await collect(sandbox)).exit.reason, 'oom');
  });

  test('a memory bomb in a child leaves the program alive, and its end is no out-of-memory', async () => {
    const { exit, stdout } = await fx.run('perl -e \'$x .= "a" x 1000000 while 1\'; echo survived', {
      limits: littleMemory,
    });
    assert.equal(stdout, 'survived\n');
    assert.deepEqual([exit.reason, exit.code], ['exit', 0]);
  });

  test('an out-of-memory kill of a tool does not make a later kill of the program one', async () => {
    const sandbox = await fx.start(
      'perl -e \'$x .= "a" x 1000000 while 1\'; echo survived; read line; kill -9 $$',
      { limits: littleMemory },
    );
    await lineOf(sandbox.stdout, (line) => line === 'survived');
    // As the driver does once a second.
    await local(sandbox).sample();
    await local(sandbox).sample();
    sandbox.stdin.write('go\n');
    const exit = await sandbox.exited;
    assert.equal(exit.reason, 'exit');
    assert.equal(exit.code, 137);
  });

  test('the temporary folders are bounded', async () => {
    const { stderr } = await fx.run(
      'head -c 300M /dev/zero > /dev/shm/x; ls -s /dev/shm/x >&2; rm /dev/shm/x',
    );
    assert.match(stderr, /No space left on device|File too large/);
  });

  test('nothing can be mounted', async () => {
    const { stdout, stderr } = await fx.run(
      [
        'mount -t tmpfs none /tmp',
        'mount -o remount,rw /usr',
        ...[
          'mount',
          'umount2',
          'fsopen',
          'fsmount',
          'open_tree',
          'move_mount',
          'mount_setattr',
          'pivot_root',
          'chroot',
        ].map((name) => syscallLine(name, 0, 0, 0, 0, 0)),
      ].join('\n'),
    );
    assert.equal(stderr.match(/mount: .*(permission denied|must be superuser|not permitted)/gi)?.length, 2);
    for (const [name, code] of Object.entries(errnosOf(stdout))) assert.equal(code, errno.EPERM, name);
  });

  test('no new namespace can be made or entered', async () => {
    const NEWUSER = 0x10000000;
    const { stdout, stderr } = await fx.run(
      [
        'unshare --user true; echo unshare-ended',
        syscallLine('unshare', NEWUSER),
        syscallLine('clone', NEWUSER | 17, 0, 0, 0, 0),
        syscallLine('clone3', 0, 0),
        syscallLine('setns', 0, 0),
      ].join('\n'),
    );
    assert.match(stderr, /Operation not permitted/);
    const codes = errnosOf(stdout.replace('unshare-ended\n', ''));
    assert.deepEqual(codes, {
      unshare: errno.EPERM,
      clone: errno.EPERM,
      clone3: errno.ENOSYS,
      setns: errno.EPERM,
    });
  });

  test('no process can be traced or read by another', async () => {
    const names = ['ptrace', 'process_vm_readv', 'process_vm_writev', 'pidfd_getfd', 'kcmp'];
    const { stdout } = await fx.run(names.map((name) => syscallLine(name, 0, 1, 0, 0)).join('\n'));
    assert.deepEqual(Object.keys(errnosOf(stdout)), names);
    for (const [name, code] of Object.entries(errnosOf(stdout))) assert.equal(code, errno.EPERM, name);
  });

  test('old and new ways into the kernel are closed: io_uring, bpf, perf, keyrings, file handles, modules', async () => {
    const names = [
      ...['io_uring_setup', 'io_uring_enter', 'io_uring_register', 'bpf', 'perf_event_open', 'userfaultfd'],
      ...[
        'keyctl',
        'add_key',
        'request_key',
        'open_by_handle_at',
        'init_module',
        'finit_module',
        'kexec_load',
      ],
      ...[
        'syslog',
        'swapon',
        'reboot',
        'settimeofday',
        'acct',
        'quotactl',
        'fanotify_init',
        'name_to_handle_at',
      ],
    ];
    const { stdout } = await fx.run(names.map((name) => syscallLine(name, 0, 0, 0, 0, 0)).join('\n'));
    assert.deepEqual(Object.keys(errnosOf(stdout)), names);
    for (const [name, code] of Object.entries(errnosOf(stdout))) assert.equal(code, errno.EPERM, name);
  });

  test('no context for asynchronous I/O can be had, of which the host has one number for all', async () => {
    const names = ['io_setup', 'io_submit', 'io_getevents', 'io_destroy', 'io_cancel', 'io_pgetevents'];
    const { stdout } = await fx.run(
      names.map((name) => syscallLine(name, 1, '$p = pack("Q", 0)', 0, 0, 0, 0)).join('\n'),
    );
    assert.deepEqual(Object.keys(errnosOf(stdout)), names);
    for (const [name, code] of Object.entries(errnosOf(stdout))) assert.equal(code, errno.ENOSYS, name);
  });

  test('sockets that pass a network namespace by, or load modules of the host, cannot be made', async () => {
    const families = {
      unix: 1,
      netlinkFilter: 16,
      packet: 17,
      alg: 38,
      vsock: 40,
      bluetooth: 31,
      can: 29,
      xdp: 44,
    };
    const protocols = { unix: 0, netlinkFilter: 12 } as Record<string, number>;
    const lines = Object.entries(families).map(([name, family]) =>
      syscallLine('socket', family, 1, protocols[name] ?? 0).replace('"socket"', `"${name}"`),
    );
    const sctp = syscallLine('socket', 2, 1, 132).replace('"socket"', '"sctp"');
    const { unix, sctp: sctpCode, ...others } = errnosOf((await fx.run([...lines, sctp].join('\n'))).stdout);
    assert.equal(unix, 0);
    assert.equal(sctpCode, errno.EPROTONOSUPPORT);
    for (const [name, code] of Object.entries(others)) assert.equal(code, errno.EAFNOSUPPORT, name);
  });

  test('no key can be pushed into a terminal, even one of its own and with high bits set', async () => {
    const ioctl = 'sub c { $b = "x"; $r = ioctl(P, $_[0], $b); print $r ? "done\\n" : ($!+0) . "\\n" }';
    const { stdout } = await fx.run(
      `setsid perl -e '${ioctl} open(M, "+<", "/dev/ptmx"); $u = pack("i", 0); ioctl(M, 0x40045431, $u); $n = pack("i", 0); ioctl(M, 0x80045430, $n); open(P, "+<", "/dev/pts/" . unpack("i", $n)) or die $!; ioctl(P, 0x540e, 0); c(0x5412); c(0x541c); c(0x5423); print -t P ? "tty\\n" : "no\\n"'`,
    );
    assert.equal(stdout, '1\n1\n1\ntty\n');
  });

  test('rights cannot be gained: no set-uid program, no capability, no higher limit', async () => {
    const { stdout } = await fx.run(
      'grep -E "^(CapPrm|CapBnd|CapEff|NoNewPrivs|Seccomp):" /proc/self/status; su -c true 2>/dev/null && echo su; ulimit -n 5000 2>/dev/null && echo ulimit; true',
    );
    const zero = '0000000000000000';
    assert.equal(
      stdout.replaceAll('\t', ' '),
      `CapPrm: ${zero}\nCapEff: ${zero}\nCapBnd: ${zero}\nNoNewPrivs: 1\nSeccomp: 2\n`,
    );
  });

  test('facts of the host are covered', async () => {
    const { stdout } = await fx.run(
      'cat /proc/cmdline /proc/kallsyms /proc/interrupts; hostname; cat /etc/resolv.conf; dmesg 2>/dev/null',
    );
    assert.equal(stdout, 'agent\n');
    assert.ok(readFileSync('/proc/cmdline', 'utf8').length > 0);
  });

  test('a secret of the environment is in no command line and in no launch environment', async () => {
    const secret = 'sk-very-secret-77aa';
    const sandbox = await fx.start(
      'echo "$KEY" | tr a-z A-Z; tr "\\0" " " < /proc/1/environ; tr "\\0" " " < /proc/1/cmdline; echo; echo end; read line',
      {
        env: { KEY: secret },
      },
    );
    const lines: string[] = [];
    await lineOf(sandbox.stdout, (line) => (lines.push(line), line === 'end'));
    const visible = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
    const commandLines = visible.map((pid) => tryRead(`/proc/${pid}/cmdline`)).join('\n');
    await sandbox.kill();
    assert.equal(lines[0], secret.toUpperCase());
    assert.ok(!lines.join('\n').includes(secret));
    assert.ok(commandLines.includes(sandbox.id) && !commandLines.includes(secret));
  });

  test('links in the workspace lead nowhere on the host', async () => {
    const hostFile = join(fx.folder, 'host-file');
    writeFileSync(hostFile, 'host-content', { mode: 0o644 });
    const { stdout, stderr } = await fx.run(
      `ln -s ${hostFile} l; ln -s /proc/1/root${hostFile} m; cat l m; ln /etc/passwd hard`,
    );
    assert.equal(stdout, '');
    assert.equal(stderr.match(/No such file/g)?.length, 2);
    assert.match(stderr, /cross-device link/i);
  });

  test('a device or a set-uid file left in the workspace is worth nothing', async () => {
    const { stdout, stderr } = await fx.run(
      'mknod disk b 254 0; mkfifo pipe && echo fifo; cp /usr/bin/id id; chmod 4755 id; ./id -u; grep " /workspace " /proc/self/mountinfo',
    );
    assert.match(stderr, /mknod: .*not permitted/);
    assert.match(stdout, /^fifo\n1000\n.*nosuid,nodev/);
  });

  test('the memory of init can be written by its own user, and gives no rights', async () => {
    const { stdout } = await fx.run('grep -E "^(CapEff|CapBnd|Seccomp):" /proc/1/status | tr -d "\\t"');
    assert.equal(stdout, 'CapEff:0000000000000000\nCapBnd:0000000000000000\nSeccomp:2\n');
  });
});

function tryRead(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
