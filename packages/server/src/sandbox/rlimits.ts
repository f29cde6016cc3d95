import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { started } from './started.ts';
import type { SandboxLimits } from '../domain/ports/sandbox.ts';
import type { Group } from './cgroup/group.ts';
import type { Controller } from './cgroup/hierarchy.ts';
import { hex } from './helper.ts';
import type { SandboxUser } from './volume.ts';

export interface Rlimits {
  limits: SandboxLimits;
  /** What cgroups already limit over the whole sandbox. */
  enforced: readonly Controller[];
  /** Largest file that may be written. */
  fileBytes: number;
}

/** V8 reserves 512 MiB of writable address space for code before it uses any; a limit without it keeps Node from starting. */
export const RESERVED_DATA_BYTES = 640 * 1024 * 1024;

interface Rlimit {
  /** As prlimit(1) names it. */
  name: string;
  /** As the kernel does (asm-generic/resource.h). */
  resource: number;
  value: number;
}

/**
 * A core limit of one byte stops both a core file and a core handler of the host, which runs outside of any sandbox and
 * which a limit of zero does not stop (core(5)). Where cgroups do not limit memory, the data limit does, per process: the
 * address space is no measure, since Node reserves many gigabytes of it.
 */
function rlimitsOf({ limits, enforced, fileBytes }: Rlimits): Rlimit[] {
  const data = { name: 'data', resource: 2, value: limits.memoryBytes + RESERVED_DATA_BYTES };
  return [
    { name: 'core', resource: 4, value: 1 },
    { name: 'rtprio', resource: 14, value: 0 },
    { name: 'nice', resource: 13, value: 0 },
    { name: 'nofile', resource: 7, value: limits.openFiles },
    { name: 'fsize', resource: 1, value: fileBytes },
    ...(enforced.includes('memory') ? [] : [data]),
    ...(enforced.includes('pids') ? [] : [{ name: 'nproc', resource: 6, value: limits.pids }]),
  ];
}

export interface LimitedProcesses {
  /** Whose processes those of the sandbox are. */
  user: SandboxUser;
  /** Its cgroup; null where there are none. */
  group: Group | null;
}

export interface LimitOrder extends LimitedProcesses {
  rlimits: Rlimits;
}

/**
 * Puts the first process of a sandbox into its cgroups and limits it, from outside, before its program runs; everything in
 * it inherits that. It is done after its user namespace was made, so that the kernel (5.14 or newer) counts processes per
 * sandbox and not per host user. This is the way without the helper, or where that failed; see `limitValue`.
 */
export async function setLimits(initPid: number, order: LimitOrder, prlimit: string): Promise<void> {
  const { rlimits, user, group } = order;
  await Promise.all([setRlimits(prlimit, initPid, rlimits, user), group?.join(initPid)]);
}

/** As the helper is told: the user of the processes, and the folders of the cgroup, each with that of the service in the same hierarchy. */
export function processValues({ user, group }: LimitedProcesses): string[] {
  const owner = user ? [String(user.uid), String(user.gid)] : ['-', '-'];
  const folders = (group?.places() ?? []).map(
    ({ path, own }) => `${hex(path)}:${own === null ? '-' : hex(own)}`,
  );
  return [...owner, folders.join(',') || '-'];
}

/** The same of the limits themselves. */
export const limitValue = (rlimits: Rlimits): string =>
  rlimitsOf(rlimits)
    .map(({ resource, value }) => `${resource}:${value}`)
    .join(',');

async function setRlimits(prlimit: string, pid: number, rlimits: Rlimits, user: SandboxUser): Promise<void> {
  const options = rlimitsOf(rlimits).map(({ name, value }) => `--${name}=${value}`);
  const args = ['--pid', String(pid), ...options];
  const child = started(
    spawn(prlimit, args, { ...user, env: { LC_ALL: 'C' }, stdio: ['ignore', 'ignore', 'pipe'] }),
  );
  let errors = '';
  child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()));
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`The limits of the sandbox could not be set: ${errors.trim()}`);
}
