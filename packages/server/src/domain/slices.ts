import { DomainError } from './errors.ts';
import { Turns } from './turns.ts';

/** Work in steps that gives way by `yield`; a step is not cut. */
export type Sliced<T> = Generator<void, T>;

/** Does the work without giving way. */
export function atOnce<T>(work: Sliced<T>): T {
  for (;;) {
    const made = work.next();
    if (made.done) return made.value;
  }
}

export interface Clock {
  nowMs(): number;
  rest(ms: number): Promise<unknown>;
}

export interface SliceLength {
  /** A slice ends with the step that reaches it. */
  ms: number;
  /** So many times as long as a slice took the event loop is left to everything else. */
  rests: number;
}

/** What is made in them takes half of the event loop at most. */
export const halfOfLoop: SliceLength = { ms: 4, rests: 1 };

const realClock: Clock = {
  nowMs: () => performance.now(),
  rest: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
};

interface Piece {
  /** Makes the next step of a work; whether it was the last one. */
  goOn(): boolean;
  /** How long it will still take, as far as one knows. */
  leftMs: number;
}

/** How a work waits among others. */
export interface Waits {
  /** Who has turns with others of its group; default: the group is one. */
  member?: unknown;
  /** Whoever is gone waits no more: its work is let go, whatever of it was done. */
  gone?: AbortSignal | undefined;
  /** How long it will take, as far as one knows: of those who are owed the same the shorter one comes first. */
  ms?: number;
}

/** Nobody hears it but logs. */
const hasGone = (): DomainError =>
  new DomainError('invalid_request', 'The client went away before its request was looked at.');

/**
 * Work on what somebody else chose, who can choose it to take long. All of it is taken in short slices with rests between them,
 * one slice at a time, so that the event loop is not held by one large piece nor by many small ones. Groups have equal shares of it, and
 * so have the members of a group, so that nobody waits for all of another's.
 */
export class Lane {
  private readonly length: SliceLength;
  readonly clock: Clock;
  private readonly waiting = new Turns<Piece>();
  private isRunning = false;
  /** What slices took since the last rest, less a part of the time between them, and when the last one ended. */
  private spentMs = 0;
  private endedMs = 0;

  constructor(length: SliceLength, clock = realClock) {
    this.length = length;
    this.clock = clock;
  }

  /** Does the work; when nothing waits, and no rest is due, at once. Throws what the work throws, and `invalid_request` when it was let go. */
  run<T>(group: unknown, work: Sliced<T>, { member = group, gone, ms = 0 }: Waits = {}): Promise<T> {
    if (gone?.aborted) return Promise.reject(hasGone());
    return new Promise((resolve, reject) => {
      const goOn = (): boolean => {
        try {
          const made = work.next();
          if (!made.done) return false;
          resolve(made.value);
        } catch (error) {
          reject(error);
        }
        gone?.removeEventListener('abort', letGo);
        return true;
      };
      const turn = { group, member, piece: { goOn, leftMs: ms } };
      const letGo = (): void => {
        this.waiting.remove(turn);
        reject(hasGone());
      };
      gone?.addEventListener('abort', letGo, { once: true });
      this.waiting.add(turn);
      if (!this.isRunning) void this.goOn();
    });
  }

  /** The same, and what is made of it is in a turn of the event loop of its own, so that it does not lengthen the last slice. */
  async runApart<T>(group: unknown, work: Sliced<T>, waits?: Waits): Promise<T> {
    const made = await this.run(group, work, waits);
    return new Promise((resolve) => setImmediate(resolve, made));
  }

  /** Whether something may be done beside it: nothing waits, and no rest is due. */
  get isFree(): boolean {
    return !this.isRunning && this.owedMs(this.clock.nowMs()) < this.length.ms;
  }

  /** For what was done beside it just now. */
  charge(ms: number): void {
    const nowMs = this.clock.nowMs();
    this.spentMs = this.owedMs(nowMs - ms) + ms;
    this.endedMs = nowMs;
  }

  private owedMs(nowMs: number): number {
    return Math.max(0, this.spentMs - (nowMs - this.endedMs) / this.length.rests);
  }

  private async goOn(): Promise<void> {
    this.isRunning = true;
    while (this.waiting.size > 0) {
      const restMs = this.slice();
      if (restMs > 0) await this.clock.rest(restMs);
    }
    this.waiting.forget();
    this.isRunning = false;
  }

  /** For how long to rest after it, in milliseconds. */
  private slice(): number {
    const begunMs = this.clock.nowMs();
    // Short pieces, one right after the other, hold the event loop as a long one does.
    const before = this.owedMs(begunMs);
    let nowMs = begunMs;
    let isCut = false;
    for (let turn = this.waiting.next(); turn !== null && !isCut; turn = isCut ? null : this.waiting.next()) {
      const fromMs = nowMs;
      let isDone = false;
      while (!isDone && !isCut) {
        isDone = turn.piece.goOn();
        nowMs = this.clock.nowMs();
        isCut = before + nowMs - begunMs >= this.length.ms;
      }
      if (isDone) this.waiting.remove(turn);
      this.waiting.had(turn, nowMs - fromMs);
    }
    this.endedMs = nowMs;
    this.spentMs = before + nowMs - begunMs;
    if (this.spentMs < this.length.ms) return 0;
    const restMs = this.spentMs * this.length.rests;
    this.spentMs = 0;
    return restMs;
  }
}

/** Of this process, for bodies whose authors chose their shape. */
const bodies = new Lane(halfOfLoop);

/** Who sent a body: organisations have turns, and in each its senders. */
export interface BodySender {
  orgId: string;
  /** Of a key, a sandbox or a channel. */
  id: string;
  /** Aborted when it has gone away, and waits for nothing any more. */
  gone?: AbortSignal | undefined;
}

/** Who works with a key. */
export const senderOf = (
  { orgId, keyId }: { orgId: string; keyId: string },
  gone?: AbortSignal,
): BodySender => ({ orgId, id: keyId, gone });

/** Does work on a body that somebody sent: `sender` has turns with all others, whatever they send. Throws `invalid_request` when it has gone. */
export const inSlices = <T>(sender: BodySender, work: Sliced<T>, bytes = 0): Promise<T> =>
  bodies.run(sender.orgId, work, waitsOf(sender, bytes));

const waitsOf = ({ id, gone }: BodySender, bytes: number): Waits => ({
  member: id,
  gone,
  ms: bytes / bytesPerMs,
});

/** What is counted, parsed and looked at in a millisecond, of bodies without much in them. */
const bytesPerMs = 256 * 1024;

/** Work that cannot be cut; a slice that has lasted long enough ends before it. */
export function* oneStep<T>(work: () => T): Sliced<T> {
  yield;
  return work();
}

/** Smaller bodies cost less than a place among others does. */
export const smallBytes = 16 * 1024;

/** The same, and what is made of it is in a turn of the event loop of its own. */
export const apart = <T>(sender: BodySender, work: Sliced<T>, bytes = 0): Promise<T> =>
  bodies.runApart(sender.orgId, work, waitsOf(sender, bytes));

/** The same of a body of this size: what is small is done at once, and gives nobody cause to wait. */
export const bySize = <T>(sender: BodySender, bytes: number, work: Sliced<T>): T | Promise<T> =>
  bytes > smallBytes ? apart(sender, work, bytes) : atOnce(work);
