import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { rssMb } from './memory.ts';
import { readProcess, servicePids } from './process-tree.ts';

/** What the machine shows of the sandboxes of a service, and of the service itself. */
interface Look {
  /** So far. */
  cpuMs: number;
  memoryMb: number;
  processes: number;
  /** Of the one `dd` that has used most. */
  ddCpuMs: number;
  /** What the service has read so far. */
  readMb: number;
  descriptors: number;
}

/** What an attack is known by: how far a figure goes beyond what it was. */
export type Deed = Partial<Look>;

const BETWEEN_MS = 100;
const PATIENCE_MS = 10_000;

export interface Deeds {
  /** Waits until all of them are seen, for some seconds at most; resolves with those that are not. */
  missing(deeds: readonly Deed[]): Promise<Deed[]>;
}

/** Looks at a service whose sandboxes do nothing yet. */
export function watchDeeds(servicePid: number): Deeds {
  const quiet = lookAt(servicePid);
  return {
    async missing(deeds) {
      // What only ever grows counts from now on.
      const { cpuMs, readMb } = lookAt(servicePid);
      const before: Look = { ...quiet, cpuMs, readMb };
      const endMs = Date.now() + PATIENCE_MS;
      const missing = new Set(deeds);
      for (;;) {
        const now = lookAt(servicePid);
        for (const deed of missing) if (isDone(deed, before, now)) missing.delete(deed);
        if (missing.size === 0 || Date.now() > endMs) return [...missing];
        await delay(BETWEEN_MS);
      }
    },
  };
}

function isDone(deed: Deed, before: Look, now: Look): boolean {
  return (Object.entries(deed) as [keyof Look, number][]).every(
    ([name, more]) => now[name] - before[name] >= more,
  );
}

function lookAt(servicePid: number): Look {
  const pids = servicePids(servicePid).sandbox;
  const all = pids.flatMap((pid) => readProcess(pid) ?? []);
  const dd = all.flatMap(({ name, cpuMs }) => (name === 'dd' ? [cpuMs] : []));
  const io = readFileSync(`/proc/${servicePid}/io`, 'utf8');
  return {
    cpuMs: all.reduce((sum, { cpuMs }) => sum + cpuMs, 0),
    memoryMb: rssMb(pids),
    processes: pids.length,
    ddCpuMs: Math.max(0, ...dd),
    readMb: Number(/^rchar: (\d+)/m.exec(io)?.[1] ?? 0) / 1_000_000,
    descriptors: readdirSync(`/proc/${servicePid}/fd`).length,
  };
}
