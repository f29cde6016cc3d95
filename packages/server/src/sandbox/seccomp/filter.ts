import { assemble, type Line } from './bpf.ts';
import { PUNCH_HOLE, roomRequests } from './disk-room.ts';
import { absent, allowed, type Checked } from './policy.ts';
import { syscallsArm64 } from './syscalls-arm64.ts';
import { syscallsX64 } from './syscalls-x64.ts';

export type FilterArch = 'x64' | 'arm64';

interface ArchTable {
  /** AUDIT_ARCH_* of uapi/linux/audit.h. */
  audit: number;
  syscalls: ReadonlyMap<string, number>;
}

const archTables: Record<FilterArch, ArchTable> = {
  x64: { audit: 0xc000003e, syscalls: syscallsX64 },
  arm64: { audit: 0xc00000b7, syscalls: syscallsArm64 },
};

const KILL_PROCESS = 0x80000000;
const ALLOW = 0x7fff0000;
const REFUSE = 0x00050000;
export const EPERM = 1;
export const ENOSYS = 38;
const EPROTONOSUPPORT = 93;
export const EOPNOTSUPP = 95;
const EAFNOSUPPORT = 97;

/** Offsets in `struct seccomp_data`. Of 64-bit arguments the low half is read: the kernel cuts the ones below to 32 bits. */
const NUMBER = 0;
const ARCH = 4;
const argument = (index: number): number => 16 + 8 * index;

const X32_BIT = 0x40000000;
/** CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. */
export const CLONE_NEW_ANY = 0x7e020000;
const TIOCSTI = 0x5412;
const TIOCLINUX = 0x541c;
/** Line disciplines are old code that any pty reaches. */
const TIOCSETD = 0x5423;
/** Terminal requests that reach other programs or old drivers. */
export const deniedRequests = [TIOCSTI, TIOCLINUX, TIOCSETD];
const AF_UNIX = 1;
const AF_INET = 2;
const AF_INET6 = 10;
export const inetFamilies = [AF_INET, AF_INET6];
const AF_NETLINK = 16;
const NETLINK_ROUTE = 0;
/** Default, ICMP, TCP, UDP, ICMPv6: others would load protocol modules of the host's kernel. */
export const INET_PROTOCOLS = [0, 1, 6, 17, 58];
export const PERSONALITIES = [0, 8, 0xffffffff];

const ret = (value: number): Line => ({ op: 'return', value: value >>> 0 });
const allow = ret(ALLOW);
const refuse = (errno: number): Line => ret(REFUSE | errno);

/** The rule of each system call whose arguments matter; every path ends with a return. */
const rules: Record<Exclude<Checked, (typeof absent)[number]>, Line[]> = {
  clone: [
    { op: 'load', offset: argument(0) },
    { op: 'anyBit', value: CLONE_NEW_ANY, yes: 'next', no: 'clone-ok' },
    refuse(EPERM),
    { label: 'clone-ok' },
    allow,
  ],
  // Its flags lie in memory that a filter cannot read; libc falls back to clone.
  clone3: [refuse(ENOSYS)],
  socket: socketRule(),
  socketpair: [
    { op: 'load', offset: argument(0) },
    { op: 'equal', value: AF_UNIX, yes: 'next', no: 'pair-bad' },
    allow,
    { label: 'pair-bad' },
    refuse(EAFNOSUPPORT),
  ],
  ioctl: [
    { op: 'load', offset: argument(1) },
    ...refuseEach(roomRequests, refuse(EOPNOTSUPP)),
    ...refuseEach(deniedRequests, refuse(EPERM)),
    allow,
  ],
  personality: [{ op: 'load', offset: argument(0) }, ...oneOf('personality', PERSONALITIES, refuse(EPERM))],
  fallocate: [{ op: 'load', offset: argument(1) }, ...oneOf('fallocate', [PUNCH_HOLE], refuse(EOPNOTSUPP))],
};

