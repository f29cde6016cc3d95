import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { MARK_VARIABLE } from '../launch.ts';
import { allPids, notOurs, tryKill } from '../processes.ts';
import { processStats } from '../process-stats.ts';
import type { Tree } from '../tree.ts';

const GONE_TIMEOUT_MS = 10_000;

/** Processes of this host whose environment carries a mark that begins so, with the mark. */
export function markedByEnvironment(prefix: string): { pid: number; mark: string }[] {
  const wanted = `${MARK_VARIABLE}=${prefix}`;
  return allPids().flatMap((pid) => {
    try {
      const entries = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0');
      const found = entries.find((entry) => entry.startsWith(wanted));
      return found && !isZombie(pid) ? [{ pid, mark: found.slice(MARK_VARIABLE.length + 1) }] : [];
    } catch (error) {
      return notOurs(error);
    }
  });
}

/** A process group that any member can leave, so members are told by their environment, which they can also change. */
export function markedTree(mark: string): Tree {
  const pids = (): number[] =>
    markedByEnvironment(mark).flatMap((one) => (one.mark === mark ? [one.pid] : []));
  const kill = (): void => pids().forEach((pid) => tryKill(pid));
  return {
    pids,
    agentPids: pids,
    usage: () => processStats(pids()),
    oomKills: () => 0,
    kill,
    destroy: async () => {
      const deadline = performance.now() + GONE_TIMEOUT_MS;
      for (let waitMs = 1; pids().length > 0; waitMs = Math.min(waitMs * 2, 50)) {
        if (performance.now() > deadline) throw new Error(`Processes ${pids().join(', ')} do not end.`);
        kill();
        await delay(waitMs);
      }
    },
    processCount: () => null,
    freezer: null,
  };
}

function isZombie(pid: number): boolean {
  return /^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
}
