import type { Channel } from './channel.ts';
import type { AnyTurnRequest } from './open-turn.ts';

/** Often enough that the launcher keeps little, seldom enough that it costs nothing. */
const everyMs = 500;
const everyBytes = 1024 * 1024;

/** Tells the launcher up to where its lines are on record, so that it need not keep them for the next process. */
export class Acknowledgements {
  readonly #channel: Channel;
  readonly #turns = new Set<AnyTurnRequest>();
  /** Their harness has answered, but the end is not on record yet. */
  readonly #ending = new Set<Promise<void>>();
  #handled = 0;
  #acknowledged = 0;
  #isWaiting = false;
  #timer: NodeJS.Timeout | null = null;

  constructor(channel: Channel) {
    this.#channel = channel;
  }

  begin(turn: AnyTurnRequest): void {
    this.#turns.add(turn);
  }

  end(turn: AnyTurnRequest): void {
    this.#turns.delete(turn);
    this.#ending.add(turn.ended);
    void turn.ended.finally(() => this.#ending.delete(turn.ended));
  }

  /** The end of the last line that was handled. */
  get handledEnd(): number {
    return this.#handled;
  }

  /** No line that ends there or before comes again. */
  get acknowledgedEnd(): number {
    return this.#acknowledged;
  }

  /** The line that ends there was handled. */
  handled(end: number): void {
    this.#handled = end;
    if (end - this.#acknowledged > everyBytes) void this.#acknowledge();
    else this.#timer ??= setTimeout(() => void this.#acknowledge(), everyMs).unref();
  }

  async #acknowledge(): Promise<void> {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    const end = Math.min(this.#handled, this.#channel.firstHeld() - 1);
    // A turn that is another owner's by now has nothing to record any more.
    await Promise.allSettled([...this.#ending, ...[...this.#turns].map((turn) => turn.onAcknowledge())]);
    this.#isWaiting = false;
    if (end > this.#acknowledged) {
      this.#acknowledged = end;
      this.#channel.ack(end);
    }
    if (this.#handled > this.#acknowledged)
      this.#timer ??= setTimeout(() => void this.#acknowledge(), everyMs).unref();
  }
}
