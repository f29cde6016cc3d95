import { readFileSync } from 'node:fs';

const KIB_PER_MB = 1_000_000 / 1024;

function readKib(path: string, field: string): number {
  try {
    const match = new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(readFileSync(path, 'utf8'));
    return Number(match?.[1] ?? 0);
  } catch {
    return 0;
  }
}

/** Resident memory of processes in MB; pages that several share count for each of them. */
export function rssMb(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => sum + readKib(`/proc/${pid}/status`, 'VmRSS'), 0) / KIB_PER_MB;
}

/** The same with every shared page divided by the number of processes that share it. */
export function pssMb(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => sum + readKib(`/proc/${pid}/smaps_rollup`, 'Pss'), 0) / KIB_PER_MB;
}

/**
 * Kernel memory (page tables, stacks, sockets, namespaces) that the cgroups of these processes are charged for, in MB; each
 * group counts once, that of this process never. Groups of version 1 and 2 have it in different files; zero where there is none.
 */
export function kernelMb(pids: readonly number[]): number {
  const bytes = new Map(pids.flatMap(groupKernelBytes));
  for (const [own] of groupKernelBytes(process.pid)) bytes.delete(own);
  return [...bytes.values()].reduce((sum, of) => sum + of, 0) / 1_000_000;
}

function groupKernelBytes(pid: number): [group: string, bytes: number][] {
  try {
    const path = /^\d+:(?:[^:\n]*,)?memory(?:,[^:\n]*)?:(.*)$/m.exec(
      readFileSync(`/proc/${pid}/cgroup`, 'utf8'),
    )?.[1];
    const unified = /^0::(.*)$/m.exec(readFileSync(`/proc/${pid}/cgroup`, 'utf8'))?.[1] ?? '';
    if (path !== undefined) {
      const file = `/sys/fs/cgroup/memory${path}/memory.kmem.usage_in_bytes`;
      return path === '/' ? [] : [[path, Number(readFileSync(file, 'utf8'))]];
    }
    const stat = readFileSync(`/sys/fs/cgroup${unified}/memory.stat`, 'utf8');
    return [[unified, Number(/^kernel (\d+)/m.exec(stat)?.[1] ?? 0)]];
  } catch {
    return [];
  }
}

/** Looks at the resident memory of one process now and then; `stop` gives the highest that was seen. */
export function watchPeakRssMb(pid: number): { stop(): number } {
  let peakMb = rssMb([pid]);
  const timer = setInterval(() => (peakMb = Math.max(peakMb, rssMb([pid]))), 100);
  return {
    stop() {
      clearInterval(timer);
      return peakMb;
    },
  };
}
