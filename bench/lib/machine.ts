import { cpus, loadavg, release, totalmem } from 'node:os';
import { statfsSync } from 'node:fs';

export interface Machine {
  cores: number;
  cpu: string;
  memoryGb: number;
  kernel: string;
  node: string;
  /** Over the last minute, before the run. */
  load: number;
  /** Where the data directory is. */
  disk: string;
}

const TMPFS = 0x01021994;

export function machine(dataParent: string): Machine {
  const all = cpus();
  return {
    cores: all.length,
    cpu: all[0]?.model.trim() ?? 'unknown',
    memoryGb: Math.round(totalmem() / 1e9),
    kernel: release(),
    node: process.version,
    load: Math.round((loadavg()[0] ?? 0) * 100) / 100,
    disk: statfsSync(dataParent).type === TMPFS ? 'memory (durable writes are not measured)' : 'disk',
  };
}
