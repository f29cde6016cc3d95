import type { Readable, Writable } from 'node:stream';

/** What a driver really enforces here, found by a probe and never assumed. */
export interface SandboxCapabilities {
  driver: string;
  /** `kernel`: namespaces, no capabilities, seccomp, shared kernel. `none`: a plain process. */
  isolation: 'none' | 'kernel' | 'user-kernel' | 'vm';
  usable: boolean;
  /** Why not usable, and the exact remedy; empty when usable. */
  problems: string[];
  limits: { memory: LimitGrade; cpu: LimitGrade; pids: LimitGrade; disk: LimitGrade };
  /** Whether the CPU time and memory of a sandbox can be counted. */
  accounting: boolean;
  notes: string[];
}

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
}

export type SandboxExitReason = 'exit' | 'killed' | 'oom' | 'disk_full';

export interface SandboxExit {
  reason: SandboxExitReason;
  code: number | null;
  signal: string | null;
}

export interface SandboxStats {
  cpuMicros: number;
  memoryBytes: number;
  pids: number;
}

export interface RunningSandbox {
  id: string;
  stdin: Writable;
  stdout: Readable;
  stderr: Readable;
  /** Resolves once the whole process tree is gone and nothing of it is left on the host but the volume. */
  exited: Promise<SandboxExit>;
  stats(): Promise<SandboxStats>;
  /** Ends the whole tree, also processes that ignore signals or left their session. Resolves with `exited`. */
  kill(): Promise<SandboxExit>;
}

/** Isolated places to run in, one per agent, behind one port. */
export interface SandboxDriver {
  readonly name: string;
  capabilities(): Promise<SandboxCapabilities>;
  start(spec: SandboxSpec): Promise<RunningSandbox>;
  /** The ids of the sandboxes of this installation that exist on this host, whoever started them. */
  list(): Promise<string[]>;
  /** Ends and removes what is left of a sandbox that an earlier process of the service started. Idempotent. */
  remove(id: string): Promise<void>;
  /** Deletes an agent's volume, whose files belong to the sandbox's user. Idempotent. */
  removeVolume(volumeDir: string): Promise<void>;
}
