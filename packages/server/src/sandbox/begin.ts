import { existsSync } from 'node:fs';
import type { BlankSpec, ReadOnlyBind, SandboxSpec } from '../domain/ports/sandbox.ts';
import type { Area } from './area.ts';
import type { Cgroups } from './cgroup/cgroups.ts';
import type { Group } from './cgroup/group.ts';
import type { Gate, Gates } from './gates.ts';
import { launch, type Launched, type LaunchRequest } from './launch.ts';
import { launchByHelper } from './launch-by-helper.ts';
import { launchArguments } from './launch-args.ts';
import { logFileIn } from './output-log.ts';
import { endMarked } from './processes.ts';
import type { Records } from './record.ts';
import type { Helper } from './helper.ts';
import { setLimits, type Rlimits } from './rlimits.ts';
import { openEveryAddress } from './transparent.ts';
import { prepareRunDir, type SandboxUser } from './volume.ts';

/** What all sandboxes of a driver share. */
export interface Host {
  area: Area;
  cgroups: Cgroups;
  leaking: number[];
  gates: Gates;
  /** Null where there is none: everything works without it, but slower. */
  helper: Helper | null;
}

export interface Begin {
  host: Host;
  bwrapPath: string;
  prlimitPath: string;
  /** Of the sandbox, on this host. */
  mark: string;
  user: SandboxUser;
  isRoot: boolean;
  /** Makes what it mounts ready, and resolves with the size of the largest file that may be written. Called once, or never. */
  openVolume(): Promise<number>;
  records: Records;
}

/** A sandbox whose namespaces and limits are there, and whose program has not run yet. */
export interface Begun {
  launched: Launched;
  /** Host pid of its init. */
  initPid: number;
  group: Group | null;
  logFile: string | null;
}

/** Makes a sandbox up to the start of its program, which runs after `beforeProgram`. Of one that fails nothing is left. */
export async function beginSandbox<T>(
  spec: SandboxSpec | BlankSpec,
  begin: Begin,
  beforeProgram: (begun: Begun) => T,
): Promise<T> {
  const { host, user, isRoot, records } = begin;
  const isBlank = !('volumeDir' in spec);
  const args = launchArguments(spec, host.area);
  refuseMissing(spec.binds);
  prepareRunDir(spec.runDir, user);
  const group = host.cgroups.hierarchies.length > 0 ? host.cgroups.group(spec.id) : null;
  const logFile = spec.detached ? logFileIn(spec.runDir) : null;
  let launched: Launched | null = null;
  let gate: Gate | null = null;
  let opened: Promise<number> | null = null;
  let made: Promise<Rlimits> | null = null;
  const makeReady = async (): Promise<Rlimits> => {
    group?.limit(spec.limits);
    const { enforced } = host.cgroups;
    opened = begin.openVolume();
    return { limits: spec.limits, enforced, fileBytes: await opened };
  };
  const ready = (): Promise<Rlimits> => (made ??= makeReady());
  try {
    gate = await host.gates.take();
    group?.create();
    const request: LaunchRequest = {
      bwrap: begin.bwrapPath,
      args,
      command: spec.command,
      mark: begin.mark,
      filterFile: host.area.filterFile,
      user,
      leaking: host.leaking,
      gate,
      detached: logFile === null ? null : { logFile, statusFile: records.statusFile(spec.id) },
      isBlank,
    };
    launched = await launchByHelper(host, request, { user, group }, ready);
    const rlimits = await ready();
    if (launched === null) {
      // Whoever was to wait at that one must never get the word that is meant for another.
      gate.close();
      gate = await host.gates.take();
      launched = launch({ ...request, gate });
    }
    // bwrap mounts meanwhile; it waits for `release` before it runs the program.
    const initPid = await launched.initPid;
    const { limited } = launched;
    const limit = async (): Promise<void> => {
      if ((await limited) !== 'ok') await setLimits(initPid, { rlimits, user, group }, begin.prlimitPath);
    };
    await Promise.all([
      limit(),
      !isBlank && spec.transparentEgress ? openEveryAddress(initPid, isRoot) : null,
    ]);
    const result = beforeProgram({ launched, initPid, group, logFile });
    launched.release();
    // The program runs meanwhile.
    if (launched.apart && (await launched.apart) !== 'ok') {
      // Once it has ended, whoever asked for it must have it at once, or what it wrote flows away.
      await Promise.race([group?.part(launched.monitorPid), launched.ended]);
    }
    return result;
  } catch (error) {
    const said = launched?.abort();
    gate?.close();
    // Before its program runs, bwrap's init does not yet die with its monitor.
    try {
      await endMarked(begin.mark);
      await group?.destroy();
      records.remove(spec.id);
    } finally {
      // What the volume has to say is told as it is, before all else.
      await opened;
    }
    throw new Error(`The sandbox did not start: ${(await said)?.trim() || String(error)}`, { cause: error });
  }
}

/** bwrap would say so too, but only after the start was reported. */
function refuseMissing(binds: ReadOnlyBind[]): void {
  for (const { hostPath, path } of binds) {
    if (existsSync(hostPath)) continue;
    throw new Error(`The sandbox did not start: ${hostPath}, to be seen as ${path}, is not there.`);
  }
}
