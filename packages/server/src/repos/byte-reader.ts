import type { Readable } from 'node:stream';

/** Reads lines and counted bytes from a stream, without ever holding more than one chunk more than was asked for. */
export class ByteReader {
  readonly #chunks: AsyncIterator<Buffer>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(stream: Readable) {
    this.#chunks = stream[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
  }

  /** The text up to `separator`, without it; null at the end of the stream. */
  async until(separator: string, maxBytes: number): Promise<string | null> {
    for (;;) {
      const at = this.#rest.indexOf(separator);
      if (at !== -1) {
        const text = this.#rest.toString('utf8', 0, at);
        this.#rest = this.#rest.subarray(at + separator.length);
        return text;
      }
      if (this.#rest.length > maxBytes) throw new RangeError(`No end within ${maxBytes} bytes.`);
      if (!(await this.#more())) return null;
    }
  }

  /** Exactly `count` bytes, in pieces. */
  async *take(count: number): AsyncGenerator<Buffer> {
    let left = count;
    while (left > 0) {
      if (this.#rest.length === 0 && !(await this.#more()))
        throw new RangeError('The stream ended too early.');
      const piece = this.#rest.subarray(0, left);
      this.#rest = this.#rest.subarray(piece.length);
      left -= piece.length;
      yield piece;
    }
  }

  async bytes(count: number): Promise<Buffer> {
    const pieces: Buffer[] = [];
    for await (const piece of this.take(count)) pieces.push(piece);
    return Buffer.concat(pieces);
  }

  async #more(): Promise<boolean> {
    const next = await this.#chunks.next();
    if (next.done) return false;
    this.#rest = this.#rest.length === 0 ? next.value : Buffer.concat([this.#rest, next.value]);
    return true;
  }
}
