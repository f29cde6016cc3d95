/** Faster than an eye follows. The built-in harness joins for less, so that a piece that has waited here passes there. */
const joinMs = 25;
/** From so many answers at once on they wait for each other anyway, and each piece that wakes nobody spares all of them time. */
const manyAnswers = 8;
/** Sixteen pieces a second still read as a flow. */
const joinOfManyMs = 60;
/** So much is handed on at once. */
const maxBytes = 16 * 1024;

/**
 * Joins pieces of a streamed answer that come in quick succession, since each of them wakes its reader. What may not wait,
 * what comes after a pause and what is much goes out at once, with all that came before it: order is kept.
 */
export class PieceJoiner {
  /** Of this process: all of its answers share one thread. */
  static #open = 0;
  readonly #write: (pieces: Buffer[]) => void;
  #waiting: Buffer[] = [];
  #bytes = 0;
  #timer: NodeJS.Timeout | null = null;
  #isDue = false;
  #writtenAt = 0;

  /** `close` gives back what it counts for. */
  constructor(write: (pieces: Buffer[]) => void) {
    this.#write = write;
    PieceJoiner.#open += 1;
  }

  push(piece: Buffer, mayWait: boolean): void {
    this.#waiting.push(piece);
    this.#bytes += piece.length;
    if (this.#bytes >= maxBytes) return this.flush();
    if (this.#isDue) return;
    const sinceMs = performance.now() - this.#writtenAt;
    const waitMs = mayWait ? (PieceJoiner.#open < manyAnswers ? joinMs : joinOfManyMs) - sinceMs : 0;
    if (waitMs > 0) {
      this.#timer ??= setTimeout(() => this.flush(), waitMs);
      return;
    }
    // One read of the socket comes as several pieces; the tick ends after the last of them.
    this.#isDue = true;
    process.nextTick(() => this.#isDue && this.flush());
  }

  /** Hands over what waits. Nothing comes after it. */
  close(): void {
    PieceJoiner.#open -= 1;
    this.flush();
  }

  /** Hands over what waits. */
  flush(): void {
    const pieces = this.take();
    if (pieces.length === 0) return;
    this.#writtenAt = performance.now();
    this.#write(pieces);
  }

  /** Gives out what waits; nothing is written of it. */
  take(): Buffer[] {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    this.#isDue = false;
    this.#bytes = 0;
    return this.#waiting.splice(0);
  }
}
