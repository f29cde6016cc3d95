import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { started } from './started.ts';
import type { SandboxLimits } from '../domain/ports/sandbox.ts';
import type { Controller } from './cgroup/hierarchy.ts';
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

/**
 * Options of prlimit(1). A core limit of one byte stops both a core file and a core handler of the host, which runs
 * outside of any sandbox and which a limit of zero does not stop (core(5)). Where cgroups do not limit memory, the data
 * limit does, per process: the address space is no measure, since Node reserves many gigabytes of it.
 */
export function rlimitOptions({ limits, enforced, fileBytes }: Rlimits): string[] {
  return [
    '--core=1',
    '--rtprio=0',
    '--nice=0',
    `--nofile=${limits.openFiles}`,
    `--fsize=${fileBytes}`,
    ...(enforced.includes('memory') ? [] : [`--data=${limits.memoryBytes + RESERVED_DATA_BYTES}`]),
    ...(enforced.includes('pids') ? [] : [`--nproc=${limits.pids}`]),
  ];
}

/**
 * Limits the first process of a sandbox, from outside, before its program runs; everything in it inherits that. It is
 * done after its user namespace was made, so that the kernel (5.14 or newer) counts processes per sandbox and not per
 * host user.
 */
export async function setRlimits(
  prlimit: string,
  pid: number,
  rlimits: Rlimits,
  user: SandboxUser,
): Promise<void> {
  const args = ['--pid', String(pid), ...rlimitOptions(rlimits)];
  const child = started(
    spawn(prlimit, args, { ...user, env: { LC_ALL: 'C' }, stdio: ['ignore', 'ignore', 'pipe'] }),
  );
  let errors = '';
  child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()));
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`The limits of the sandbox could not be set: ${errors.trim()}`);
}
