import { existsSync } from 'node:fs';
import { isId } from '../domain/ids.ts';
import type { Log } from '../domain/log.ts';
import type {
  ReadOnlyBind,
  RunningSandbox,
  SandboxCapabilities,
  SandboxDriver,
  SandboxSpec,
} from '../domain/ports/sandbox.ts';
import { quotaFor, type Quota } from './disk/quota.ts';
import { DiskWatch } from './disk/watch.ts';
import { inheritedDescriptors, prepareArea, type Area } from './area.ts';
import { openCgroups, type Cgroups } from './cgroup/cgroups.ts';
import type { Group } from './cgroup/group.ts';
import { readMounts } from './cgroup/mounts.ts';
import { launch, type Launched } from './launch.ts';
import { launchArguments } from './launch-args.ts';
import { endingProcesses, gone, markedProcesses, startTime, tryKill } from './processes.ts';
import { namespacePids } from './process-stats.ts';
import { probe } from './probe.ts';
import { setRlimits } from './rlimits.ts';
import { BubblewrapSandbox } from './running.ts';
import { prepareRunDir, prepareVolume, removeVolume, type SandboxUser } from './volume.ts';

export interface BubblewrapOptions {
  /** Folder for what all sandboxes share; other users must be able to enter it. Made when absent. */
  areaDir: string;
  /** Names this installation's sandboxes on the host: letters, digits and `-`. */
  name: string;
  log: Log;
  bwrapPath?: string;
  prlimitPath?: string;
  /** False keeps away from cgroups, for hosts where they belong to somebody else. */
  useCgroups?: boolean;
}

/** As root each agent gets a host user of its own, so that even a broken sandbox cannot read another's files. */
const FIRST_UID = 200_000;
const GONE_TIMEOUT_MS = 10_000;

interface Host {
  area: Area;
  cgroups: Cgroups;
  leaking: number[];
}

export class BubblewrapDriver implements SandboxDriver {
  readonly name = 'bubblewrap';
  private readonly options: Required<BubblewrapOptions>;
  private readonly isRoot = process.getuid?.() === 0;
  private readonly starting = new Set<string>();
  private readonly running = new Map<string, BubblewrapSandbox>();
  private readonly disks: DiskWatch;
  private host: Promise<Host> | null = null;

  constructor(options: BubblewrapOptions) {
    if (!/^[a-z0-9-]{1,64}$/.test(options.name))
      throw new Error(`"${options.name}" cannot name an installation.`);
    this.options = {
      bwrapPath: '/usr/bin/bwrap',
      prlimitPath: '/usr/bin/prlimit',
      useCgroups: true,
      ...options,
    };
    this.disks = new DiskWatch(options.log);
  }

  capabilities(): Promise<SandboxCapabilities> {
    const { bwrapPath, prlimitPath, areaDir } = this.options;
    return probe({
      driver: this,
      programs: [
        { path: bwrapPath, debianPackage: 'bubblewrap' },
        { path: prlimitPath, debianPackage: 'util-linux' },
      ],
      areaDir,
      isRoot: this.isRoot,
      enforced: async () => (await this.openHost()).cgroups.enforced,
    });
  }

  async start(spec: SandboxSpec): Promise<RunningSandbox> {
    if (!isId(spec.id)) throw new Error(`"${spec.id}" is no id of a sandbox.`);
    if (this.running.has(spec.id) || this.starting.has(spec.id)) {
      throw new Error(`The sandbox ${spec.id} is running already.`);
    }
    this.starting.add(spec.id);
    try {
      return await this.startOnce(spec, await this.openHost());
    } finally {
      this.starting.delete(spec.id);
    }
  }

  private async startOnce(spec: SandboxSpec, host: Host): Promise<RunningSandbox> {
    const user = this.userOf(spec.slot);
    const args = launchArguments(spec, host.area);
    refuseMissing(spec.binds);
    prepareVolume(spec.volumeDir, user);
    prepareRunDir(spec.runDir, user);
    const quota = await quotaFor(spec.volumeDir, spec.limits.diskBytes);
    const group = host.cgroups.hierarchies.length > 0 ? host.cgroups.group(spec.id) : null;
    const launched = launch({
      bwrap: this.options.bwrapPath,
      args,
      command: spec.command,
      mark: `${this.options.name}/${spec.id}`,
      filterFile: host.area.filterFile,
      user,
      leaking: host.leaking,
    });
    try {
      group?.create(spec.limits);
      // bwrap mounts meanwhile; it waits for `release` before it runs the program.
      const initPid = await launched.initPid;
      const { enforced } = host.cgroups;
      const rlimits = { limits: spec.limits, enforced, fileBytes: quota.fileBytes };
      await Promise.all([setRlimits(this.options.prlimitPath, initPid, rlimits, user), group?.join(initPid)]);
      const sandbox = this.adopt(spec, launched, initPid, group, quota);
      launched.release();
      return sandbox;
    } catch (error) {
      throw await this.undo(launched, spec.id, group, error);
    }
  }

