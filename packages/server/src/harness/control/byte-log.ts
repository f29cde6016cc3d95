/** Bytes that were sent and may have to be sent again; positions count from the first byte ever written. */
export class ByteLog {
  #chunks: Buffer[] = [];
  #base = 0;
  #end: number;

  constructor(base = 0) {
    this.#base = base;
    this.#end = base;
  }

  /** Of the first byte that is kept. */
  get base(): number {
    return this.#base;
  }

  get end(): number {
    return this.#end;
  }

  get bytes(): number {
    return this.#end - this.#base;
  }

  push(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#end += chunk.length;
  }

  /** The other side has everything before `position`. A position that was never sent, or is forgotten, changes nothing. */
  forget(position: number): void {
    if (position > this.#end) return;
    while (this.#base < position) {
      const first = this.#chunks[0]!;
      const gone = Math.min(first.length, position - this.#base);
      if (gone === first.length) this.#chunks.shift();
      else this.#chunks[0] = first.subarray(gone);
      this.#base += gone;
    }
  }

  *chunks(): Iterable<Buffer> {
    yield* this.#chunks;
  }
}
