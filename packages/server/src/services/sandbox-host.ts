import type { SandboxStats } from '../domain/ports/sandbox.ts';
import type { SandboxControl } from '../domain/ports/sandbox-control.ts';

/** `frozen` is running, with its processes stopped where they are; any use thaws it. */
export type HostedState = 'stopped' | 'starting' | 'running' | 'frozen' | 'stopping' | 'failed';

export interface HostedSandbox {
  agentId: string;
  state: HostedState;
  /** Null when there is none. */
  sandboxId: string | null;
  since: Date | null;
  /** Conversations whose turns are in it now. */
  runningTurns: number;
  /** Null unless it runs here. */
  stats: SandboxStats | null;
  /** Why it ended or failed, for people. */
  reason: string | null;
}

/** A line of a log. The lines of a sandbox that the next process of the service takes up are numbered anew, in another epoch. */
export interface LogPosition {
  sandboxId: string;
  /** An id. Null in the positions of releases that gave none: it is none of any log. */
  epoch: string | null;
  /** Grows with each line of an epoch. */
  number: number;
}

export interface SandboxLogLine extends LogPosition {
  at: Date;
  text: string;
}

/**
 * The sandboxes of this host, as the surface sees them; the runtime implements it. Who may ask is checked before. Calls
 * that need a sandbox reject with DomainError: `conflict` without a deployment, `unavailable`, `too_many_sandboxes`.
 */
export interface SandboxHost {
  state(agentId: string): Promise<HostedSandbox>;
  /** Resolves when it runs. Idempotent. */
  start(agentId: string): Promise<HostedSandbox>;
  /**
   * Ends it when its turns have ended, gracefully; `kill` at once. Turns that are in it are cancelled by neither: the one
   * waits for them, the other has them tried again. Resolves when it is gone. Idempotent.
   */
  stop(agentId: string): Promise<HostedSandbox>;
  restart(agentId: string): Promise<HostedSandbox>;
  kill(agentId: string): Promise<HostedSandbox>;
  /**
   * Starts or thaws it when needed. A command that runs and a connection that is open count as use: it is neither frozen
   * nor stopped meanwhile. What runs with other settings waits for commands to end, and cuts connections.
   */
  control(agentId: string): Promise<SandboxControl>;
  /**
   * Does `work` while nothing of the agent runs: its sandbox is frozen, or ended (`conflict` while a turn is under way in
   * it). No turn and no command begins meanwhile; they wait.
   */
  quiesce<T>(agentId: string, how: 'frozen' | 'stopped', work: () => Promise<T>): Promise<T>;
  /**
   * The lines that are kept (bounded), oldest first, after the given one: all of them after one of another sandbox or epoch.
   * `follow` stays open for what comes.
   */
  logs(
    agentId: string,
    options: { after: LogPosition | null; follow: boolean; signal: AbortSignal },
  ): AsyncIterable<SandboxLogLine>;
}
