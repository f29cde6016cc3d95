const CHUNK_BYTES = 1024 * 1024;

/** Takes exact numbers of bytes from a stream of pieces. */
export class Bytes {
  readonly #source: AsyncIterator<Buffer>;
  #piece: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** Null at the end of the stream; throws when it ends within. */
  async take(length: number): Promise<Buffer | null> {
    const parts: Buffer[] = [];
    let left = length;
    while (left > 0) {
      const part = await this.#some(left);
      if (part === null) {
        if (left === length) return null;
        throw new EndError();
      }
      parts.push(part);
      left -= part.length;
    }
    return parts.length === 1 ? parts[0]! : Buffer.concat(parts);
  }

  /** Piece by piece; throws when the stream ends before. */
  async *stream(length: number): AsyncGenerator<Buffer> {
    for (let left = length; left > 0;) {
      const part = await this.#some(left);
      if (part === null) throw new EndError();
      left -= part.length;
      yield part;
    }
  }

  async skip(length: number): Promise<void> {
    for await (const part of this.stream(length)) void part;
  }

  /**
   * Reads to the end of the stream, and throws what is wrong there: a packed one checks its sum only then. False: more
   * than `most` bytes were left.
   */
  async drain(most: number): Promise<boolean> {
    for (let left = most; ;) {
      const part = await this.#some(CHUNK_BYTES);
      if (part === null) return true;
      left -= part.length;
      if (left < 0) return false;
    }
  }

  /** Lets the source go. */
  async end(): Promise<void> {
    await this.#source.return?.();
  }

  async #some(most: number): Promise<Buffer | null> {
    while (this.#piece.length === 0) {
      const next = await this.#source.next();
      if (next.done) return null;
      this.#piece = next.value;
    }
    const part = this.#piece.subarray(0, most);
    this.#piece = this.#piece.subarray(part.length);
    return part;
  }
}

export class EndError extends Error {
  constructor() {
    super('The archive ends before it is complete.');
  }
}