/** A network namespace does not stop AF_VSOCK, AF_ALG and their like, so families are listed. */
function socketRule(): Line[] {
  return [
    { op: 'load', offset: argument(0) },
    { op: 'equal', value: AF_UNIX, yes: 'socket-ok', no: 'next' },
    { op: 'equal', value: AF_INET, yes: 'socket-inet', no: 'next' },
    { op: 'equal', value: AF_INET6, yes: 'socket-inet', no: 'next' },
    { op: 'equal', value: AF_NETLINK, yes: 'next', no: 'socket-bad' },
    { op: 'load', offset: argument(2) },
    { op: 'equal', value: NETLINK_ROUTE, yes: 'socket-ok', no: 'socket-bad' },
    { label: 'socket-bad' },
    refuse(EAFNOSUPPORT),
    { label: 'socket-ok' },
    allow,
    { label: 'socket-inet' },
    { op: 'load', offset: argument(2) },
    ...oneOf('inet', INET_PROTOCOLS, refuse(EPROTONOSUPPORT)),
  ];
}

function oneOf(name: string, values: number[], otherwise: Line): Line[] {
  const tests = values.map((value): Line => ({ op: 'equal', value, yes: `${name}-yes`, no: 'next' }));
  return [...tests, otherwise, { label: `${name}-yes` }, allow];
}

/** Goes on with what follows when it is none of them. */
function refuseEach(values: readonly number[], refusal: Line): Line[] {
  return values.flatMap((value): Line[] => [
    { op: 'equal', value, yes: 'next', no: `not-${value}` },
    refusal,
    { label: `not-${value}` },
  ]);
}

/** Whether there is a filter for an architecture (as in `process.arch`). */
export function isFilterArch(arch: string): arch is FilterArch {
  return Object.hasOwn(archTables, arch);
}

export function syscallsOf(arch: FilterArch): ReadonlyMap<string, number> {
  return archTables[arch].syscalls;
}

/** The compiled allow-list, as `bwrap --seccomp` takes it. */
export function compileFilter(arch: FilterArch): Buffer {
  const { audit, syscalls } = archTables[arch];
  const highest = Math.max(...syscalls.values());
  return assemble([
    { op: 'load', offset: ARCH },
    { op: 'equal', value: audit, yes: 'arch-ok', no: 'next' },
    ret(KILL_PROCESS),
    { label: 'arch-ok' },
    { op: 'load', offset: NUMBER },
    ...(arch === 'x64' ? refuseX32() : []),
    ...Object.entries(rules).flatMap(([name, rule]) => applyRule(name, syscalls, rule)),
    ...absent.flatMap((name) => applyRule(name, syscalls, [refuse(ENOSYS)])),
    ...ranges(syscalls).flatMap(([low, high]) => allowRange(low, high)),
    // Newer system calls do not exist here, so libc falls back; known ones are refused.
    { op: 'greater', value: highest, yes: 'unknown', no: 'next' },
    refuse(EPERM),
    { label: 'unknown' },
    refuse(ENOSYS),
  ]);
}

function refuseX32(): Line[] {
  return [{ op: 'atLeast', value: X32_BIT, yes: 'next', no: 'native' }, refuse(ENOSYS), { label: 'native' }];
}

function applyRule(name: string, syscalls: ReadonlyMap<string, number>, rule: Line[]): Line[] {
  const value = syscalls.get(name);
  if (value === undefined) throw new Error(`No number is known for the system call ${name}.`);
  return [{ op: 'equal', value, yes: 'next', no: `after-${name}` }, ...rule, { label: `after-${name}` }];
}

/** Numbers that are allowed, joined to ranges; names that an architecture does not have are left out. */
function ranges(syscalls: ReadonlyMap<string, number>): [low: number, high: number][] {
  const numbers = allowed.flatMap((name) => syscalls.get(name) ?? []).sort((a, b) => a - b);
  const joined: [number, number][] = [];
  for (const number of numbers) {
    const last = joined.at(-1);
    if (last && last[1] + 1 === number) last[1] = number;
    else joined.push([number, number]);
  }
  return joined;
}

function allowRange(low: number, high: number): Line[] {
  return [
    { op: 'greater', value: high, yes: `above-${high}`, no: 'next' },
    { op: 'atLeast', value: low, yes: 'next', no: `above-${high}` },
    allow,
    { label: `above-${high}` },
  ];
}
