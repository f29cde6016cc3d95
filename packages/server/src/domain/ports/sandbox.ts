import type { Readable, Writable } from 'node:stream';

/** What a driver really enforces here, found by a probe and never assumed. */
export interface SandboxCapabilities {
  driver: string;
  /**
   * `none`: a plain process. `kernel`: namespaces, no capabilities, seccomp, the host's kernel. `user-kernel`: a kernel
   * of its own in user space (gVisor). `vm`: a kernel of its own on virtual hardware.
   */
  isolation: Isolation;
  usable: boolean;
  /** Why not usable, and the exact remedy; empty when usable. */
  problems: string[];
  limits: Record<LimitName, LimitGrade>;
  /** Whether the CPU time and memory of a sandbox can be counted over its whole tree. */
  accounting: boolean;
  /** Whether `freeze` and `thaw` work; otherwise they reject. */
  freeze: boolean;
  /** Whether a sandbox can outlive the service (`SandboxSpec.detached`) and be taken up by the next one (`adopt`). */
  detached: boolean;
  /** Whether each agent runs under a host user of its own. */
  ownUser: boolean;
  /** Whether `SandboxSpec.transparentEgress` can be given: every address then leads to the sandbox itself. */
  transparentEgress: boolean;
  /** Whether sandboxes can be made before it is known whose they will be (`prepare`). */
  warmPool: boolean;
  notes: string[];
}

/** From weak to strong. */
export const isolationGrades = ['none', 'kernel', 'user-kernel', 'vm'] as const;
export type Isolation = (typeof isolationGrades)[number];

export type LimitName = 'memory' | 'cpu' | 'pids' | 'disk' | 'openFiles' | 'output';

/** `hard`: enforced by the kernel over the whole tree. `per-process`: an rlimit. `watched`: measured and ended after. */
export type LimitGrade = 'hard' | 'per-process' | 'watched' | 'none';

export interface SandboxLimits {
  memoryBytes: number;
  /** Cores, e.g. 1.5. */
  cpus: number;
  pids: number;
  /** Workspace and home together. */
  diskBytes: number;
  openFiles: number;
}

export interface ReadOnlyBind {
  hostPath: string;
  /** An absolute path inside. */
  path: string;
}

export interface SandboxSpec {
  /** A UUID. It names everything that the driver makes on the host, so that `list` finds it after a crash. */
  id: string;
  /** Agent.slot: drivers that can give each agent a host uid of its own derive it from this. */
  slot: number;
  /** Host directory of the agent; the driver makes `workspace/` and `home/` in it, owned by the sandbox's user. */
  volumeDir: string;
  /** Host directory for sockets and the deployment's archive, seen inside at /run/berth, not writable from inside. */
  runDir: string;
  binds: ReadOnlyBind[];
  /** argv of the first process; starts in /workspace. */
  command: string[];
  /** The whole environment inside; nothing is inherited. Values never appear in any command line. */
  env: Record<string, string>;
  limits: SandboxLimits;
  /**
   * True: lives on when the service dies and can be adopted by the next one. Its standard input is empty, and what the
   * first process writes goes to `RunningSandbox.logFile`. False: dies with the service; its three streams are given.
   */
  detached: boolean;
  /** True: every IPv4 address and every port leads to the sandbox's own loopback device. See `capabilities`. */
  transparentEgress: boolean;
}

/** A sandbox that is made before it is known whose it will be: it has no volume, and no environment of an agent. */
export interface BlankSpec {
  id: string;
  runDir: string;
  binds: ReadOnlyBind[];
  /**
   * argv of the first process. It waits for the launch data on its standard input (`launchData`), and then is what
   * `SandboxSpec.command` says. It ends when its input does before that.
   */
  command: string[];
  env: Record<string, string>;
  limits: SandboxLimits;
  detached: boolean;
}

