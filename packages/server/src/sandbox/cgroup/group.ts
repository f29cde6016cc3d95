import { closeSync, existsSync, mkdirSync, openSync, writeFileSync } from 'node:fs';
import { rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { SandboxLimits } from '../../domain/ports/sandbox.ts';
import type { Usage } from '../process-stats.ts';
import { tryKill } from '../processes.ts';
import { readNumber, readOpenNumber, readPids, readText, tryWrite } from './files.ts';
import { makeAgain, type Controller, type Hierarchy } from './hierarchy.ts';

const CPU_PERIOD_US = 100_000;
const EMPTY_TIMEOUT_MS = 10_000;
const FREEZE_TIMEOUT_MS = 5000;

/** The cgroup of one sandbox: a folder of the same name in every hierarchy that could be written. */
export class Group {
  private readonly folders: { hierarchy: Hierarchy; path: string }[];
  /** Stays open, since it is read at the end of each turn, and to open it takes eight times as long as to read it. */
  private countFile: number | null = null;

  /** `paths` are the folders in each hierarchy, where they have not all the name of the sandbox. */
  constructor(hierarchies: Hierarchy[], id: string, paths?: string[]) {
    this.folders = hierarchies.map((hierarchy, index) => ({
      hierarchy,
      path: paths?.[index] ?? join(hierarchy.parent, id),
    }));
  }

  /** Makes the folders. */
  create(): void {
    for (const { hierarchy, path } of this.folders) {
      makeAgain(hierarchy);
      mkdirSync(path, { recursive: true });
    }
  }

  /** Throws when a limit cannot be set, since it would only be claimed. */
  limit(limits: SandboxLimits): void {
    for (const { hierarchy, path } of this.folders) {
      for (const [file, value] of limitFiles(hierarchy, limits)) writeFileSync(join(path, file), value);
      // Without swap the memory limit is the whole truth; kernels without swap accounting lack these files.
      if (hierarchy.controllers.includes('memory')) {
        if (hierarchy.version === 2) tryWrite(join(path, 'memory.swap.max'), '0');
        else tryWrite(join(path, 'memory.memsw.limit_in_bytes'), String(limits.memoryBytes));
      }
    }
  }

  /**
   * Moves a process in. The first move may wait some milliseconds for the kernel (an RCU grace period), those that
   * follow at once do not; so they go one after the other, and off the event loop.
   */
  async join(pid: number): Promise<void> {
    for (const { path } of this.folders) await writeFile(join(path, 'cgroup.procs'), String(pid));
  }

  /** Moves a process that is none of the agent's to where the service is. It stays where that cannot be, or when it has ended. */
  async part(pid: number): Promise<void> {
    for (const { path, own } of this.places()) {
      if (own === null || !readPids(path).includes(pid)) continue;
      await writeFile(join(own, 'cgroup.procs'), String(pid)).catch(() => undefined);
    }
  }

  /** Its folders, each with that of the service in the same hierarchy. */
  places(): { path: string; own: string | null }[] {
    return this.folders.map(({ path, hierarchy }) => ({ path, own: hierarchy.own }));
  }

  /** Its share of the CPUs when they are short, in cores; the limit stays. */
  setWeight(cpus: number): void {
    for (const { hierarchy, path } of this.folders) {
      if (!hierarchy.controllers.includes('cpu')) continue;
      const [file, value] = weightFile(hierarchy, cpus);
      tryWrite(join(path, file), value);
    }
  }

  /** Whether its folders are there. */
  exists(): boolean {
    return this.folders.every(({ path }) => existsSync(path));
  }

  pids(): number[] {
    return [...new Set(this.folders.flatMap(({ path }) => readPids(path)))];
  }

  /** Times that the kernel killed a process of this sandbox for want of memory. */
  oomKills(): number {
    return this.oomKillsIfThere() ?? 0;
  }

  /** Null where the kernel does not count them, or the group is gone. */
  oomKillsIfThere(): number | null {
    const memory = this.folderOf('memory');
    if (!memory) return null;
    const file = memory.version === 2 ? 'memory.events' : 'memory.oom_control';
    return readNumber(join(memory.path, file), 'oom_kill');
  }

  /** CPU time so far, memory without page cache, processes and threads. */
  usage(): Usage {
    const memory = this.folderOf('memory');
    return {
      cpuMicros: this.cpuMicros(),
      memoryBytes: memory ? memoryBytes(memory) : 0,
      pids: this.processCount() ?? this.pids().length,
    };
  }

  /** Processes and threads; null where the kernel does not count them, or the group is gone. */
  processCount(): number | null {
    const pids = this.folders.find(({ hierarchy }) => hierarchy.controllers.includes('pids'));
    if (!pids) return null;
    try {
      this.countFile ??= openSync(join(pids.path, 'pids.current'), 'r');
      return readOpenNumber(this.countFile);
    } catch {
      this.closeCountFile();
      return null;
    }
  }

  get canFreeze(): boolean {
    return this.freezer() !== undefined;
  }

  /** Asked of the kernel, since an earlier process of the service may have frozen it. */
  isFrozen(): boolean {
    const freezer = this.freezer();
    if (!freezer) return false;
    const { hierarchy, path } = freezer;
    if (hierarchy.version === 2) return readNumber(join(path, 'cgroup.events'), 'frozen') === 1;
    return readText(join(path, 'freezer.state'))?.trim() === 'FROZEN';
  }

  /** Resolves when nothing runs any more. A process that cannot be stopped right now (in a slow disk access) delays it. */
  async freeze(): Promise<void> {
    const deadline = performance.now() + FREEZE_TIMEOUT_MS;
    this.setFrozen(true);
    for (let waitMs = 1; !this.isFrozen(); waitMs = Math.min(waitMs * 2, 50)) {
      if (performance.now() > deadline) {
        this.thaw();
        throw new Error('A sandbox could not be frozen within five seconds.');
      }
      await delay(waitMs);
      // Version 1 does not go on by itself when a process was being born.
      this.setFrozen(true);
    }
  }

  thaw(): void {
    this.setFrozen(false);
  }

  private setFrozen(frozen: boolean): void {
    const freezer = this.freezer();
    if (!freezer) return;
    const { hierarchy, path } = freezer;
    if (hierarchy.version === 2) tryWrite(join(path, 'cgroup.freeze'), frozen ? '1' : '0');
    else tryWrite(join(path, 'freezer.state'), frozen ? 'FROZEN' : 'THAWED');
  }

  private freezer(): { hierarchy: Hierarchy; path: string } | undefined {
    return this.folders.find(({ hierarchy }) => hierarchy.freezes);
  }

  /** Sends SIGKILL to everything inside. A version 2 group does that at once; elsewhere forking is closed first. */
  kill(): void {
    const atOnce = this.folders.some(
      ({ hierarchy, path }) => hierarchy.version === 2 && tryWrite(join(path, 'cgroup.kill'), '1'),
    );
    if (atOnce) return;
    const pids = this.folderOf('pids');
    if (pids) tryWrite(join(pids.path, 'pids.max'), '0');
    for (const pid of this.pids()) tryKill(pid);
    // Version 1 keeps even SIGKILL waiting while frozen; what wakes up now finds it first.
    if (this.freezer()?.hierarchy.version === 1) this.thaw();
  }

  /** Kills until nothing is left, then removes the folders. Throws when something will not die within ten seconds. */
  async destroy(): Promise<void> {
    const deadline = performance.now() + EMPTY_TIMEOUT_MS;
    try {
      for (let waitMs = 1; !(await this.removeFolders()); waitMs = Math.min(waitMs * 2, 50)) {
        if (performance.now() > deadline)
          throw new Error(`Processes ${this.pids().join(', ')} of a sandbox do not end.`);
        this.kill();
        await delay(waitMs);
      }
    } finally {
      this.closeCountFile();
    }
  }

  private closeCountFile(): void {
    if (this.countFile !== null) closeSync(this.countFile);
    this.countFile = null;
  }

  private async removeFolders(): Promise<boolean> {
    const removed = await Promise.all(
      this.folders.map(({ path }) =>
        rmdir(path).then(
          () => true,
          (error: NodeJS.ErrnoException) => error.code === 'ENOENT',
        ),
      ),
    );
    return removed.every(Boolean);
  }

  private cpuMicros(): number {
    for (const { hierarchy, path } of this.folders) {
      if (hierarchy.version === 2) {
        const micros = readNumber(join(path, 'cpu.stat'), 'usage_usec');
        if (micros !== null) return micros;
      }
      const nanos = readNumber(join(path, 'cpuacct.usage'));
      if (nanos !== null) return Math.round(nanos / 1000);
    }
    return 0;
  }

  private folderOf(controller: Controller): { version: 1 | 2; path: string } | null {
    const found = this.folders.find(({ hierarchy }) => hierarchy.controllers.includes(controller));
    return found && existsSync(found.path) ? { version: found.hierarchy.version, path: found.path } : null;
  }
}

function limitFiles(hierarchy: Hierarchy, limits: SandboxLimits): [file: string, value: string][] {
  const quotaUs = Math.max(1000, Math.round(limits.cpus * CPU_PERIOD_US));
  const files: Record<Controller, [string, string][]> =
    hierarchy.version === 2
      ? {
          memory: [['memory.max', String(limits.memoryBytes)]],
          cpu: [['cpu.max', `${quotaUs} ${CPU_PERIOD_US}`], weightFile(hierarchy, limits.cpus)],
          pids: [['pids.max', String(limits.pids)]],
        }
      : {
          memory: [['memory.limit_in_bytes', String(limits.memoryBytes)]],
          cpu: [
            ['cpu.cfs_period_us', String(CPU_PERIOD_US)],
            ['cpu.cfs_quota_us', String(quotaUs)],
            weightFile(hierarchy, limits.cpus),
          ],
          pids: [['pids.max', String(limits.pids)]],
        };
  return hierarchy.controllers.flatMap((controller) => files[controller]);
}

function weightFile({ version }: Hierarchy, cpus: number): [file: string, value: string] {
  return version === 2
    ? ['cpu.weight', String(Math.min(10_000, Math.max(1, Math.round(100 * cpus))))]
    : ['cpu.shares', String(Math.max(2, Math.round(1024 * cpus)))];
}

function memoryBytes({ version, path }: { version: 1 | 2; path: string }): number {
  const file = join(path, 'memory.stat');
  const anonymous = readNumber(file, version === 2 ? 'anon' : 'total_rss') ?? 0;
  return anonymous + (readNumber(file, version === 2 ? 'shmem' : 'total_shmem') ?? 0);
}
