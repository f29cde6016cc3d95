import type { HarnessConnection } from '../domain/ports/harness.ts';
import type { SandboxExit, SandboxStats } from '../domain/ports/sandbox.ts';
import type { StartedSandbox } from './sandbox-start.ts';

/** A running sandbox with the turns that are in it. */
export class KeptSandbox {
  readonly id: string;
  readonly agentId: string;
  readonly fingerprint: string;
  readonly idleMs: number;
  readonly connection: HarnessConnection;
  /** Resolves once nothing of it is left but the volume. */
  readonly gone: Promise<SandboxExit>;
  /** Conversations whose turns are in it. */
  readonly turns = new Set<string>();
  /** Why the service ended it; null while it runs, and when it ended by itself. */
  endedBy: string | null = null;
  isGone = false;
  readonly startedAt = new Date();
  lastUsedMs = Date.now();
  readonly #started: StartedSandbox;

  constructor(started: StartedSandbox, place: { agentId: string; fingerprint: string; idleMs: number }) {
    this.#started = started;
    this.id = started.id;
    this.agentId = place.agentId;
    this.fingerprint = place.fingerprint;
    this.idleMs = place.idleMs;
    this.connection = started.connection;
    this.gone = started.sandbox.exited.then(async (exit) => {
      this.isGone = true;
      started.connection.close();
      await started.cleanUp('stopped', this.endedBy ?? `It ended by itself (${exit.reason}).`);
      return exit;
    });
  }

  /** Null when it ends right now. */
  stats(): Promise<SandboxStats | null> {
    return this.#started.sandbox.stats().catch(() => null);
  }

  get canTakeTurns(): boolean {
    return !this.isGone && this.endedBy === null;
  }

  /** Ends the whole process tree. Resolves when it is gone. */
  async end(reason: string): Promise<void> {
    this.endedBy ??= reason;
    await this.#started.sandbox.kill();
    await this.gone;
  }
}
