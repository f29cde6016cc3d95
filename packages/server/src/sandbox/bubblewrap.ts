import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { isId } from '../domain/ids.ts';
import type { Log } from '../domain/log.ts';
import type {
  Isolation,
  ReadOnlyBind,
  RunningSandbox,
  SandboxCapabilities,
  SandboxDriver,
  SandboxSpec,
} from '../domain/ports/sandbox.ts';
import { volumeUse } from './disk/quota.ts';
import { DiskWatch } from './disk/watch.ts';
import { inheritedDescriptors, prepareArea, type Area } from './area.ts';
import { openCgroups, type Cgroups } from './cgroup/cgroups.ts';
import type { Group } from './cgroup/group.ts';
import { readMounts } from './cgroup/mounts.ts';
import { closedStreams, launch, type Launched } from './launch.ts';
import { launchArguments } from './launch-args.ts';
import { adoptedMonitor, childMonitor } from './monitor.ts';
import { logFileIn } from './output-log.ts';
import { endingProcesses, gone, isRunning, markedProcesses, startTime, tryKill } from './processes.ts';
import { probe } from './probe.ts';
import { currentBootId, Records } from './record.ts';
import { setRlimits } from './rlimits.ts';
import { LocalSandbox, type LocalSandboxParts } from './running.ts';
import { Sampler } from './sampler.ts';
import { openEveryAddress, transparentPrograms } from './transparent.ts';
import { namespaceTree } from './tree.ts';
import { prepareRunDir, type SandboxUser } from './volume.ts';
import { Volumes, type DiskOptions, type OpenVolume } from './volumes.ts';

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
  /** Absent: volumes are folders, and watched. */
  disk?: DiskOptions;
}

/** As root each agent gets a host user of its own, so that even a broken sandbox cannot read another's files. */
const FIRST_UID = 200_000;
const GONE_TIMEOUT_MS = 10_000;