  private adopt(
    spec: SandboxSpec,
    launched: Launched,
    initPid: number,
    group: Group | null,
    quota: Quota,
  ): BubblewrapSandbox {
    const sandbox = new BubblewrapSandbox({
      id: spec.id,
      child: launched.child,
      initPid,
      group,
      onEnd: () => this.forget(spec.id),
    });
    this.running.set(spec.id, sandbox);
    this.disks.add({
      id: spec.id,
      volumeDir: spec.volumeDir,
      quota,
      pids: () => group?.pids() ?? namespacePids(initPid),
      end: () => void sandbox.end('disk_full'),
    });
    return sandbox;
  }

  async list(): Promise<string[]> {
    const host = await this.openHost();
    const prefix = `${this.options.name}/`;
    const marked = markedProcesses().flatMap(({ mark }) =>
      mark.startsWith(prefix) ? [mark.slice(prefix.length)] : [],
    );
    return [...new Set([...this.running.keys(), ...host.cgroups.list(), ...marked])].filter(isId);
  }

  async remove(id: string): Promise<void> {
    if (!isId(id)) return;
    const running = this.running.get(id);
    if (running) {
      await running.kill();
      return;
    }
    const host = await this.openHost();
    await this.endMarked(id);
    await host.cgroups.group(id).destroy();
  }

  removeVolume(volumeDir: string): Promise<void> {
    return removeVolume(volumeDir);
  }

  /** Ends every sandbox of this process and takes away the empty folders that held their cgroups. */
  async close(): Promise<void> {
    await Promise.all([...this.running.values()].map((sandbox) => sandbox.kill()));
    (await this.host?.catch(() => null))?.cgroups.close();
  }

  private forget(id: string): void {
    this.running.delete(id);
    this.disks.remove(id);
  }

  private userOf(slot: number): SandboxUser {
    if (!Number.isInteger(slot) || slot < 0) throw new Error(`${slot} is no slot of an agent.`);
    return this.isRoot ? { uid: FIRST_UID + slot, gid: FIRST_UID + slot } : null;
  }

  private openHost(): Promise<Host> {
    if (this.host) return this.host;
    const host = this.findHost();
    this.host = host;
    // A later start may find what was missing by now.
    host.catch(() => (this.host = null));
    return host;
  }

  private async findHost(): Promise<Host> {
    const found = this.options.useCgroups ? readMounts() : { mounts: [], selfCgroup: '' };
    return {
      area: prepareArea(this.options.areaDir),
      cgroups: await openCgroups({ ...found, name: `berth-${this.options.name}`, isRoot: this.isRoot }),
      leaking: inheritedDescriptors(),
    };
  }

  private async undo(launched: Launched, id: string, group: Group | null, error: unknown): Promise<Error> {
    const said = launched.abort();
    // Before its program runs, bwrap's init does not yet die with its monitor.
    await this.endMarked(id);
    await group?.destroy();
    return new Error(`The sandbox did not start: ${(await said).trim() || String(error)}`, { cause: error });
  }

  /** Ends the bwrap processes of a sandbox, whoever started them; with its init goes everything in it. */
  private async endMarked(id: string): Promise<void> {
    const mark = `${this.options.name}/${id}`;
    const left = markedProcesses().flatMap((process) => (process.mark === mark ? [process.pid] : []));
    const ends = [...left, ...endingProcesses()].map((pid) => gone(pid, startTime(pid), GONE_TIMEOUT_MS));
    for (const pid of left) tryKill(pid);
    await Promise.all(ends);
  }
}

/** bwrap would say so too, but only after the start was reported. */
function refuseMissing(binds: ReadOnlyBind[]): void {
  for (const { hostPath, path } of binds) {
    if (existsSync(hostPath)) continue;
    throw new Error(`The sandbox did not start: ${hostPath}, to be seen as ${path}, is not there.`);
  }
}

export function createBubblewrap(options: BubblewrapOptions): BubblewrapDriver {
  return new BubblewrapDriver(options);
}
