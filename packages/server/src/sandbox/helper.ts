import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { started } from './started.ts';

export const PERL = '/usr/bin/perl';
const ANSWER_MS = 5_000;

/** unshare, setns, prlimit64, setgroups, setresgid, setresuid, prctl; the younger calls have the same number everywhere. */
const callNumbers = { x64: [272, 308, 302, 116, 119, 117, 157], arm64: [97, 268, 261, 159, 149, 147, 167] }[
  process.arch as string
];

/** In the environment of a helper: whose it is. */
export const HELPER_VARIABLE = 'BERTH_HELPER';

/** Why there is no helper here; null when there is one. */
export function missingHelper(perl: string): string | null {
  if (!callNumbers) return `It is not known how on ${process.arch}.`;
  return existsSync(perl) ? null : `${perl} is missing: apt-get install -y perl-base.`;
}

/**
 * Reads orders, a line each, and answers each with its number. A child of its own does one.
 *
 * `mount`: it clones the two trees of the volume, so that no mount is seen on the host; lets their files appear as those of
 * the sandbox's user (an idmapped mount, mount_setattr(2)), without set-uid, devices or propagation; enters the mount
 * namespace of the sandbox, when it still is the one that was meant; and puts them there.
 *
 * `limit`: it moves the first process of a sandbox into its cgroups, and then, as the user of the sandbox, who has no power
 * over any other process, sets its rlimits (prlimit(2)).
 *
 * `wait`: it moves itself to where it is already. See `expectMove`.
 */
const script = String.raw`
use strict;
my ($UNSHARE, $SETNS, $PRLIMIT, $SETGROUPS, $SETRESGID, $SETRESUID, $PRCTL, $parent) = @ARGV;
# PR_SET_PDEATHSIG: also one that stands still, and so reads no end of its input, ends with the service.
syscall($PRCTL, 1, 9) == 0 or die "prctl: $!";
getppid() == $parent or exit;
my ($OPEN_TREE, $MOVE_MOUNT, $MOUNT_SETATTR) = (428, 429, 442);
my $empty = "\0";

sub user_namespace {
  my ($from, $to) = @_;
  pipe(my $ready, my $say) or die "pipe: $!";
  pipe(my $wait, my $done) or die "pipe: $!";
  defined(my $pid = fork) or die "fork: $!";
  if (!$pid) {
    close $done;
    syscall($UNSHARE, 0x10000000) == 0 or exit 1;
    syswrite $say, "x";
    sysread $wait, my $end, 1;
    exit 0;
  }
  close $say; close $wait;
  sysread($ready, my $x, 1) == 1 or die "unshare failed";
  for my $file ("uid_map", "gid_map") {
    open(my $map, ">", "/proc/$pid/$file") or die "$file: $!";
    defined(syswrite $map, "$from $to 1\n") or die "$file: $!";
  }
  open(my $ns, "<", "/proc/$pid/ns/user") or die "ns: $!";
  close $done; waitpid $pid, 0;
  return $ns;
}

sub place {
  my ($init, $inode, $from, $to, $dir) = @_;
  my $ns = user_namespace($from, $to);
  # struct mount_attr: ID-mapped, nosuid, nodev; nothing cleared; private.
  my $attributes = pack("Q4", 0x100000 | 2 | 4, 0, 1 << 18, fileno $ns);
  my @trees;
  for my $pair (["workspace", "/workspace"], ["home", "/home/agent"]) {
    my ($path, $target) = ("$dir/$pair->[0]\0", "$pair->[1]\0");
    # OPEN_TREE_CLONE, O_CLOEXEC, AT_SYMLINK_NOFOLLOW
    my $tree = syscall($OPEN_TREE, -100, $path, 1 | 02000000 | 0x100);
    $tree >= 0 or die "open_tree: $!";
    syscall($MOUNT_SETATTR, $tree, $empty, 0x1000, $attributes, 32) == 0 or die "mount_setattr: $!";
    push @trees, [$tree, $target];
  }
  open(my $mounts, "<", "/proc/$init/ns/mnt") or die "ns/mnt: $!";
  (stat $mounts)[1] == $inode or die "it is another sandbox";
  syscall($SETNS, fileno $mounts, 0x20000) == 0 or die "setns: $!";
  for (@trees) {
    my ($tree, $target) = @$_;
    syscall($MOVE_MOUNT, $tree, $empty, -100, $target, 4) == 0 or die "move_mount: $!";
  }
}

sub join_group {
  my ($pid, $folder) = @_;
  my $file = pack("H*", $folder) . "/cgroup.procs";
  open(my $procs, ">", $file) or die "$file: $!";
  defined(syswrite $procs, $pid) or die "$file: $!";
}

sub limit {
  my ($init, $uid, $gid, $folders, $limits) = @_;
  join_group($init, $_) for grep { $_ ne "-" } split /,/, $folders;
  if ($uid ne "-") {
    syscall($SETGROUPS, 0, 0) == 0 or die "setgroups: $!";
    syscall($SETRESGID, $gid + 0, $gid + 0, $gid + 0) == 0 or die "setresgid: $!";
    syscall($SETRESUID, $uid + 0, $uid + 0, $uid + 0) == 0 or die "setresuid: $!";
  }
  for (split /,/, $limits) {
    my ($resource, $value) = split /:/;
    # struct rlimit64, soft and hard
    my $both = pack("Q2", $value, $value);
    syscall($PRLIMIT, $init + 0, $resource + 0, $both, 0) == 0 or die "prlimit $resource: $!";
  }
}

my %orders = (
  mount => sub { place(@_[0 .. 3], pack("H*", $_[4])) },
  limit => \&limit,
  wait => sub { join_group($$, $_[0]) },
);

$SIG{CHLD} = "IGNORE";
while (my $line = <STDIN>) {
  my ($number, $order, @values) = split " ", $line;
  my $pid = fork;
  if (!defined $pid) { syswrite STDOUT, "$number fork: $!\n"; next }
  next if $pid;
  $SIG{CHLD} = "DEFAULT";
  my $said = eval { $orders{$order}->(@values); 1 } ? "ok" : $@;
  $said =~ s/\s+/ /g;
  syswrite STDOUT, "$number $said\n";
  exit 0;
}
`;

