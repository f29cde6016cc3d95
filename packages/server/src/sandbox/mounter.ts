import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { started } from './started.ts';

const PERL = '/usr/bin/perl';
const ANSWER_MS = 5_000;

/** unshare and setns; the younger calls have the same number everywhere. */
const callNumbers = { x64: [272, 308], arm64: [97, 268] }[process.arch as string];

/** Lines that say what is missing; empty when volumes can be mounted into sandboxes that run. */
export function missingForMounting(isRoot: boolean): string[] {
  if (!isRoot) return ['Only root can mount a volume into a sandbox that runs.'];
  if (!callNumbers) return [`It is not known how on ${process.arch}.`];
  return existsSync(PERL) ? [] : [`${PERL} is missing: apt-get install -y perl-base.`];
}

/**
 * Reads orders, a line each, and answers each with its number. A child of its own does one: it clones the two trees of the
 * volume, so that no mount is seen on the host; lets their files appear as those of the sandbox's user (an idmapped mount,
 * mount_setattr(2)), without set-uid, devices or propagation; enters the mount namespace of the sandbox, when it still is the
 * one that was meant; and puts them there. Node has none of these system calls.
 */
const script = String.raw`
use strict;
my ($UNSHARE, $SETNS) = @ARGV;
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

$SIG{CHLD} = "IGNORE";
while (my $line = <STDIN>) {
  my ($number, $init, $inode, $from, $to, $dir) = split " ", $line;
  defined(my $pid = fork) or next;
  next if $pid;
  $SIG{CHLD} = "DEFAULT";
  my $said = eval { place($init, $inode, $from, $to, pack("H*", $dir)); 1 } ? "ok" : $@;
  $said =~ s/\s+/ /g;
  syswrite STDOUT, "$number $said\n";
  exit 0;
}
`;

const ROOT_MS = 5_000;
const LOOK_MS = 2;

/**
 * Resolves once a sandbox that was let go has its own root: bwrap tells of its init before that, and what is mounted too
 * early is not found or lies in the wrong place. Also resolves when it has ended, which whoever goes on finds.
 */
export async function hasOwnRoot(initPid: number): Promise<void> {
  const deadline = performance.now() + ROOT_MS;
  while (!isRooted(initPid) && performance.now() < deadline) await delay(LOOK_MS);
}

/**
 * The places of the new root are told without a folder before them when it is the root, and the old one lies over it for a
 * moment (proc_pid_mountinfo(5)).
 */
function isRooted(pid: number): boolean {
  try {
    const places = readFileSync(`/proc/${pid}/mountinfo`, 'utf8')
      .split('\n')
      .map((line) => line.split(' ')[4]);
    return places.includes('/run/berth') && places.filter((place) => place === '/').length === 1;
  } catch {
    return true;
  }
}

export interface MountOrder {
  initPid: number;
  /** Inode of the sandbox's mount namespace. */
  namespace: number;
  volumeDir: string;
  /** Host uid and gid of the volume's owner, and the sandbox's own, as whose the files are to appear. */
  ownerId: number;
  userId: number;
}

/** Mounts volumes into sandboxes that run. One helper process waits for orders, and ends with the service. */
export class Mounter {
  #child: ChildProcess | null = null;
  #next = 1;
  readonly #waiting = new Map<number, (said: string) => void>();

  /** Starts the helper, so that the first order need not wait for it. */
  begin(): ChildProcess {
    if (this.#child) return this.#child;
    const child = started(
      spawn(PERL, ['-e', script, ...callNumbers!.map(String)], {
        env: { LC_ALL: 'C' },
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
    child.once('exit', () => {
      if (this.#child === child) this.#child = null;
      for (const answer of this.#waiting.values()) answer('the helper ended');
    });
    // It must not hold the service.
    child.unref();
    for (const stream of [child.stdin, child.stdout]) (stream as { unref?: () => void }).unref?.();
    return child;
  }

  /** Rejects when a volume could not be mounted; parts of it may have been then. */
  async mount({ initPid, namespace, volumeDir, ownerId, userId }: MountOrder): Promise<void> {
    const { stdin } = this.begin();
    const number = this.#next++;
    const said = await new Promise<string>((resolve) => {
      const timer = setTimeout(() => resolve('no answer'), ANSWER_MS);
      this.#waiting.set(number, (text) => {
        clearTimeout(timer);
        resolve(text);
      });
      const path = Buffer.from(volumeDir).toString('hex');
      stdin!.write(`${number} ${initPid} ${namespace} ${ownerId} ${userId} ${path}\n`);
    }).finally(() => this.#waiting.delete(number));
    if (said !== 'ok') throw new Error(`The volume could not be mounted: ${said}`);
  }

  close(): void {
    this.#child?.stdin?.end();
  }
}
