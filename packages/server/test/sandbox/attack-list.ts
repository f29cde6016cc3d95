import type { RunningSandbox } from '../../src/domain/ports/sandbox.ts';
import type { Fixture } from './fixture.ts';
import { calls, syscallLine } from './probes.ts';

/** What the attacker aims at; each value is a file, a socket or a secret that the test put there. */
export interface Targets {
  /** Holds the secret and can be read by everybody on the host. */
  hostFile: string;
  secret: string;
  /** A port on the host's loopback device that somebody listens on. */
  hostPort: number;
  /** An abstract Unix socket of the host. */
  abstractName: string;
  servicePid: number;
  neighbour: { sandbox: RunningSandbox; volumeDir: string; runDir: string };
  fx: Fixture;
}

/** One that is tried by a script; `reached` tells by what the script printed whether it got anywhere. */
export interface ScriptedAttack {
  id: string;
  title: string;
  script(targets: Targets): string;
  reached(printed: string, targets: Targets): boolean;
  /** Why it does no harm where it is reached. Absent where reaching it is a hole. */
  harmless?: string;
  /** True: the kernel alone decides, so it may be reached where the kernel is the sandbox's own. */
  ownKernel?: true;
}

/** Where the sandbox has a kernel of its own, that one answers. */
export const OWN_KERNEL = 'a kernel of its own answers, and reaches nothing but its own sandbox';
/** One that printed nothing was not tried. */
const refusedCalls = (printed: string): boolean =>
  / refused$/m.test(printed) && !/ (done|entered)$/m.test(printed);
const says = (pattern: RegExp) => (printed: string) => pattern.test(printed);
const tells = (printed: string, { secret }: Targets): boolean => printed.includes(secret);
const byCalls = (
  id: string,
  title: string,
  names: (string | [string, ...(number | string)[]])[],
): ScriptedAttack => ({
  id,
  title,
  script: () => calls(names),
  reached: (printed) => !refusedCalls(printed),
  ownKernel: true,
});
const connect = (to: string): string => `timeout 5 bash -c 'exec 3<>/dev/${to} && echo connected'`;
const NEWUSER = 0x10000000;
const RDWR = 2;

