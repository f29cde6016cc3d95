import type { Group } from './cgroup/group.ts';
import { gone, killKnown, type KnownProcess } from './processes.ts';
import { namespacePids, processStats, type Usage } from './process-stats.ts';

const GONE_TIMEOUT_MS = 10_000;

/** All processes of a sandbox, however they are held together. */
export interface Tree {
  /** Host pids of everything inside. */
  pids(): number[];
  /** Those of the agent, without an init of ours. */
  agentPids(): number[];
  usage(): Usage;
  /** Processes and threads by one look; null where it takes `usage`. */
  processCount(): number | null;
  /** Times that the kernel killed one for want of memory, so far. */
  oomKills(): number;
  /** Sends SIGKILL to everything. */
  kill(): void;
  /** Kills until nothing is left, and takes away what held it together. */
  destroy(): Promise<void>;
  /** Null where it cannot be frozen. */
  freezer: { isFrozen(): boolean; freeze(): Promise<void>; thaw(): void } | null;
}

/**
 * A PID namespace, and a cgroup where there is one. With the init of the namespace everything in it dies. `monitorPid`: of bwrap outside
 * of it, which is in the cgroup for a moment.
 */
export function namespaceTree(init: KnownProcess, monitorPid: number, group: Group | null): Tree {
  const { pid: initPid, since } = init;
  const pids = (): number[] => group?.pids() ?? namespacePids(initPid);
  const kill = (): void => {
    group?.kill();
    killKnown(init);
  };
  return {
    pids,
    agentPids: () => pids().filter((pid) => pid !== initPid && pid !== monitorPid),
    usage: () => (group ? group.usage() : processStats(namespacePids(initPid))),
    processCount: () => group?.processCount() ?? null,
    oomKills: () => group?.oomKills() ?? 0,
    kill,
    destroy: async () => {
      kill();
      await gone(initPid, since, GONE_TIMEOUT_MS);
      await group?.destroy();
    },
    freezer: group?.canFreeze ? group : null,
  };
}
