import { readFileSync, readlinkSync } from 'node:fs';
import type { SandboxStats } from '../domain/ports/sandbox.ts';
import { allPids, statFields } from './processes.ts';

/** What can be read at one moment. */
export type Usage = Omit<SandboxStats, 'memoryByteSeconds'>;

/** Clock ticks a second in /proc; USER_HZ is 100 on every architecture that we run on. */
const TICK_MICROS = 10_000;

/** Pids, as the host sees them, of everything in the PID namespace of a sandbox's init. */
export function namespacePids(initPid: number): number[] {
  const namespace = pidNamespace(initPid);
  return namespace === null ? [] : allPids().filter((pid) => pidNamespace(pid) === namespace);
}

/** What /proc tells where cgroups cannot be used: approximate, since a process may end between two looks. */
export function processStats(pids: number[]): Usage {
  const stats: Usage = { cpuMicros: 0, memoryBytes: 0, pids: 0 };
  for (const pid of pids) {
    const fields = statFields(pid);
    if (!fields) continue;
    // utime, stime and, of children already waited for, cutime and cstime.
    stats.cpuMicros += [11, 12, 13, 14].reduce((sum, at) => sum + Number(fields[at] ?? 0), 0) * TICK_MICROS;
    stats.memoryBytes += ownMemoryBytes(pid);
    stats.pids += 1;
  }
  return stats;
}

function ownMemoryBytes(pid: number): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    return ['RssAnon', 'RssShmem'].reduce((sum, name) => {
      const kib = new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status)?.[1];
      return sum + Number(kib ?? 0) * 1024;
    }, 0);
  } catch {
    return 0;
  }
}

function pidNamespace(pid: number): string | null {
  try {
    return readlinkSync(`/proc/${pid}/ns/pid`);
  } catch {
    return null;
  }
}
