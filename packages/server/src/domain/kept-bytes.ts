const BLOCK_BYTES = 16 * 1024;

/**
 * Bytes that come in pieces and are kept, the last of them when there is a bound. Small pieces are put together: a program
 * that writes a byte at a time would else have the service keep an object, and the memory that it was cut from, for each.
 */
export class KeptBytes {
  readonly #maxBytes: number;
  #blocks: Buffer[] = [];
  /** How much of the last block is used. */
  #end = 0;
  #bytes = 0;

  /** Drops whole blocks from the beginning as long as at least `maxBytes` stay. */
  constructor(maxBytes = Infinity) {
    this.#maxBytes = maxBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  add(bytes: Buffer): void {
    for (let at = 0; at < bytes.length;) {
      let block = this.#blocks.at(-1);
      if (!block || this.#end === block.length) {
        block = Buffer.allocUnsafeSlow(BLOCK_BYTES);
        this.#blocks.push(block);
        this.#end = 0;
      }
      const copied = bytes.copy(block, this.#end, at);
      at += copied;
      this.#end += copied;
      this.#bytes += copied;
    }
    while (this.#blocks.length > 1 && this.#bytes - BLOCK_BYTES >= this.#maxBytes) {
      this.#blocks.shift();
      this.#bytes -= BLOCK_BYTES;
    }
  }

  whole(): Buffer {
    return Buffer.concat(this.#blocks, this.#bytes);
  }

  clear(): void {
    this.#blocks = [];
    this.#end = 0;
    this.#bytes = 0;
  }
}
