import { Lane, type Clock } from '../../domain/slices.ts';

/** Short beside a turn of an agent; looks take a tenth of the event loop. */
const length = { ms: 2, rests: 9 };

export const lookLane = (clock?: Clock): Lane => new Lane(length, clock);

/** Of all sandboxes of this process. */
const common = lookLane();

/**
 * Many small looks of which each holds the event loop, as a sandbox can ask for: what it does to be looked at often must not
 * slow down others.
 */
export class Slices {
  private readonly lane: Lane;
  private rested = 0;

  constructor(lane = common) {
    this.lane = lane;
  }

  /** In which the event loop was free, or looked for others. */
  get restedMs(): number {
    return this.rested;
  }

  /** Looks at one after the other. */
  async each<T>(items: Iterable<T>, look: (item: T) => void): Promise<void> {
    const { clock } = this.lane;
    const begunMs = clock.nowMs();
    let tookMs = 0;
    const looks = function* () {
      let fromMs = clock.nowMs();
      for (const item of items) {
        look(item);
        const nowMs = clock.nowMs();
        tookMs += nowMs - fromMs;
        yield;
        fromMs = clock.nowMs();
      }
    };
    try {
      await this.lane.run(this, looks());
    } finally {
      this.rested += clock.nowMs() - begunMs - tookMs;
    }
  }
}
