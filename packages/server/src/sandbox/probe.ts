import { randomUUID } from 'node:crypto';
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { LimitGrade, SandboxCapabilities, SandboxDriver } from '../domain/ports/sandbox.ts';
import type { Controller } from './cgroup/hierarchy.ts';
import { cgroupNotes, explainFailure, missingPrograms } from './diagnose.ts';

const MIB = 1024 * 1024;
const TRIAL_TIMEOUT_MS = 20_000;

export interface ProbeRequest {
  driver: Pick<SandboxDriver, 'start' | 'removeVolume'>;
  programs: { path: string; debianPackage: string }[];
  areaDir: string;
  isRoot: boolean;
  /** What cgroups give; asked after the trial, which opens them. */
  cgroups: () => Promise<{ enforced: readonly Controller[]; canFreeze: boolean }>;
  transparentEgress: boolean;
}

/** Starts a real sandbox with a trivial program and reports what this host gives. Never throws. */
export async function probe(request: ProbeRequest): Promise<SandboxCapabilities> {
  const missing = missingPrograms(request.programs);
  const problems = missing.length > 0 ? missing : await trial(request);
  const none = { enforced: [] as readonly Controller[], canFreeze: false };
  const { enforced, canFreeze } = await request.cgroups().catch(() => none);
  const grade = (controller: Controller, otherwise: LimitGrade): LimitGrade =>
    enforced.includes(controller) ? 'hard' : otherwise;
  return {
    driver: 'bubblewrap',
    isolation: 'kernel',
    usable: problems.length === 0,
    problems,
    limits: {
      memory: grade('memory', 'per-process'),
      cpu: grade('cpu', 'none'),
      pids: grade('pids', 'per-process'),
      disk: 'watched',
      openFiles: 'per-process',
      output: 'watched',
    },
    accounting: enforced.includes('memory'),
    freeze: canFreeze,
    detached: true,
    ownUser: request.isRoot,
    transparentEgress: request.transparentEgress,
    notes: [
      request.isRoot
        ? 'Each agent runs under a host user of its own.'
        : 'All agents run under the user of the service, kept apart by namespaces alone; as root each gets its own.',
      ...cgroupNotes(enforced, request.isRoot),
    ],
  };
}

/** The lines of `berth doctor` about sandboxes: whether they work, which limits hold, what to do. */
export function describe(capabilities: SandboxCapabilities): string[] {
  const { limits } = capabilities;
  return [
    `sandbox: ${capabilities.driver} ${capabilities.usable ? 'works' : 'does not work'}`,
    ...capabilities.problems.map((problem) => `problem: ${problem}`),
    `limits: memory ${limits.memory}, cpu ${limits.cpu}, processes ${limits.pids}, disk ${limits.disk}`,
    ...capabilities.notes.map((note) => `note: ${note}`),
  ];
}

async function trial({ driver, areaDir, isRoot }: ProbeRequest): Promise<string[]> {
  const id = randomUUID();
  const folder = join(areaDir, `trial-${id}`);
  const volumeDir = join(folder, 'volume');
  try {
    mkdirSync(folder, { recursive: true, mode: isRoot ? 0o711 : 0o700 });
    const sandbox = await driver.start({
      id,
      slot: 0,
      volumeDir,
      runDir: join(folder, 'run'),
      binds: [],
      command: ['/bin/true'],
      env: {},
      limits: { memoryBytes: 128 * MIB, cpus: 1, pids: 32, diskBytes: 16 * MIB, openFiles: 64 },
      detached: false,
      transparentEgress: false,
    });
    const timer = setTimeout(() => void sandbox.kill(), TRIAL_TIMEOUT_MS);
    let said = '';
    sandbox.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()));
    const exit = await sandbox.exited;
    clearTimeout(timer);
    return exit.reason === 'exit' && exit.code === 0
      ? []
      : explainFailure(said || `it ended as ${exit.reason}`);
  } catch (error) {
    return explainFailure(error instanceof Error ? error.message : String(error));
  } finally {
    await driver.removeVolume(volumeDir).catch(() => null);
    removeQuietly(folder);
  }
}

/** Where the folder could not be made, there is nothing to remove, and the failure above says all. */
function removeQuietly(folder: string): void {
  try {
    rmSync(folder, { recursive: true, force: true });
  } catch {
    // See above.
  }
}
