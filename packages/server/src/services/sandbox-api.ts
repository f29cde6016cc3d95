import type { Readable } from 'node:stream';
import type { Principal } from '../domain/nouns.ts';
import type { Page, PageQuery } from '../domain/paging.ts';
import type { OpenVolumeFile, VolumeEntry, VolumePath } from '../domain/ports/volume.ts';
import type { Preconditions } from '../domain/preconditions.ts';
import type { SandboxEnd } from '../domain/ports/sandbox-control.ts';
import type { LogPosition, SandboxLogLine } from './sandbox-host.ts';

/** The part of `Services` (api.ts) that is about sandboxes, their files, terminals and snapshots. */

export type SandboxState = 'stopped' | 'starting' | 'running' | 'stopping' | 'failed';

/** What is known of an agent's sandbox: of the one that there is, or of the last one. */
export interface Sandbox {
  agentId: string;
  state: SandboxState;
  /** Running, with its processes stopped where they are until it is used. */
  isFrozen: boolean;
  /** Null when there was none so far; so are `nodeId` and `since`. */
  sandboxId: string | null;
  nodeId: string | null;
  /** Since when it is in this state. */
  since: Date | null;
  /** Conversations with a turn in it. */
  runningTurns: number;
  /** Null unless it is on this node. */
  use: { cpuMicros: number; memoryBytes: number; processes: number } | null;
  /** What the agent used since this sandbox was started, models included, in micro-dollars. */
  costMicros: bigint;
  /** Why it ended, in words. */
  reason: string | null;
}

export interface SandboxesService {
  list(p: Principal, query: PageQuery): Promise<Page<Sandbox>>;
  get(p: Principal, agentId: string): Promise<Sandbox>;
  /** Resolves when it runs; `kill` ends it at once, `stop` and `restart` when its turns have ended. Idempotent. */
  start(p: Principal, agentId: string): Promise<Sandbox>;
  stop(p: Principal, agentId: string): Promise<Sandbox>;
  restart(p: Principal, agentId: string): Promise<Sandbox>;
  kill(p: Principal, agentId: string): Promise<Sandbox>;
}

/**
 * The files of an agent, from outside: its sandbox need not run. What a path means is checked before. Changes throw
 * `precondition_failed`: before an upload is read, and once more in the moment of the change.
 */
export interface SandboxFilesService {
  stat(p: Principal, agentId: string, path: VolumePath): Promise<VolumeEntry>;
  open(p: Principal, agentId: string, path: VolumePath): Promise<OpenVolumeFile>;
  /** By name; `list` as in every list. */
  list(p: Principal, agentId: string, path: VolumePath, query: PageQuery): Promise<Page<VolumeEntry>>;
  archive(p: Principal, agentId: string, path: VolumePath): Promise<Readable>;
  write(
    p: Principal,
    agentId: string,
    path: VolumePath,
    upload: Upload,
    options: { mode: number | null; preconditions: Preconditions },
  ): Promise<{ entry: VolumeEntry; created: boolean }>;
  /** False: it was there. */
  makeFolder(p: Principal, agentId: string, path: VolumePath, preconditions: Preconditions): Promise<boolean>;
  unpack(
    p: Principal,
    agentId: string,
    path: VolumePath,
    upload: Upload,
    preconditions: Preconditions,
  ): Promise<{ entries: number; bytes: number }>;
  remove(
    p: Principal,
    agentId: string,
    path: VolumePath,
    options: { recursive: boolean; preconditions: Preconditions },
  ): Promise<void>;
}

export interface ExecInput {
  /** argv. */
  command: string[];
  stdin?: Buffer;
  env?: Record<string, string>;
  /** `/workspace` when absent. */
  cwd?: string;
  /** After it the command is killed. */
  timeoutMs: number;
  /** Called when it runs. */
  onStart?: () => void;
}

/** Told of output as it comes; the command waits until it resolves. */
export type ExecOutput = (stream: 'stdout' | 'stderr', bytes: Buffer) => Promise<void>;

export interface ExecEnd {
  /** Null when a signal ended it; both are null when the sandbox ended with it. */
  exitCode: number | null;
  signal: string | null;
  timedOut: boolean;
  /** Why the sandbox ended with it; null when it did not, or nobody knows. */
  sandboxEnd: SandboxEnd | null;
  durationMs: number;
}

export interface SandboxExecService {
  /** Starts the sandbox when needed. Resolves when the command has ended; `signal` kills it. */
  exec(
    p: Principal,
    agentId: string,
    input: ExecInput,
    output: ExecOutput,
    signal: AbortSignal,
  ): Promise<ExecEnd>;
  /** What the sandbox's programs and the service had to say; with `follow` until `signal`, or the key is revoked. */
  logs(
    p: Principal,
    agentId: string,
    options: { after: LogPosition | null; follow: boolean; signal: AbortSignal },
  ): AsyncIterable<SandboxLogLine>;
}

/** `taken`: another connection has it now. `revoked`: its key or agent is no more. */
export type TerminalEnd =
  | { kind: 'exit'; exitCode: number | null; signal: string | null }
  | { kind: 'taken' }
  | { kind: 'revoked' }
  | { kind: 'closing' };

/** A client of a terminal. */
export interface TerminalViewer {
  write(bytes: Buffer): void;
  /** Nothing comes any more. */
  ended(end: TerminalEnd): void;
}

export interface TerminalView {
  readonly id: string;
  /** Output follows from `offset` on; what came before it and after `after` is lost. */
  attach(viewer: TerminalViewer, after: number): { offset: number; lostBytes: number };
  /** The connection is gone; the terminal waits for the next one for a while. */
  detach(viewer: TerminalViewer): void;
  /** False: wait for `onDrain` before there is more. */
  input(bytes: Buffer): boolean;
  onDrain(listener: () => void): void;
  /** Of a viewer that takes no more for now, or takes more again. */
  hold(viewer: TerminalViewer, isHeld: boolean): void;
  resize(columns: number, rows: number): void;
  signal(name: string): void;
}

export interface TerminalsService {
  /** Starts the sandbox when needed. */
  open(
    p: Principal,
    agentId: string,
    options: { columns: number; rows: number; term: string },
  ): Promise<TerminalView>;
  /** One that this key opened and that is still there. */
  find(p: Principal, agentId: string, terminalId: string): Promise<TerminalView>;
}

export interface Snapshot {
  id: string;
  agentId: string;
  name: string;
  /** Of all files, as an archive. */
  bytes: number;
  /** What it took on the disk beyond what was there already. */
  storedBytes: number;
  createdAt: Date;
}

/** The files of an agent at a moment, `/workspace` and `/home/agent`. */
export interface SnapshotsService {
  list(p: Principal, agentId: string, query: PageQuery): Promise<Page<Snapshot>>;
  get(p: Principal, agentId: string, id: string): Promise<Snapshot>;
  /** A sandbox that runs is frozen meanwhile. */
  create(p: Principal, agentId: string, input: { name?: string }): Promise<Snapshot>;
  /** Replaces the files of the agent, or of another one. A sandbox that runs is stopped. */
  restore(p: Principal, agentId: string, id: string, input: { toAgentId?: string }): Promise<Snapshot>;
  remove(p: Principal, agentId: string, id: string): Promise<void>;
}

export interface Upload {
  /** As declared; null when it is not. */
  bytes: number | null;
  content: AsyncIterable<Buffer>;
}
