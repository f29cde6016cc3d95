/** How fast something may come: `burst` at once, then `perSecond`. */
export interface Pace {
  burst: number;
  perSecond: number;
}

/** Sums of times differ from what they stand for by less: it is no time at all. */
const roundingMs = 1e-6;

/** A bucket that is emptied by what comes and filled again evenly, kept as the time at which it will be full. */
export class Bucket {
  readonly #eachMs: number;
  readonly #burstMs: number;
  #fullAtMs = -Infinity;

  constructor({ burst, perSecond }: Pace) {
    this.#eachMs = 1_000 / perSecond;
    this.#burstMs = burst * this.#eachMs;
  }

  /** So many came. Gives what `overMs` gives then. */
  spend(count: number, nowMs = performance.now()): number {
    this.#fullAtMs = Math.max(nowMs, this.#fullAtMs) + count * this.#eachMs;
    return this.overMs(nowMs);
  }

  /** For how many milliseconds more than its pace has come; 0 or less: none. */
  overMs(nowMs = performance.now()): number {
    const overMs = this.#fullAtMs - nowMs - this.#burstMs;
    return Math.abs(overMs) < roundingMs ? 0 : overMs;
  }
}
