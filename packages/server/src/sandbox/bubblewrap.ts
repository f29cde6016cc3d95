import { statSync } from 'node:fs';
import { join } from 'node:path';
import { isId } from '../domain/ids.ts';
import type { Log } from '../domain/log.ts';
import type {
  BlankSandbox,
  BlankSpec,
  Isolation,
  RunningSandbox,
  SandboxCapabilities,
  SandboxDriver,
  SandboxSpec,
} from '../domain/ports/sandbox.ts';
import { volumeUse } from './disk/quota.ts';
import { DiskWatch } from './disk/watch.ts';
import { inheritedDescriptors, prepareArea } from './area.ts';
import { beginSandbox, type Begin, type Begun, type Host } from './begin.ts';
import { Blank } from './blank.ts';
import { BlankUsers } from './blank-users.ts';
import { openCgroups } from './cgroup/cgroups.ts';
import { readMounts } from './cgroup/mounts.ts';
import { Gates } from './gates.ts';
import { Helper, missingHelper, PERL } from './helper.ts';
import { closedStreams } from './launch.ts';
import { adoptedMonitor, watchedMonitor } from './monitor.ts';
import { hasOwnRoot, missingForMounting, mountVolume, moveMount } from './mounter.ts';
import { endMarked, isRunning, markedProcesses, processOf, setUp, startTime } from './processes.ts';
import { probe } from './probe.ts';
import { currentBootId, Records } from './record.ts';
import { LocalSandbox, type LocalSandboxParts } from './running.ts';
import { Sampler } from './sampler.ts';
import { transparentPrograms } from './transparent.ts';
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
  perlPath?: string;
  /** False keeps away from cgroups, for hosts where they belong to somebody else. */
  useCgroups?: boolean;
  /** Absent: volumes are folders, and watched. */
  disk?: DiskOptions;
}

/** As root each agent gets a host user of its own, so that even a broken sandbox cannot read another's files. */
const FIRST_UID = 200_000;

/** By then a new agent has its first answer. */
const BLANK_DISK_PAUSE_MS = 500;

/** Beside a running sandbox a blank one gets next to nothing. */
const BLANK_WEIGHT_CPUS = 0.02;

interface Recorded extends Begun {
  spec: SandboxSpec;
  /** Its host user, where that is not the agent's. */
  ownUid: number | null;
}

