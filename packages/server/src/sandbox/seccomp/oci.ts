import { absent, allowed, checked } from './policy.ts';
import { PUNCH_HOLE, roomRequests } from './disk-room.ts';
import {
  CLONE_NEW_ANY,
  deniedRequests,
  ENOSYS,
  EOPNOTSUPP,
  EPERM,
  inetFamilies,
  INET_PROTOCOLS,
  type FilterArch,
  PERSONALITIES,
  syscallsOf,
} from './filter.ts';

/** One rule of a profile as container runtimes take it (OCI runtime specification, config-linux, "Seccomp"). */
interface OciRule {
  names: string[];
  action: 'SCMP_ACT_ALLOW' | 'SCMP_ACT_ERRNO';
  errnoRet?: number;
  args?: OciArgument[];
}

interface OciArgument {
  index: number;
  /** The mask; what is equal under it is `valueTwo`. */
  value: number;
  valueTwo: number;
  op: 'SCMP_CMP_MASKED_EQ';
}

export interface OciProfile {
  defaultAction: 'SCMP_ACT_ERRNO';
  defaultErrnoRet: number;
  architectures: string[];
  syscalls: OciRule[];
}

const architectures: Record<FilterArch, string> = { x64: 'SCMP_ARCH_X86_64', arm64: 'SCMP_ARCH_AARCH64' };
const AF_UNIX = 1;
const AF_NETLINK = 16;
const NETLINK_ROUTE = 0;
/** The kernel looks at the low half of these arguments, so a rule must too. */
const LOW_HALF = 0xffff_ffff;

/**
 * The same policy as `compileFilter`, for engines that compile filters themselves. Where the arguments of a socket, of clone
 * or of personality are not allowed the error is the default's, since a profile has no "all others".
 */
export function ociProfile(arch: FilterArch): OciProfile {
  const known = syscallsOf(arch);
  const always = new Set(allowed.filter((name) => known.has(name)));
  const byArguments = new Set<string>(checked);
  const denied = [...known.keys()].filter((name) => !always.has(name) && !byArguments.has(name));
  return {
    defaultAction: 'SCMP_ACT_ERRNO',
    defaultErrnoRet: ENOSYS,
    architectures: [architectures[arch]],
    syscalls: [
      { names: [...always], action: 'SCMP_ACT_ALLOW' },
      { names: denied, action: 'SCMP_ACT_ERRNO', errnoRet: EPERM },
      { names: ['clone3', ...absent], action: 'SCMP_ACT_ERRNO', errnoRet: ENOSYS },
      // No new namespace.
      allowMasked('clone', 0, CLONE_NEW_ANY, 0),
      ...socketRules(),
      allowWhen(['socketpair'], [0, AF_UNIX]),
      ...PERSONALITIES.map((value) => allowWhen(['personality'], [0, value])),
      ...everythingBut([...deniedRequests, ...roomRequests]).map(({ mask, value }) =>
        allowMasked('ioctl', 1, mask, value),
      ),
      ...deniedRequests.map((value) => refuseMasked('ioctl', 1, LOW_HALF, value, EPERM)),
      // Programs go another way at this error alone, so it is said of every mode that takes room.
      ...roomRequests.map((value) => refuseMasked('ioctl', 1, LOW_HALF, value, EOPNOTSUPP)),
      allowMasked('fallocate', 1, LOW_HALF, PUNCH_HOLE),
      ...everythingBut([PUNCH_HOLE]).map(({ mask, value }) =>
        refuseMasked('fallocate', 1, mask, value, EOPNOTSUPP),
      ),
    ],
  };
}

function socketRules(): OciRule[] {
  return [
    allowWhen(['socket'], [0, AF_UNIX]),
    allowWhen(['socket'], [0, AF_NETLINK], [2, NETLINK_ROUTE]),
    ...inetFamilies.flatMap((family) =>
      INET_PROTOCOLS.map((protocol) => allowWhen(['socket'], [0, family], [2, protocol])),
    ),
  ];
}

function allowWhen(names: string[], ...args: [index: number, value: number][]): OciRule {
  return {
    names,
    action: 'SCMP_ACT_ALLOW',
    args: args.map(([index, value]) => maskedEqual(index, LOW_HALF, value)),
  };
}

function allowMasked(name: string, index: number, mask: number, value: number): OciRule {
  return { names: [name], action: 'SCMP_ACT_ALLOW', args: [maskedEqual(index, mask, value)] };
}

function refuseMasked(name: string, index: number, mask: number, value: number, errnoRet: number): OciRule {
  return { names: [name], action: 'SCMP_ACT_ERRNO', errnoRet, args: [maskedEqual(index, mask, value)] };
}

function maskedEqual(index: number, mask: number, value: number): OciArgument {
  return { index, value: mask, valueTwo: value, op: 'SCMP_CMP_MASKED_EQ' };
}

/**
 * All 32-bit numbers but a few, as prefixes: profiles that deny by default can only say what is allowed, and have no "none
 * of these". Walks the binary tree from the top and takes every branch in which none of the few lies.
 */
export function everythingBut(values: readonly number[]): { mask: number; value: number }[] {
  const found: { mask: number; value: number }[] = [];
  const walk = (prefix: number, bits: number): void => {
    const mask = bits === 0 ? 0 : (LOW_HALF << (32 - bits)) >>> 0;
    const inside = values.filter((value) => (value & mask) >>> 0 === prefix);
    if (inside.length === 0) {
      found.push({ mask, value: prefix });
      return;
    }
    if (bits === 32) return;
    walk(prefix, bits + 1);
    walk((prefix | (1 << (31 - bits))) >>> 0, bits + 1);
  };
  walk(0, 0);
  return found;
}
