import { setTimeout as delay } from 'node:timers/promises';

/** Short beside a turn of an agent. */
const SLICE_MS = 2;
/** So many times as long as a slice took the event loop is left to everything else: slices take a tenth of it. */
const RESTS = 9;

export interface Clock {
  nowMs(): number;
  rest(ms: number): Promise<unknown>;
}

/** In which slices are taken in turn, so that many take no more of the event loop than one, and none waits for all of another's. */
export class Lane {
  readonly clock: Clock;
  last: Promise<void> = Promise.resolve();
  /** What slices took since the last rest, less a part of the time between them, and when the last one ended. */
  spentMs = 0;
  endedMs = 0;

  constructor(clock: Clock) {
    this.clock = clock;
  }
}

/** Of all sandboxes of this process. */
const common = new Lane({ nowMs: () => performance.now(), rest: (ms) => delay(ms) });

/**
 * Many small looks of which each holds the event loop, as a sandbox can ask for: what it does to be looked at often must not
 * slow down others. They are taken in short slices with long rests between them.
 */
export class Slices {
  private readonly lane: Lane;
  private rested = 0;

  constructor(lane = common) {
    this.lane = lane;
  }

  /** In which the event loop was free. */
  get restedMs(): number {
    return this.rested;
  }

  /** Looks at one after the other. */
  async each<T>(items: Iterable<T>, look: (item: T) => void): Promise<void> {
    const rest = items[Symbol.iterator]();
    for (let isDone = false; !isDone;) {
      const { promise, resolve: leave } = Promise.withResolvers<void>();
      const before = this.lane.last;
      this.lane.last = promise;
      await this.resting(before);
      try {
        isDone = await this.slice(rest, look);
      } finally {
        leave();
      }
    }
  }

  /** Whether it came to the end. */
  private async slice<T>(items: Iterator<T>, look: (item: T) => void): Promise<boolean> {
    const { lane } = this;
    const begunMs = lane.clock.nowMs();
    // Short looks for many sandboxes, one right after the other, hold the event loop as a long one does.
    const before = Math.max(0, lane.spentMs - (begunMs - lane.endedMs) / RESTS);
    let isDone = false;
    try {
      while (!isDone && before + lane.clock.nowMs() - begunMs < SLICE_MS) {
        const item = items.next();
        if (item.done) isDone = true;
        else look(item.value);
      }
    } finally {
      lane.endedMs = lane.clock.nowMs();
      lane.spentMs = before + lane.endedMs - begunMs;
    }
    if (lane.spentMs < SLICE_MS) return isDone;
    const restMs = lane.spentMs * RESTS;
    lane.spentMs = 0;
    await this.resting(lane.clock.rest(restMs));
    return isDone;
  }

  private async resting(rest: Promise<unknown>): Promise<void> {
    const { clock } = this.lane;
    const sinceMs = clock.nowMs();
    await rest;
    this.rested += clock.nowMs() - sinceMs;
  }
}
