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

/** Of this process, for bodies whose authors chose their shape: they take half of the event loop at most. */
const ofBodies: SliceLength = { ms: 4, rests: 1 };

const realClock: Clock = {
  nowMs: () => performance.now(),
  rest: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
};

/** Makes the next step of a work; whether it was the last one. */
type Piece = () => boolean;

/**
 * Work on what somebody else chose, who can choose it to take long. All of it is taken in short slices with rests between them,
 * one slice at a time, so that the event loop is not held by one large piece nor by many small ones. Groups take slices in turn, so that
 * nobody waits for all of another's.
 */
export class Lane {
  private readonly length: SliceLength;
  readonly clock: Clock;
  /** What waits, by group; the group that comes next is the first. */
  private readonly waiting = new Map<unknown, Piece[]>();
  /** Whose slice it was last. */
  private latest: unknown;
  private isRunning = false;
  /** What slices took since the last rest, less a part of the time between them, and when the last one ended. */
  private spentMs = 0;
  private endedMs = 0;

  constructor(length: SliceLength, clock = realClock) {
    this.length = length;
    this.clock = clock;
  }

  /** Does the work; when nothing waits, and no rest is due, at once. Throws what the work throws. */
  run<T>(group: unknown, work: Sliced<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const piece = (): boolean => {
        try {
          const made = work.next();
          if (!made.done) return false;
          resolve(made.value);
        } catch (error) {
          reject(error);
        }
        return true;
      };
      const before = this.waiting.get(group);
      if (before) before.push(piece);
      else this.waiting.set(group, [piece]);
      if (!this.isRunning) void this.goOn();
    });
  }

  private async goOn(): Promise<void> {
    this.isRunning = true;
    while (this.waiting.size > 0) {
      const restMs = this.slice();
      if (restMs > 0) await this.clock.rest(restMs);
    }
    this.isRunning = false;
  }

  /** For how long to rest after it, in milliseconds. */
  private slice(): number {
    const begunMs = this.clock.nowMs();
    // Short pieces, one right after the other, hold the event loop as a long one does.
    const before = Math.max(0, this.spentMs - (begunMs - this.endedMs) / this.length.rests);
    // It goes behind those that came while it had its slice, and while that was rested from.
    this.putLast(this.latest);
    const isOver = (): boolean => before + this.clock.nowMs() - begunMs >= this.length.ms;
    // A group that is put behind the others comes again.
    for (const [group, pieces] of this.waiting) {
      let isDone = false;
      let isCut = false;
      while (!isDone && !isCut) {
        isDone = pieces[0]!();
        isCut = isOver();
      }
      if (isDone) pieces.shift();
      this.latest = group;
      if (isCut) break;
      this.putLast(group);
    }
    this.endedMs = this.clock.nowMs();
    this.spentMs = before + this.endedMs - begunMs;
    if (this.spentMs < this.length.ms) return 0;
    const restMs = this.spentMs * this.length.rests;
    this.spentMs = 0;
    return restMs;
  }

  private putLast(group: unknown): void {
    const pieces = this.waiting.get(group);
    this.waiting.delete(group);
    if (pieces !== undefined && pieces.length > 0) this.waiting.set(group, pieces);
  }
}

const bodies = new Lane(ofBodies);

/** Does work on a body that somebody sent: `sender` has turns with all others, whatever they send. */
export const inSlices = <T>(sender: string, work: Sliced<T>): Promise<T> => bodies.run(sender, work);

/** The same of what cannot be cut. */
export const inOneSlice = <T>(sender: string, work: () => T): Promise<T> => inSlices(sender, oneStep(work));

/** Work that cannot be cut; a slice that has lasted long enough ends before it. */
export function* oneStep<T>(work: () => T): Sliced<T> {
  yield;
  return work();
}

/** Smaller bodies cost less than a place among others does. */
export const smallBytes = 16 * 1024;

/** The same, and what is made of it is in a turn of the event loop of its own, so that it does not lengthen the last slice. */
export const apart = async <T>(sender: string, work: Sliced<T>): Promise<T> => {
  const made = await inSlices(sender, work);
  return new Promise((resolve) => setImmediate(resolve, made));
};

/** The same of a body of this size: what is small is done at once, and gives nobody cause to wait. */
export const bySize = <T>(sender: string, bytes: number, work: Sliced<T>): T | Promise<T> =>
  bytes > smallBytes ? apart(sender, work) : atOnce(work);
