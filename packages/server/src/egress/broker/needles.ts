import type { Needle } from './needle.ts';

const BLOCK = 3;
const MAX_WINDOW = 64;
/** For so many bytes one place may look like a needle; a text with more of them is told to hold one. */
const BYTES_PER_MISS = 256;

/**
 * Whether a text holds any of many byte strings, in one pass (Wu and Manber, 1994): the last bytes of a window say how far
 * it may move on, whichever the needle. No needle is shorter than three bytes.
 */
export class Needles {
  readonly #window: number;
  /** By the hash of a block: how far the window may move when it ends with it. */
  readonly #moves = new Uint8Array(65_536);
  /** Beginnings of needles, by the hash of the block at their end. */
  readonly #beginnings = new Map<number, Buffer[]>();

  constructor(needles: readonly Needle[]) {
    const window = Math.min(MAX_WINDOW, ...needles.map(({ bytes }) => bytes.length));
    this.#window = window;
    this.#moves.fill(window - BLOCK + 1);
    for (const { bytes } of needles) {
      for (let end = BLOCK - 1; end < window; end += 1) {
        const hash = hashAt(bytes, end);
        this.#moves[hash] = Math.min(this.#moves[hash]!, window - 1 - end);
      }
      const hash = hashAt(bytes, window - 1);
      const others = this.#beginnings.get(hash);
      if (others) others.push(bytes.subarray(0, window));
      else this.#beginnings.set(hash, [bytes.subarray(0, window)]);
    }
  }

  /** False only when none is in it; true also when looking closer would take too long. */
  mayBeIn(text: Buffer): boolean {
    let misses = text.length / BYTES_PER_MISS;
    for (let end = this.#window - 1; end < text.length;) {
      const move = this.#moves[hashAt(text, end)]!;
      end += Math.max(move, 1);
      if (move > 0) continue;
      if (this.#beginsAt(text, end - this.#window) || (misses -= 1) < 0) return true;
    }
    return false;
  }

  #beginsAt(text: Buffer, at: number): boolean {
    const beginnings = this.#beginnings.get(hashAt(text, at + this.#window - 1)) ?? [];
    return beginnings.some((bytes) => text.compare(bytes, 0, bytes.length, at, at + bytes.length) === 0);
  }
}

const hashAt = (bytes: Buffer, end: number): number =>
  Math.imul((bytes[end - 2]! << 16) | (bytes[end - 1]! << 8) | bytes[end]!, 0x9e3779b1) >>> 16;
