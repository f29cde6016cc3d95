const leastBytes = 4096;
const nothing = Buffer.alloc(0);

/**
 * Bytes that come in pieces, put together at once: pieces may be of one byte each, and what lies around each would be held with it. What
 * comes in one piece is used as it is.
 */
export class GrowingBytes {
  readonly #maxBytes: number;
  #room: Buffer = nothing;
  #length = 0;

  /** More than `maxBytes` are never added. */
  constructor(maxBytes = Infinity) {
    this.#maxBytes = maxBytes;
  }

  get length(): number {
    return this.#length;
  }

  add(piece: Buffer): void {
    const end = this.#length + piece.length;
    if (this.#length === 0) this.#room = piece;
    else {
      if (end > this.#room.length) this.#grow(end);
      piece.copy(this.#room, this.#length);
    }
    this.#length = end;
  }

  whole(): Buffer {
    return this.#room.subarray(0, this.#length);
  }

  clear(): void {
    this.#room = nothing;
    this.#length = 0;
  }

  #grow(bytes: number): void {
    const size = Math.min(Math.max(2 * this.#room.length, bytes, leastBytes), this.#maxBytes);
    const larger = Buffer.allocUnsafeSlow(size);
    this.#room.copy(larger, 0, 0, this.#length);
    this.#room = larger;
  }
}
