import type { Usage } from '../process-stats.ts';
import type { Engine } from './engine.ts';

interface Stats {
  cpu_stats?: { cpu_usage?: { total_usage?: number } };
  memory_stats?: { usage?: number; stats?: Record<string, number> };
  pids_stats?: { current?: number };
}

/** What the engine itself counts, for one whose cgroups cannot be seen from here. */
export async function engineUsage(engine: Engine, name: string): Promise<Usage> {
  const stats = (await engine.call('GET', `/containers/${name}/stats?stream=false&one-shot=true`)) as Stats;
  const memory = stats.memory_stats ?? {};
  // Page cache is not the sandbox's: version 1 calls it cache, version 2 file.
  const cache = memory.stats?.['file'] ?? memory.stats?.['cache'] ?? 0;
  return {
    cpuMicros: Math.round((stats.cpu_stats?.cpu_usage?.total_usage ?? 0) / 1000),
    memoryBytes: Math.max(0, (memory.usage ?? 0) - cache),
    pids: stats.pids_stats?.current ?? 0,
  };
}
