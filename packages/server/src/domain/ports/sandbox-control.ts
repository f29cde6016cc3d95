import type { Duplex, Readable, Writable } from 'node:stream';

export interface SandboxCommand {
  /** argv; the program is searched on the PATH of the sandbox. */
  command: string[];
  /** Beside the agent's own environment, over which it wins. */
  env?: Record<string, string>;
  /** A path inside; `/workspace` when absent. */
  cwd?: string;
  /** Given: the command gets a pseudo-terminal of this size, its output is one stream, and `stderr` stays empty. */
  terminal?: { columns: number; rows: number };
}

export interface SandboxProcessExit {
  /** Null when a signal ended it, and when its end is not known: then both are null. */
  code: number | null;
  signal: string | null;
  /** Why its sandbox ended, when its end is not known since that has. */
  sandboxEnd?: SandboxEnd;
}

export const sandboxEndCodes = ['sandbox_oom', 'sandbox_disk_full', 'sandbox_ended'] as const;

export interface SandboxEnd {
  code: (typeof sandboxEndCodes)[number];
  /** A sentence for people. */
  error: string;
}

/**
 * A command that runs in a sandbox. Streams hold back: what nobody reads is not produced. The command leads a process
 * group, which ends when the streams are destroyed, when the service ends, and with the sandbox.
 */
export interface SandboxProcess {
  /** Ending it ends the command's input; with a terminal it types ^D. */
  stdin: Writable;
  /** Raw bytes. Ends when the last process that holds it has closed it, or shortly after the command's exit. */
  stdout: Readable;
  stderr: Readable;
  /** Resolves after the last byte of both outputs was handed over. Never rejects. */
  exited: Promise<SandboxProcessExit>;
  /** Without a terminal it does nothing. */
  resize(columns: number, rows: number): void;
  /** Sends a signal (`SIGTERM` when absent) to the process group. */
  kill(signal?: string): void;
}

/** A server inside. */
export interface SandboxTarget {
  /** On loopback. */
  port: number;
  /** argv that starts it when nothing listens there; it gets the port as `PORT`. */
  command: string[] | null;
}

/** Why a command could not be started, or nothing be reached. `message` is safe to show. */
export class SandboxControlError extends Error {
  /** `not_found`: no such program. `limit`: too many at once. `failed`: everything else. `gone`: the sandbox ended. */
  readonly code: 'not_found' | 'limit' | 'failed' | 'gone';
  /** With `gone`: nothing inside was told of it, so that it can be tried again. Else it may have begun. */
  readonly isUntold: boolean;

  constructor(code: SandboxControlError['code'], message: string, isUntold = false) {
    super(message);
    this.isUntold = isUntold;
    this.name = 'SandboxControlError';
    this.code = code;
  }
}

/** The control channel of one running sandbox (docs/design/control-channel.md). What comes through it is hostile. */
export interface SandboxControl {
  /** Resolves once the command runs; rejects with SandboxControlError. */
  exec(command: SandboxCommand): Promise<SandboxProcess>;
  /**
   * A connection to a port of the sandbox's own loopback. Raw bytes; it holds back like a command's streams, ends when the
   * server has ended it, and fails when it was broken off. Rejects with SandboxControlError.
   */
  connect(target: SandboxTarget): Promise<Duplex>;
}
