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