export interface BlankSandbox {
  readonly id: string;
  /** Resolves when nothing of it is left on the host, unless it was claimed before. */
  readonly ended: Promise<void>;
  /**
   * Makes it what `start` would have made of `spec`, whose id, run directory, binds, limits and `detached` must be those it
   * was made with. Once only, whatever comes of it. Null: it cannot be that, and nothing of it is left.
   */
  claim(spec: SandboxSpec): Promise<RunningSandbox | null>;
  /** Ends it. Resolves with `ended`. */
  discard(): Promise<void>;
}

export type SandboxExitReason = 'exit' | 'killed' | 'oom' | 'disk_full';

export interface SandboxExit {
  reason: SandboxExitReason;
  code: number | null;
  signal: string | null;
}

export interface SandboxStats {
  /** Since the start. */
  cpuMicros: number;
  /** Now, without page cache. */
  memoryBytes: number;
  /**
   * Memory over time, sampled about once a second, since this process of the service started or adopted the sandbox.
   * A frozen sandbox keeps its memory, so it goes on counting.
   */
  memoryByteSeconds: number;
  /** Processes and threads. */
  pids: number;
}

export interface RunningSandbox {
  id: string;
  /** Of a detached sandbox these three are closed from the beginning. */
  stdin: Writable;
  stdout: Readable;
  stderr: Readable;
  /**
   * Of a detached sandbox: the host file that gets both outputs of its first process. It is cut at its head when it
   * grows beyond about a mebibyte, and goes with the sandbox's run directory. Null otherwise.
   */
  logFile: string | null;
  /** Resolves once the whole process tree is gone and nothing of it is left on the host but the volume. */
  exited: Promise<SandboxExit>;
  stats(): Promise<SandboxStats>;
  /** Processes and threads, where that takes one short look (a cgroup); null where it takes `stats`. */
  processCount(): number | null;
  /** Whether it is frozen, also by an earlier process of the service. */
  readonly isFrozen: boolean;
  /** Stops every process where it is; memory and files stay. Resolves when nothing runs any more. Idempotent. */
  freeze(): Promise<void>;
  thaw(): Promise<void>;
  /** Asks every process to end (SIGTERM), and ends what is left after `graceMs`. Thaws first. Resolves with `exited`. */
  stop(graceMs: number): Promise<SandboxExit>;
  /** Ends the whole tree, also processes that ignore signals or left their session. Resolves with `exited`. */
  kill(): Promise<SandboxExit>;
}

/** Isolated places to run in, one per agent, behind one port. */
export interface SandboxDriver {
  readonly name: string;
  /** The isolation that every start gives. Where it depends on the host, it is proven by a trial, and rejects when that fails. */
  isolation(): Promise<Isolation>;
  /** `isThorough`: what takes long to try is tried as well, of which else only what is expected is told (disks of their own). */
  capabilities(isThorough?: boolean): Promise<SandboxCapabilities>;
  start(spec: SandboxSpec): Promise<RunningSandbox>;
  /** Makes a blank sandbox; rejects where `capabilities` has no `warmPool`. It ends with the service, detached or not. */
  prepare(spec: BlankSpec): Promise<BlankSandbox>;
  /**
   * Takes up a detached sandbox that an earlier process of the service started; null when it does not run (any more),
   * was not detached, or cannot be told for sure. Limits, counting and `exited` go on as if it had been started here; the
   * exit code may be unknown. What is not adopted is to be removed.
   */
  adopt(id: string): Promise<RunningSandbox | null>;
  /** The ids of the sandboxes of this installation that exist on this host, whoever started them. */
  list(): Promise<string[]>;
  /** Ends and removes what is left of a sandbox that an earlier process of the service started. Idempotent. */
  remove(id: string): Promise<void>;
  /** Makes an agent's volume as `start` would, so that files can be put there before the first start. Idempotent. */
  prepareVolume(volumeDir: string, slot: number): Promise<void>;
  /** What a prepared volume takes on the disk now, in bytes and in files, folders and links. */
  volumeUse(volumeDir: string): Promise<{ bytes: number; entries: number }>;
  /** Deletes an agent's volume, whose files belong to the sandbox's user. Idempotent. */
  removeVolume(volumeDir: string): Promise<void>;
  /** Ends every sandbox that is not detached; those live on. */
  close(): Promise<void>;
}
