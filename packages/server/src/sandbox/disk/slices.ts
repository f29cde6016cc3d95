import { setTimeout as delay } from 'node:timers/promises';

/** Short beside a turn of an agent. */
const SLICE_MS = 2;
/** So many times as long as a slice took the event loop is left to everything else: slices take a tenth of it. */
const RESTS = 9;

export interface Clock {
  nowMs(): number;
  rest(ms: number): Promise<unknown>;
}

const real: Clock = { nowMs: () => performance.now(), rest: (ms) => delay(ms) };

/** All sandboxes take their slices in turn, so that many take no more of the event loop than one, and none waits for all of another's. */
let last: Promise<void> = Promise.resolve();

/**
 * Many small looks of which each holds the event loop, as a sandbox can ask for: what it does to be looked at often must not
 * slow down others. They are taken in short slices with long rests between them.
 */
export class Slices {
  private readonly clock: Clock;
  private rested = 0;

  constructor(clock = real) {
    this.clock = clock;
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
      const before = last;
      last = promise;
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
    const begunMs = this.clock.nowMs();
    for (;;) {
      const item = items.next();
      if (item.done) return true;
      look(item.value);
      const tookMs = this.clock.nowMs() - begunMs;
      if (tookMs < SLICE_MS) continue;
      await this.resting(this.clock.rest(tookMs * RESTS));
      return false;
    }
  }

  private async resting(rest: Promise<unknown>): Promise<void> {
    const sinceMs = this.clock.nowMs();
    await rest;
    this.rested += this.clock.nowMs() - sinceMs;
  }
}