type SandboxParts = Omit<LocalSandboxParts, 'onEnd' | 'isDiskFull'> & { volumeDir: string };

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
  private readonly running = new Map<string, LocalSandbox>();
  /** By sandbox. */
  private readonly volumeDirs = new Map<string, string>();
  private readonly disks: DiskWatch;
  private readonly volumes: Volumes;
  private readonly records: Records;
  private readonly sampler: Sampler;
  private host: Promise<Host> | null = null;

  constructor(options: BubblewrapOptions) {
    if (!/^[a-z0-9-]{1,64}$/.test(options.name))
      throw new Error(`"${options.name}" cannot name an installation.`);
    this.options = {
      bwrapPath: '/usr/bin/bwrap',
      prlimitPath: '/usr/bin/prlimit',
      useCgroups: true,
      disk: { mode: 'watch', imagesDir: join(options.areaDir, 'disks'), bytes: 0 },
      ...options,
    };
    this.disks = new DiskWatch(options.log);
    this.volumes = new Volumes(this.options.disk, options.log);
    this.records = new Records(options.areaDir);
    this.sampler = new Sampler(options.log);
  }

  async isolation(): Promise<Isolation> {
    return 'kernel';
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
      cgroups: async () => (await this.openHost()).cgroups,
      disk: () => this.volumes.report(),
      missingForTransparent: transparentPrograms(this.isRoot),
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
    const volume = await this.volumes.open(spec.volumeDir, user, spec.limits.diskBytes);
    prepareRunDir(spec.runDir, user);
    const group = host.cgroups.hierarchies.length > 0 ? host.cgroups.group(spec.id) : null;
    const logFile = spec.detached ? logFileIn(spec.runDir) : null;
    const launched = launch({
      bwrap: this.options.bwrapPath,
      args,
      command: spec.command,
      mark: `${this.options.name}/${spec.id}`,
      filterFile: host.area.filterFile,
      user,
      leaking: host.leaking,
      detached: logFile === null ? null : { logFile, statusFile: this.records.statusFile(spec.id) },
    });
    try {
      group?.create(spec.limits);
      // bwrap mounts meanwhile; it waits for `release` before it runs the program.
      const initPid = await launched.initPid;
      const { enforced } = host.cgroups;
      const rlimits = { limits: spec.limits, enforced, fileBytes: volume.fileBytes };
      await Promise.all([
        setRlimits(this.options.prlimitPath, initPid, rlimits, user),
        group?.join(initPid),
        spec.transparentEgress ? openEveryAddress(initPid, this.isRoot) : null,
      ]);
      if (logFile !== null) this.record(spec, launched, initPid, group, logFile);
      const monitor = childMonitor(launched.child);
      const { streams } = launched;
      const tree = namespaceTree(initPid, group);
      const parts = { id: spec.id, volumeDir: spec.volumeDir, monitor, streams, logFile, tree };
      const sandbox = this.keep(parts, volume);
      launched.release();
      return sandbox;
    } catch (error) {
      throw await this.undo(launched, spec.id, group, error);
    }
  }

  async adopt(id: string): Promise<RunningSandbox | null> {
    const here = this.running.get(id);
    if (here) return here;
    const record = isId(id) ? this.records.read(id) : null;
    if (!record || record.bootId !== currentBootId()) return null;
    if (!isRunning(record.initPid, record.initSince)) return null;
    const { cgroups } = await this.openHost();
    const group = record.hasGroup ? cgroups.group(id) : null;
    // Without its group nobody would hold it to its limits.
    if (group && (cgroups.hierarchies.length === 0 || !group.exists())) return null;
    const volume = await this.volumes.adopt(record.volumeDir, record.limits.diskBytes);
    // Meanwhile somebody else may have taken it up.
    const meanwhile = this.running.get(id);
    if (meanwhile) return meanwhile;
    const monitor = adoptedMonitor(
      { pid: record.initPid, since: record.initSince },
      { pid: record.monitorPid, since: record.monitorSince },
      this.records.exitCodeReader(id),
    );
    const { volumeDir, logFile, initPid } = record;
    const tree = namespaceTree(initPid, group);
    return this.keep({ id, volumeDir, monitor, streams: closedStreams(), logFile, tree }, volume);
  }

  /** Written before the program runs, so that a service that dies right now leaves what the next one needs. */
  private record(
    spec: SandboxSpec,
    launched: Launched,
    initPid: number,
    group: Group | null,
    logFile: string,
  ): void {
    const monitorPid = launched.child.pid ?? 0;
    const [initSince, monitorSince] = [startTime(initPid), startTime(monitorPid)];
    if (initSince === null || monitorSince === null) throw new Error('bwrap has ended.');
    this.records.write({
      id: spec.id,
      bootId: currentBootId(),
      ...{ initPid, initSince, monitorPid, monitorSince },
      volumeDir: spec.volumeDir,
      logFile,
      limits: spec.limits,
      hasGroup: group !== null,
    });
  }

  private keep(parts: SandboxParts, volume: OpenVolume): LocalSandbox {
    const { id } = parts;
    const sandbox = new LocalSandbox({
      ...parts,
      isDiskFull: () => volume.isFull(),
      onEnd: () => this.forget(id),
    });
    this.running.set(id, sandbox);
    this.volumeDirs.set(id, parts.volumeDir);
    this.sampler.add(sandbox);
    this.disks.add({
      id,
      volumeDir: parts.volumeDir,
      quota: volume.quota,
      hostDir: volume.hostDir,
      pids: () => sandbox.pids(),
      end: () => void sandbox.end('disk_full'),
      hold: () => sandbox.hold(),
      release: () => sandbox.release(),
    });
    return sandbox;
  }

  async list(): Promise<string[]> {
    const host = await this.openHost();
    const prefix = `${this.options.name}/`;
    const marked = markedProcesses().flatMap(({ mark }) =>
      mark.startsWith(prefix) ? [mark.slice(prefix.length)] : [],
    );
    return [
      ...new Set([...this.running.keys(), ...host.cgroups.list(), ...marked, ...this.records.list()]),
    ].filter(isId);
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
    this.records.remove(id);
  }

  prepareVolume(volumeDir: string, slot: number): Promise<void> {
    return this.volumes.prepare(volumeDir, this.userOf(slot));
  }

  volumeUse(volumeDir: string): Promise<{ bytes: number; entries: number }> {
    return volumeUse(volumeDir);
  }

  removeVolume(volumeDir: string): Promise<void> {
    return this.volumes.remove(volumeDir);
  }

  /** Ends every sandbox that is not detached; those live on. Takes away the empty folders that held the cgroups. */
  async close(): Promise<void> {
    const attached = [...this.running.values()].filter((sandbox) => sandbox.logFile === null);
    await Promise.all(attached.map((sandbox) => sandbox.kill()));
    await this.volumes.close(this.volumeDirs.values());
    this.sampler.close();
    (await this.host?.catch(() => null))?.cgroups.close();
  }

  private forget(id: string): void {
    this.running.delete(id);
    this.volumeDirs.delete(id);
    this.sampler.remove(id);
    this.disks.remove(id);
    this.records.remove(id);
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
    this.records.remove(id);
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
