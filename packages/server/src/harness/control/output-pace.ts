import { limits } from '../../domain/limits.ts';

const { bytesPerSecond, burstBytes } = limits.sandboxOutput;
const bytesPerMs = bytesPerSecond / 1000;

/**
 * What a sandbox sends over all its streams together: endless output takes no more of the service than this. Whoever reads
 * asks for more a little later, and what is inside waits in its write.
 */
export class OutputPace {
  readonly #now: () => number;
  #paidUntilMs = -Infinity;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** So many bytes were read. In how many milliseconds more may be asked for; 0: at once. */
  spend(bytes: number): number {
    const nowMs = this.#now();
    this.#paidUntilMs = Math.max(this.#paidUntilMs, nowMs - burstBytes / bytesPerMs) + bytes / bytesPerMs;
    return Math.max(0, this.#paidUntilMs - nowMs);
  }
}