/**
 * A small process that does what Node cannot, or could only by a process that is forked of the whole service, which takes
 * longer the larger the service is. It is started once, waits for orders, and ends with the service.
 */
export class Helper {
  private readonly perl: string;
  private readonly name: string;
  private readonly answerMs: number;
  #child: ChildProcess | null = null;
  #next = 1;
  readonly #waiting = new Map<number, (said: string) => void>();

  /** `name`: of the installation, by which its helper is found among the processes of a host. */
  constructor(perl: string, name: string, answerMs = ANSWER_MS) {
    this.perl = perl;
    this.name = name;
    this.answerMs = answerMs;
  }

  /** Starts it, so that the first order need not wait for it. */
  begin(): ChildProcess {
    if (this.#child) return this.#child;
    const child = started(
      spawn(this.perl, ['-e', script, ...[...callNumbers!, process.pid].map(String)], {
        env: { LC_ALL: 'C', [HELPER_VARIABLE]: this.name },
        cwd: '/',
        stdio: ['pipe', 'pipe', 'ignore'],
      }),
    );
    this.#child = child;
    child.stdin!.on('error', () => undefined);
    createInterface(child.stdout!).on('line', (line) => {
      const [, number, said = ''] = /^(\d+) (.*)$/.exec(line) ?? [];
      this.#waiting.get(Number(number))?.(said);
    });
    // One that could not be started tells that it never began, and not that it ended.
    for (const end of ['exit', 'error'])
      child.once(end, () => {
        if (this.#child === child) this.#forget();
      });
    // It must not hold the service.
    child.unref();
    for (const stream of [child.stdin, child.stdout]) (stream as { unref?: () => void }).unref?.();
    return child;
  }

  /** Resolves with `ok`, or with what went wrong. The values must have no blanks. */
  async ask(order: 'mount' | 'limit' | 'wait', values: (string | number)[]): Promise<string> {
    const child = this.begin();
    const number = this.#next++;
    return new Promise<string>((resolve) => {
      const timer = setTimeout(() => {
        resolve('no answer');
        // It stands still: the next order is for another one, and what it has not read is never done.
        if (this.#child === child) this.#forget();
        child.kill('SIGKILL');
      }, this.answerMs);
      this.#waiting.set(number, (text) => {
        clearTimeout(timer);
        resolve(text);
      });
      child.stdin!.write(`${number} ${order} ${values.join(' ')}\n`);
    }).finally(() => this.#waiting.delete(number));
  }

  #forget(): void {
    this.#child = null;
    for (const answer of this.#waiting.values()) answer('the helper ended');
  }

  close(): void {
    this.#child?.stdin?.end();
  }
}

/** A path as an order names it. */
export const hex = (path: string): string => Buffer.from(path).toString('hex');
