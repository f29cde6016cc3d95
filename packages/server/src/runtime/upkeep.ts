import type { Log } from '../domain/log.ts';
import type { RunLife } from '../services/run-life.ts';
import type { Turn } from './turn.ts';

export interface UpkeepOptions {
  life: RunLife;
  /** By conversation. */
  turns: ReadonlyMap<string, Turn>;
  leaseMs: number;
  maxAttempts: number;
  cancel: (run: { id: string; conversationId: string }) => Promise<void>;
  /** This node was taken for dead: others may execute what it holds. */
  onBuried: () => void;
  log: Log;
}

const COMPACT_EVERY_MS = 60_000;

/**
 * What keeps every run moving to its end: this node's sign of life, the ends of dead nodes' attempts, and a comparison
 * of what the database says that this node executes with what it does execute.
 */
export class Upkeep {
  readonly #options: UpkeepOptions;
  #timer: NodeJS.Timeout | null = null;
  #round: Promise<void> | null = null;
  /** Found by the last comparison, by `conversation epoch`: what is still there in the next one is not just in between. */
  #strayLanes = new Set<string>();
  #strayTurns = new Set<Turn>();
  /** By a clock that nobody sets. */
  #compactedMs = performance.now();
  /** When the last comparison was over. */
  #comparedMs = -Infinity;

  constructor(options: UpkeepOptions) {
    this.#options = options;
  }

  /** An earlier process of this node executes nothing any more, so its attempts end at once, but for what was taken up. */
  async begin(kept: string[]): Promise<void> {
    const { life, leaseMs, maxAttempts } = this.#options;
    // Taking up sandboxes may have taken longer than a lease: this node must not take itself for dead.
    await life.beat();
    await life.reap({ isStart: true, kept, maxAttempts });
    // While the database hangs nothing piles up: rounds in a row would take what is in between for what stays.
    this.#timer = setInterval(() => {
      this.#round ??= this.#tick().finally(() => (this.#round = null));
    }, leaseMs / 4);
  }

  async close(): Promise<void> {
    if (this.#timer) clearInterval(this.#timer);
    await this.#round;
  }

  async #tick(): Promise<void> {
    const { life, maxAttempts, log, onBuried } = this.#options;
    try {
      if (!(await life.beat())) onBuried();
      await life.reap({ isStart: false, kept: [], maxAttempts });
      await this.#compareInTime();
      for (const run of await life.orphans()) await this.#options.cancel(run);
      if (performance.now() - this.#compactedMs >= COMPACT_EVERY_MS) {
        this.#compactedMs = performance.now();
        while ((await life.compact()) > 0);
      }
    } catch (error) {
      log.error('The upkeep of runs failed; it is tried again.', { error: String(error) });
    }
  }

  /** Right after a round that took long comes the next one: in both of them "twice" would not mean anything. */
  async #compareInTime(): Promise<void> {
    if (performance.now() - this.#comparedMs < this.#options.leaseMs / 8) return;
    await this.#compare();
    this.#comparedMs = performance.now();
  }

  async #compare(): Promise<void> {
    const { life, turns, maxAttempts, log } = this.#options;
    const before = [...turns.values()];
    const owned = await life.owned();
    const strayLanes = new Set<string>();
    const held = new Set<Turn>();
    for (const lane of owned) {
      const turn = turns.get(lane.conversationId);
      if (turn && turn.claim.epoch === lane.epoch) {
        held.add(turn);
        if (lane.cancelRequested) turn.stop('cancel');
        continue;
      }
      const key = `${lane.conversationId} ${lane.epoch}`;
      if (!this.#strayLanes.has(key)) {
        strayLanes.add(key);
        continue;
      }
      log.warn('A run that nobody executes was found.', { runId: lane.runId });
      const error = { code: 'lost' as const, error: 'The service lost the run.' };
      const reason = 'The process that ran it lost it.';
      await life.endAttempt(lane, { reason, maxAttempts, error, delayMs: 0 });
    }
    const strayTurns = before.filter(
      (turn) => !held.has(turn) && turns.get(turn.claim.conversationId) === turn,
    );
    for (const turn of strayTurns) if (this.#strayTurns.has(turn)) turn.stop('lost');
    this.#strayLanes = strayLanes;
    this.#strayTurns = new Set(strayTurns);
  }
}