export class BubblewrapDriver implements SandboxDriver {
  readonly name = 'bubblewrap';
  private readonly options: Required<BubblewrapOptions>;
  private readonly isRoot = process.getuid?.() === 0;
  private readonly starting = new Set<string>();
  private readonly running = new Map<string, LocalSandbox>();
  /** Those that are nobody's yet. */
  private readonly blanks = new Map<string, LocalSandbox>();
  private readonly blankUsers = new BlankUsers();
  private readonly helper: Helper;
  /** By sandbox. */
  private readonly inUse = new Map<string, { volumeDir: string; volume: OpenVolume }>();
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
      perlPath: PERL,
      useCgroups: true,
      disk: { mode: 'watch', imagesDir: join(options.areaDir, 'disks'), bytes: 0 },
      ...options,
    };
    this.disks = new DiskWatch(options.log);
    this.records = new Records(options.areaDir);
    this.sampler = new Sampler(options.log);
    this.helper = new Helper(this.options.perlPath, options.name);
    const move = (from: string, to: string): Promise<void> => moveMount(this.helper, from, to);
    this.volumes = new Volumes(this.options.disk, options.log, { move, pauseMs: BLANK_DISK_PAUSE_MS });
  }

  async isolation(): Promise<Isolation> {
    return 'kernel';
  }

  capabilities(isThorough = false): Promise<SandboxCapabilities> {
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
      disk: () => this.volumes.report(isThorough),
      missingForTransparent: transparentPrograms(this.isRoot),
      missingForPool: missingForMounting(this.isRoot),
    });
  }

  async start(spec: SandboxSpec): Promise<RunningSandbox> {
    this.refuseRunning(spec.id);
    this.starting.add(spec.id);
    try {
      return await this.startOnce(spec, await this.openHost());
    } finally {
      this.starting.delete(spec.id);
    }
  }

  private refuseRunning(id: string): void {
    if (!isId(id)) throw new Error(`"${id}" is no id of a sandbox.`);
    if (this.running.has(id) || this.blanks.has(id) || this.starting.has(id))
      throw new Error(`The sandbox ${id} is running already.`);
  }

  private async startOnce(spec: SandboxSpec, host: Host): Promise<RunningSandbox> {
    const user = this.userOf(spec.slot);
    const { diskBytes } = spec.limits;
    let volume: OpenVolume | null = null;
    const openVolume = async (): Promise<number> => {
      volume = await this.volumes.open(spec.volumeDir, user, diskBytes);
      void this.volumes.expect(diskBytes);
      return volume.fileBytes;
    };
    return beginSandbox(spec, this.begin(spec.id, host, user, openVolume), (begun) => {
      this.record({ ...begun, spec, ownUid: null });
      return this.keep(this.sandboxOf(spec.id, begun), spec.volumeDir, volume!);
    });
  }

  async prepare(spec: BlankSpec): Promise<BlankSandbox> {
    this.refuseRunning(spec.id);
    const missing = missingForMounting(this.isRoot);
    if (missing.length > 0) throw new Error(`No sandbox can be made before its agent: ${missing.join(' ')}`);
    this.starting.add(spec.id);
    try {
      return await this.prepareOnce(spec, await this.openHost());
    } catch (error) {
      this.blankUsers.free(spec.id);
      throw error;
    } finally {
      this.starting.delete(spec.id);
    }
  }

  private async prepareOnce(spec: BlankSpec, host: Host): Promise<BlankSandbox> {
    const ownUid = this.blankUsers.take(spec.id);
    const user = { uid: ownUid, gid: ownUid };
    const { blank, initPid } = await beginSandbox(
      spec,
      this.begin(spec.id, host, user, () => Promise.resolve(spec.limits.diskBytes)),
      (begun) => {
        const { launched, initPid, group } = begun;
        const initSince = startTime(initPid);
        const namespace = statSync(`/proc/${initPid}/ns/mnt`).ino;
        // It is nobody's yet, and must not slow down those that are somebody's.
        group?.setWeight(BLANK_WEIGHT_CPUS);
        const sandbox = this.sandboxOf(spec.id, begun);
        this.blanks.set(spec.id, sandbox);
        const become = async (claim: SandboxSpec): Promise<void> => {
          const owner = this.userOf(claim.slot)!;
          const volume = await this.volumes.open(claim.volumeDir, owner, claim.limits.diskBytes);
          prepareRunDir(claim.runDir, user);
          // Its largest file was set for a volume that has room.
          if (volume.fileBytes !== spec.limits.diskBytes) throw new Error('The volume is full.');
          if (initSince === null || !isRunning(initPid, initSince)) throw new Error('It has ended.');
          const { volumeDir } = claim;
          await mountVolume(this.helper, {
            initPid,
            namespace,
            volumeDir,
            ownerId: owner.uid,
            userId: ownUid,
          });
          group?.setWeight(claim.limits.cpus);
          this.record({ ...begun, spec: claim, ownUid });
          this.blanks.delete(spec.id);
          sandbox.begin();
          this.keep(sandbox, volumeDir, volume);
        };
        const onFailure = (error: unknown): void =>
          this.options.log.warn('A sandbox of the pool could not be used.', {
            sandboxId: spec.id,
            error: String(error),
          });
        const input = launched.input!;
        return { blank: new Blank({ spec, sandbox, input, become, onFailure }), initPid };
      },
    );
    this.helper.expectMounts(this.blanks.size);
    void this.volumes.expect(spec.limits.diskBytes);
    await setUp(() => hasOwnRoot(initPid));
    return blank;
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
    // Whoever was to see to it may have been killed.
    if (isRunning(record.monitorPid, record.monitorSince)) await group?.part(record.monitorPid);
    const volume = await this.volumes.adopt(record.volumeDir, record.limits.diskBytes);
    // Meanwhile somebody else may have taken it up.
    const meanwhile = this.running.get(id);
    if (meanwhile) return meanwhile;
    const init = { pid: record.initPid, since: record.initSince };
    const monitor = adoptedMonitor(
      init,
      { pid: record.monitorPid, since: record.monitorSince },
      this.records.exitCodeReader(id),
    );
    const { volumeDir, logFile, ownUid } = record;
    if (ownUid !== null) this.blankUsers.know(id, ownUid);
    const tree = namespaceTree(init, record.monitorPid, group);
    const sandbox = this.local({ id, monitor, streams: closedStreams(), logFile, tree });
    return this.keep(sandbox, volumeDir, volume);
  }

  private begin(id: string, host: Host, user: SandboxUser, openVolume: Begin['openVolume']): Begin {
    const { bwrapPath, prlimitPath } = this.options;
    const { isRoot, records } = this;
    return { host, bwrapPath, prlimitPath, mark: this.markOf(id), user, isRoot, openVolume, records };
  }

  /** Written before the program runs, so that a service that dies right now leaves what the next one needs. */
  private record({ spec, launched, initPid, group, logFile, ownUid }: Recorded): void {
    if (logFile === null) return;
    const { monitorPid } = launched;
    const [initSince, monitorSince] = [startTime(initPid), startTime(monitorPid)];
    if (initSince === null || monitorSince === null) throw new Error('bwrap has ended.');
    this.records.write({
      id: spec.id,
      bootId: currentBootId(),
      ...{ initPid, initSince, monitorPid, monitorSince },
      volumeDir: spec.volumeDir,
      logFile,
      limits: spec.limits,
      ownUid,
      hasGroup: group !== null,
    });
  }

  private sandboxOf(id: string, { launched, initPid, group, logFile }: Begun): LocalSandbox {
    const { streams } = launched;
    const { monitorPid, ended: told } = launched;
    const init = processOf(initPid);
    const monitor = watchedMonitor({
      told,
      init,
      monitor: processOf(monitorPid),
      exitCode: () => this.records.exitCode(id),
      isHeld: logFile === null,
    });
    return this.local({ id, monitor, streams, logFile, tree: namespaceTree(init, monitorPid, group) });
  }

  private local(parts: Omit<LocalSandboxParts, 'onEnd' | 'isDiskFull'>): LocalSandbox {
    const { id } = parts;
    const isDiskFull = (): boolean => this.inUse.get(id)?.volume.isFull() ?? false;
    return new LocalSandbox({ ...parts, isDiskFull, onEnd: () => this.forget(id) });
  }

  private keep(sandbox: LocalSandbox, volumeDir: string, volume: OpenVolume): LocalSandbox {
    const { id } = sandbox;
    this.running.set(id, sandbox);
    this.inUse.set(id, { volumeDir, volume });
    this.sampler.add(sandbox);
    this.disks.add({
      id,
      volumeDir,
      quota: volume.quota,
      pace: volume.pace(),
      hostDir: volume.hostDir,
      isBroken: () => volume.isBroken(),
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
      ...new Set([
        ...[...this.running.keys(), ...this.blanks.keys()],
        ...[...host.cgroups.list(), ...marked, ...this.records.list()],
      ]),
    ].filter(isId);
  }

  async remove(id: string): Promise<void> {
    if (!isId(id)) return;
    const running = this.running.get(id) ?? this.blanks.get(id);
    // What could not be ended when it should have may have ended since.
    if (running && (await running.kill().catch(() => null))) return;
    const host = await this.openHost();
    await endMarked(this.markOf(id));
    await host.cgroups.group(id).destroy();
    this.forget(id);
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
    await Promise.all([...attached, ...this.blanks.values()].map((sandbox) => sandbox.kill()));
    this.disks.close();
    this.helper.close();
    await this.volumes.close([...this.inUse.values()].map(({ volumeDir }) => volumeDir));
    this.sampler.close();
    const host = await this.host?.catch(() => null);
    host?.gates.close();
    host?.cgroups.close();
  }

  private forget(id: string): void {
    this.running.delete(id);
    if (this.blanks.delete(id)) this.helper.expectMounts(this.blanks.size);
    this.inUse.delete(id);
    this.blankUsers.free(id);
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
    const hasHelper = missingHelper(this.options.perlPath) === null;
    if (hasHelper) this.helper.begin();
    const found = this.options.useCgroups ? readMounts() : { mounts: [], selfCgroup: '' };
    return {
      area: prepareArea(this.options.areaDir),
      cgroups: await openCgroups({ ...found, name: `berth-${this.options.name}`, isRoot: this.isRoot }),
      leaking: inheritedDescriptors(),
      gates: new Gates(this.options.areaDir),
      helper: hasHelper ? this.helper : null,
    };
  }

  private markOf(id: string): string {
    return `${this.options.name}/${id}`;
  }
}

export function createBubblewrap(options: BubblewrapOptions): BubblewrapDriver {
  return new BubblewrapDriver(options);
}
