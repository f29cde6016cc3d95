import type { HarnessConnection, HarnessLink } from '../domain/ports/harness.ts';
import type { SandboxExit, SandboxStats } from '../domain/ports/sandbox.ts';
import type { StartedSandbox } from './sandbox-start.ts';

/** What a turn may need beside the harness that is there: a shell, and what it starts. */
const TURN_PROCESSES = 16;

/** A running sandbox with the turns that are in it. */
export class KeptSandbox {
  readonly id: string;
  readonly agentId: string;
  readonly fingerprint: string;
  readonly idleMs: number;
  /** Processes and threads that it may have. */
  readonly maxPids: number;
  readonly link: HarnessLink;
  readonly connection: HarnessConnection;
  /** Resolves once its process tree is gone. */
  readonly exited: Promise<SandboxExit>;
  /** Resolves once nothing of it is left but the volume. */
  readonly gone: Promise<SandboxExit>;
  /** Resolves when it is left to the next process: this one never sees its end. */
  readonly left: Promise<null>;
  /** Conversations whose turns are in it. */
  readonly turns = new Set<string>();
  /** Why the service ended it; null while it runs, and when it ended by itself. */
  endedBy: string | null = null;
  isGone = false;
  readonly startedAt = new Date();
  isFrozen = false;
  /** By `performance.now()`, which goes on evenly when the clock of the host is set. */
  lastUsedMs = performance.now();
  /** Up to which use it was looked how many processes that left; see `Keeper`. */
  countedMs = 0;
  readonly #started: StartedSandbox;
  readonly #onLeft: (value: null) => void;
  /** The last change between frozen and running; they follow each other. */
  #shift: Promise<void> = Promise.resolve();

  constructor(
    started: StartedSandbox,
    place: { agentId: string; fingerprint: string; idleMs: number; maxPids: number; begin: string },
  ) {
    this.#started = started;
    this.id = started.id;
    this.agentId = place.agentId;
    this.fingerprint = place.fingerprint;
    this.idleMs = place.idleMs;
    this.maxPids = place.maxPids;
    this.link = started.link;
    this.connection = started.connection;
    ({ promise: this.left, resolve: this.#onLeft } = Promise.withResolvers<null>());
    const note = (text: string) => this.link.log.note(`berth: ${text}`);
    note(`The sandbox ${place.begin}.`);
    this.exited = started.sandbox.exited;
    this.gone = this.exited.then(async (exit) => {
      this.isGone = true;
      const reason = this.endedBy ?? `It ended by itself (${told(exit)}).`;
      note(`The sandbox has ended. ${reason}`);
      await started.cleanUp('stopped', reason);
      return exit;
    });
  }

  /** Null when it ends right now. */
  stats(): Promise<SandboxStats | null> {
    return this.#started.sandbox.stats().catch(() => null);
  }

  /** Processes and threads; null where it takes `stats` to count them. */
  processCount(): number | null {
    return this.#started.sandbox.processCount();
  }

  /** Whether so many leave no room for the tools of a further turn. */
  isCrowdedBy(processes: number): boolean {
    return this.maxPids - processes < Math.min(TURN_PROCESSES, this.maxPids / 8);
  }

  get canTakeTurns(): boolean {
    return !this.isGone && this.endedBy === null;
  }

  /** No turn is in it, and no command of the surface. Connections to its web server do not keep it from being replaced. */
  get isFree(): boolean {
    return this.turns.size === 0 && this.link.openCommands === 0;
  }

  /** Nobody uses it. */
  get isIdle(): boolean {
    return this.isFree && this.link.openConnections === 0;
  }

  /** Somebody uses it. Resolves when its processes run. */
  use(): Promise<void> {
    this.lastUsedMs = performance.now();
    if (!this.isFrozen) return this.#shift;
    this.isFrozen = false;
    return this.#change(() => this.#started.sandbox.thaw()).catch((error: unknown) => this.#failed(error));
  }

  /** Stops its processes where they are. Nothing of it is lost; the next use goes on. */
  async freeze(): Promise<void> {
    if (this.isFrozen || !this.canTakeTurns) return;
    this.isFrozen = true;
    await this.#change(() => this.#started.sandbox.freeze()).catch((error: unknown) => this.#failed(error));
  }

  /** It is what its driver says. One that stands still all the same is thawed by the next use. */
  #failed(error: unknown): never {
    this.isFrozen = this.#started.sandbox.isFrozen;
    throw error;
  }

  #change(shift: () => Promise<void>): Promise<void> {
    const changed = this.#shift.then(shift);
    // Whoever asked for it is told of a failure; the next change is tried all the same.
    this.#shift = changed.catch(() => undefined);
    return changed;
  }

  /** Ends the whole process tree. Resolves when it is gone. */
  async end(reason: string): Promise<void> {
    this.endedBy ??= reason;
    await this.#started.sandbox.kill();
    await this.gone;
  }

  /** Lets its processes end by themselves first. */
  async stop(reason: string, graceMs: number): Promise<void> {
    if (this.canTakeTurns) {
      this.endedBy = reason;
      await this.use().catch(() => undefined);
      this.connection.close();
    }
    await this.#started.sandbox.stop(graceMs);
    await this.gone;
  }

  /** Lets it live on for the next process of this node. */
  leave(): void {
    this.endedBy ??= 'The service ended.';
    this.#onLeft(null);
    this.#started.leave();
  }
}

function told({ reason, code, signal }: SandboxExit): string {
  if (reason !== 'exit') return reason;
  return code === null ? `exit by ${signal ?? 'an unknown cause'}` : `exit code ${code}`;
}