export const scriptedAttacks: ScriptedAttack[] = [
  {
    id: '1',
    title: 'Read files of the host: `/etc/shadow`, a file by its path, through `/proc/1/root`',
    script: ({ hostFile }) =>
      `cat /etc/shadow ${hostFile} /proc/1/root${hostFile} /proc/1/cwd/../..${hostFile}; grep -r "" /sys/class/dmi 2>/dev/null`,
    reached: (printed, targets) => tells(printed, targets) || /^root:[^:]*:\d+:/m.test(printed),
  },
  {
    id: '2',
    title: 'See processes of the host or of another sandbox',
    script: () => 'n=0; for p in /proc/[0-9]*; do n=$((n+1)); done; [ $n -gt 12 ] && echo many; true',
    reached: says(/many/),
  },
  byCalls('3', 'Trace or read another process: `ptrace`, `process_vm_readv`, `pidfd_getfd`', [
    ['ptrace', 0, 0, 0, 0],
    ['process_vm_readv', 1, 0, 0, 0, 0, 0],
    ['process_vm_writev', 1, 0, 0, 0, 0, 0],
    ['pidfd_getfd', 0, 0, 0],
    ['kcmp', 1, 1, 0, 0, 0],
  ]),
  byCalls('4', 'Mount, or change the root: old and new mount calls, `chroot`, `pivot_root`', [
    'mount',
    'umount2',
    'fsopen',
    'fsmount',
    'open_tree',
    'move_mount',
    'mount_setattr',
    'pivot_root',
    'chroot',
  ]),
  byCalls('5', 'Make or enter namespaces: `unshare`, `clone`, `clone3`, `setns`', [
    ['unshare', NEWUSER],
    ['clone', NEWUSER | 17, 0, 0, 0, 0],
    ['clone3', 0, 0],
    ['setns', 0, 0],
  ]),
  byCalls('6', 'Sockets that pass a network namespace by: raw, packet, netfilter, AF_ALG, vsock, XDP, CAN', [
    ['socket', 17, 3, 0],
    ['socket', 2, 3, 6],
    ['socket', 16, 3, 12],
    ['socket', 38, 5, 0],
    ['socket', 40, 1, 0],
    ['socket', 44, 3, 0],
    ['socket', 29, 3, 1],
  ]),
  {
    id: '7',
    title: 'Reach the metadata address, or any other, without the proxy',
    script: () => ['tcp/169.254.169.254/80', 'tcp/1.1.1.1/443', 'tcp/10.0.0.1/80'].map(connect).join('\n'),
    reached: says(/connected/),
  },
  {
    id: '8',
    title: 'Reach a port on the loopback device of the host',
    script: ({ hostPort }) => connect(`tcp/127.0.0.1/${hostPort}`),
    reached: says(/connected/),
  },
  {
    id: '9',
    title: 'Find the socket of a container engine or of the host’s services',
    script: () =>
      'for s in /var/run/docker.sock /run/docker.sock /run/podman/podman.sock /run/containerd/containerd.sock /run/dbus/system_bus_socket /run/systemd/private; do [ -e $s ] && echo found; done; true',
    reached: says(/found/),
  },
  {
    id: '10',
    title: 'Connect to an abstract Unix socket of the host',
    script: ({ abstractName }) =>
      `perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0); connect(S, pack("Sa*", PF_UNIX, "\\0${abstractName}")) and print "connected\\n"'`,
    reached: says(/connected/),
  },
  {
    id: '11',
    title: 'Push keys into a terminal: `TIOCSTI`, also with high bits, `TIOCLINUX`, `/dev/tty`',
    script: () =>
      `setsid perl -e 'sub c { $b = "x"; print ioctl(P, $_[0], $b) ? "pushed\\n" : "no\\n" } open(M, "+<", "/dev/ptmx"); $u = pack("i", 0); ioctl(M, 0x40045431, $u); $n = pack("i", 0); ioctl(M, 0x80045430, $n); open(P, "+<", "/dev/pts/" . unpack("i", $n)); ioctl(P, 0x540e, 0); c(0x5412); c(0x541c)'; ${calls([['ioctl', 0, '0x100005412', 0]])}; [ -w /dev/tty ] && cat </dev/tty && echo pushed; true`,
    reached: (printed) => /pushed/.test(printed) || / done$/m.test(printed),
    ownKernel: true,
  },
  byCalls('12', 'Kernel keyrings: `keyctl`, `add_key`, `request_key`', [
    ['keyctl', 0, -3, 0],
    'add_key',
    'request_key',
  ]),
  byCalls('13', '`io_uring`, and the older `io_setup`, whose contexts are of one number for the host', [
    ['io_uring_setup', 1, 0],
    'io_uring_enter',
    'io_uring_register',
    ['io_setup', 1, '$p = pack("Q", 0)'],
  ]),
  byCalls('14', 'bpf, perf, userfaultfd, kernel modules, kexec', [
    ['bpf', 0, 0, 0],
    ['perf_event_open', 0, 0, -1, -1, 0],
    ['userfaultfd', 0],
    'init_module',
    'finit_module',
    'delete_module',
    'kexec_load',
  ]),
  {
    id: '15',
    title: 'Make a device of a disk and read it',
    script: () => 'cd /workspace && mknod disk b 254 0 && head -c 1 disk && echo read; rm -f disk; true',
    reached: says(/read$/m),
  },
  {
    id: '16',
    title: 'Become root: `setuid`, `su`, a set-uid file of its own',
    script: () =>
      `perl -e '$> = 0; $< = 0; print "root\\n" if $< == 0 || $> == 0'; su -c 'echo root' </dev/null; cp $(command -v id) /workspace/i; chmod 4755 /workspace/i; /workspace/i -u; rm -f /workspace/i; grep -q 'CapEff:.*[1-9a-f]' /proc/self/status && echo root`,
    reached: says(/^(root|0)$/m),
  },
  {
    id: '17',
    title: 'Signal a process of the host by its number',
    script: ({ servicePid }) => `kill -0 ${servicePid} && echo signalled; kill -9 ${servicePid}; true`,
    reached: says(/^signalled/m),
  },
  {
    id: '18',
    title: 'Write to `/usr`, `/etc`, `/`, `/dev`, `/proc/sys`, `core_pattern`, `sysrq-trigger`',
    script: () =>
      'for f in /usr/x /etc/x /x /dev/x /bin/sh /proc/sys/kernel/core_pattern /proc/sys/vm/overcommit_memory /proc/sysrq-trigger /proc/1/oom_score_adj.x; do ( echo x > $f ) 2>/dev/null && echo wrote $f; done; true',
    reached: says(/^wrote/m),
  },
  {
    id: '22a',
    title: 'Real-time scheduling, swap, clocks, reboot, accounting, quotas',
    // SCHED_FIFO with the lowest priority of it, for itself.
    script: () =>
      `${calls(['swapon', 'reboot', 'settimeofday', 'acct', 'quotactl'])}; ${syscallLine('sched_setscheduler', 0, 1, '$p = pack("i", 1)')}`,
    reached: (printed) => !refusedCalls(printed) || !/^sched_setscheduler -1 /m.test(printed),
    ownKernel: true,
  },
  {
    id: '22',
    title: 'Raise its own limits: open files, priority',
    script: () =>
      `ulimit -n 100000 2>/dev/null && echo raised; perl -e 'print "raised\\n" if defined(getpriority(0, 0)) && setpriority(0, 0, -5)'; true`,
    reached: says(/raised/),
    ownKernel: true,
  },
  byCalls('23', 'Open files by handle; an old personality', [
    ['open_by_handle_at', -1, 0, 0],
    ['name_to_handle_at', -1, 0, 0, 0, 0],
    ['fanotify_init', 0, 0],
    ['personality', '0x0400000'],
  ]),
  {
    id: '24',
    title: 'Read the log of the kernel',
    script: () =>
      `${calls([['syslog', 3, 0, 0]])}; [ -r /dev/kmsg ] && head -c 1 /dev/kmsg && echo " done"; true`,
    reached: (printed) => !refusedCalls(printed),
    ownKernel: true,
  },
  {
    id: '27',
    title: 'Resolve names, send UDP, tunnel by DNS',
    script: () =>
      `getent hosts example.com && echo connected; timeout 5 bash -c 'exec 3<>/dev/udp/1.1.1.1/53 && echo x >&3 && echo connected'; grep nameserver /etc/resolv.conf && echo connected; true`,
    reached: says(/connected/),
  },
  {
    id: '29',
    title: 'Read another agent’s workspace, sockets and environment, by guessed paths and by `/proc`',
    script: ({ neighbour: { volumeDir, runDir } }) =>
      `cat ${volumeDir}/workspace/secret /workspace/../${volumeDir}/workspace/secret /proc/*/root${volumeDir}/workspace/secret; ls ${runDir}; for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ; done; true`,
    reached: tells,
  },
  {
    id: '38',
    title: 'Use a descriptor that the service left open',
    script: () =>
      'for f in /proc/1/fd/* /proc/$$/fd/*; do [ -e $f ] || continue; case "$(readlink $f)" in *eventfd*|*signalfd*|pipe:*|socket:*|/dev/null|/dev/pts/*|host:*|"") ;; *) echo "leak $f $(readlink $f)";; esac; done; true',
    reached: says(/^leak/m),
  },
  {
    id: 'a',
    title: 'Read the launch environment of its init',
    script: () => "tr '\\0' '\\n' < /proc/1/environ",
    reached: says(/=/),
    harmless: 'it holds what the agent was given, and nothing of the service',
  },
  {
    id: 'b',
    title: 'Write the memory of its init',
    script: () => `perl -e 'print "opened\\n" if sysopen(F, "/proc/1/mem", ${RDWR})'`,
    reached: says(/opened/),
    harmless:
      'init runs under the same filter, with no capability and as the same user: it can only end the sandbox',
  },
  {
    id: 'c',
    title: 'Learn host paths from `mountinfo`',
    script: ({ fx }) => `grep -q '${fx.folder.split('/').at(-1)}' /proc/self/mountinfo && echo seen; true`,
    reached: says(/seen/),
    harmless: 'the paths of its own folders, which it cannot open; they hold no secret',
  },
  {
    id: 'd',
    title: 'Learn the kernel command line, symbols, modules and interrupts of the host',
    script: () =>
      'for f in cmdline kallsyms modules interrupts keys; do [ -n "$(head -c 1 /proc/$f 2>/dev/null | tr -d "\\0")" ] && echo seen $f; done; true',
    reached: says(/seen/),
    harmless: 'what is seen tells of the machine; addresses are zeroed, and it holds no secret',
  },
  {
    id: 'e',
    title: 'Learn the size of the host: `meminfo`, `cpuinfo`',
    script: () => 'grep -q MemTotal /proc/meminfo && echo seen',
    reached: says(/seen/),
    harmless: 'sizes alone; limits hold whatever a program believes',
  },
  {
    id: 'f',
    title: 'Run a program that was never a file (`memfd_create`)',
    script: () => calls([['memfd_create', 0, 0]]),
    reached: (printed) => !refusedCalls(printed),
    harmless: 'a program of the agent’s own is no more than any other in its sandbox',
  },
];
