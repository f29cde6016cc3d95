import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, readlinkSync } from 'node:fs';
import { setUp } from './processes.ts';
import { started } from './started.ts';

const NSENTER = '/usr/bin/nsenter';
const PERL = '/usr/bin/perl';
const ipPaths = ['/usr/sbin/ip', '/sbin/ip', '/usr/bin/ip'];

/** Lines that say what is missing for transparent egress; empty when all is there. */
export function transparentPrograms(isRoot: boolean): string[] {
  const lines: string[] = [];
  if (isRoot && !existsSync(NSENTER)) lines.push(`${NSENTER} is missing: apt-get install -y util-linux.`);
  if (!isRoot && !existsSync(PERL)) lines.push(`${PERL} is missing: apt-get install -y perl-base.`);
  if (!isRoot && setnsNumber === undefined) lines.push(`Only root can set it up on ${process.arch}.`);
  if (!ipPaths.some(existsSync)) lines.push('ip is missing: apt-get install -y iproute2.');
  return lines;
}

const setnsNumber = { x64: 308, arm64: 268 }[process.arch as string];

/**
 * Without root: the network namespace belongs to a user namespace in which no process is left, since bubblewrap nests a
 * second one. The kernel names it by its descriptor (NS_GET_USERNS, ioctl_ns(2)), and the user who made it has all rights
 * in it. `nsenter` learned this only in util-linux 2.40.
 */
const enterAsOwner = `
my ($pid, @command) = @ARGV;
sysopen(my $net, "/proc/$pid/ns/net", 0) or die "ns/net: $!";
my $owner = ioctl($net, 0xb701, 0) or die "NS_GET_USERNS: $!";
for ([$owner + 0, 0x10000000], [fileno($net), 0x40000000]) {
  syscall(${setnsNumber ?? -1}, @$_) == 0 or die "setns: $!";
}
exec @command or die "exec: $!";`;

/**
 * To set it up fails when the loopback device gets its address later. Without root bwrap maps its users after that, its groups last, and
 * whoever enters before then keeps no right: the first program that it executes finds itself to be nobody.
 */
export const canBeEntered = (initPid: number, isRoot: boolean): boolean =>
  readFileSync(`/proc/${initPid}/net/fib_trie`, 'utf8').includes('127.0.0.1') &&
  (isRoot || readFileSync(`/proc/${initPid}/gid_map`, 'utf8') !== '');

/**
 * Makes every IPv4 address local in the network namespace of a sandbox that was made but does not run yet, and lets any
 * user listen on any port there. A program inside that connects anywhere then reaches whoever listens in the sandbox,
 * who sees the wanted address as its own. The sandbox has no right to change that. Done from outside, as root or as the
 * user who started the sandbox.
 */
export async function openEveryAddress(initPid: number, isRoot: boolean): Promise<void> {
  const ip = ipPaths.find(existsSync);
  const missing = transparentPrograms(isRoot);
  if (ip === undefined || missing.length > 0)
    throw new Error(`Transparent egress is not possible: ${missing.join(' ')}`);
  await setUp(() => canBeEntered(initPid, isRoot));
  // A process that has ended may have left its number to another one, and the network of the host must stay as it is.
  const script = [
    'set -e',
    'if [ "$(readlink /proc/self/ns/net)" = "$1" ]; then echo "the process is not in a sandbox" >&2; exit 1; fi',
    'echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start',
    `${ip} link set lo up`,
    `exec ${ip} route add local 0.0.0.0/0 dev lo`,
  ].join('\n');
  const enter = isRoot
    ? [NSENTER, `--net=/proc/${initPid}/ns/net`]
    : [PERL, '-e', enterAsOwner, String(initPid)];
  const child = started(
    spawn(enter[0]!, [...enter.slice(1), '/bin/sh', '-c', script, 'sh', readlinkSync('/proc/self/ns/net')], {
      env: { LC_ALL: 'C' },
      stdio: ['ignore', 'ignore', 'pipe'],
    }),
  );
  let errors = '';
  child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()));
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`Transparent egress could not be set up: ${errors.trim()}`);
}
