import type { LimitGrade, SandboxCapabilities, SandboxDriver } from '../domain/ports/sandbox.ts';
import type { Controller } from './cgroup/hierarchy.ts';
import { cgroupNotes, explainFailure, missingPrograms } from './diagnose.ts';
import { runTrial } from './trial.ts';

export interface ProbeRequest {
  driver: Pick<SandboxDriver, 'start' | 'prepare' | 'removeVolume'>;
  programs: { path: string; debianPackage: string }[];
  areaDir: string;
  isRoot: boolean;
  /** What cgroups give; asked after the trial, which opens them. */
  cgroups: () => Promise<{ enforced: readonly Controller[]; canFreeze: boolean }>;
  /** Whether the kernel holds volumes to their size, and what there is to say of it. */
  disk: () => Promise<{ isHard: boolean; problems: string[]; notes: string[] }>;
  /** What is missing for transparent egress; when nothing is, it is tried. */
  missingForTransparent: string[];
  /** What is missing for blank sandboxes; when nothing is, one is tried. */
  missingForPool: string[];
}

/** Starts a real sandbox with a trivial program and reports what this host gives. Never throws. */
export async function probe(request: ProbeRequest): Promise<SandboxCapabilities> {
  const missing = missingPrograms(request.programs);
  const disk = await request.disk();
  const transparent = request.missingForTransparent.length === 0;
  const known = [...missing, ...disk.problems];
  let problems = known.length > 0 ? known : await trial(request, transparent);
  // The host may refuse only that.
  const isRefused = transparent && known.length === 0 && problems.length > 0;
  if (isRefused) problems = await trial(request, false);
  const transparentEgress = transparent && !isRefused && problems.length === 0;
  const warmPool =
    problems.length === 0 && request.missingForPool.length === 0 && (await canPrepare(request));
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
      disk: disk.isHard ? 'hard' : 'watched',
      openFiles: 'per-process',
      output: 'watched',
    },
    accounting: enforced.includes('memory'),
    freeze: canFreeze,
    detached: true,
    ownUser: request.isRoot,
    transparentEgress,
    warmPool,
    notes: [
      request.isRoot
        ? 'Each agent runs under a host user of its own.'
        : 'All agents run under the user of the service, kept apart by namespaces alone; as root each gets its own.',
      ...disk.notes,
      ...cgroupNotes(enforced, request.isRoot),
      ...(warmPool ? [] : [poolNote(request.missingForPool)]),
      ...(transparentEgress ? [] : [transparentNote(request.missingForTransparent)]),
    ],
  };
}

function poolNote(missing: string[]): string {
  const why =
    missing.length > 0
      ? missing.join(' ')
      : 'The file system of the data directory, or this host, does not let volumes be mounted late.';
  return `No sandboxes are kept ready for agents to come (warm pool). ${why}`;
}

async function canPrepare({ driver, areaDir, isRoot }: ProbeRequest): Promise<boolean> {
  // It waits for its launch data, and then shows that the volume is there.
  const command = ['/bin/sh', '-c', 'read -r line && : > /workspace/trial && : > /home/agent/trial'];
  const trial = runTrial({ driver, areaDir, isRoot, command, isBlank: true });
  return trial.then(
    () => true,
    () => false,
  );
}

function transparentNote(missing: string[]): string {
  const why = missing.length > 0 ? missing.join(' ') : 'This host does not let it be set up.';
  return `Programs that know no proxy cannot be led to it (transparent egress). ${why}`;
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

async function trial(
  { driver, areaDir, isRoot }: ProbeRequest,
  transparentEgress: boolean,
): Promise<string[]> {
  try {
    await runTrial({ driver, areaDir, isRoot, command: ['/bin/true'], transparentEgress });
    return [];
  } catch (error) {
    return explainFailure(error instanceof Error ? error.message : String(error));
  }
}
