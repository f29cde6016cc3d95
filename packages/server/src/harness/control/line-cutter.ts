/** Cuts a byte stream into lines, blank ones too, and tells the position of the byte after each. Bytes may be split anywhere. */
export class LineCutter {
  readonly #maxBytes: number;
  readonly #onLine: (line: string, end: number) => void;
  readonly #onTooLong: () => void;
  /** The beginning of a line whose end is not there, in one piece with room for more: it may come byte by byte. */
  #rest = Buffer.alloc(0);
  #restBytes = 0;
  #position = 0;
  #isStopped = false;

  constructor(options: {
    maxBytes: number;
    onLine: (line: string, end: number) => void;
    onTooLong: () => void;
  }) {
    this.#maxBytes = options.maxBytes;
    this.#onLine = options.onLine;
    this.#onTooLong = options.onTooLong;
  }

  /** Of the byte after the last whole line. */
  get position(): number {
    return this.#position;
  }

  push(chunk: Buffer): void {
    let from = 0;
    for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, from)) {
      if (this.#isStopped) return;
      const part = chunk.subarray(from, at);
      if (this.#restBytes + part.length > this.#maxBytes) return this.#refuse();
      const line = this.#restBytes === 0 ? part : this.#joined(part);
      this.#forget();
      this.#position += line.length + 1;
      from = at + 1;
      this.#onLine(line.toString('utf8'), this.#position);
    }
    if (this.#isStopped || from === chunk.length) return;
    if (this.#restBytes + chunk.length - from > this.#maxBytes) this.#refuse();
    else this.#joined(chunk.subarray(from));
  }

  /** What follows begins there, with a whole line. */
  restart(position: number): void {
    this.#forget();
    this.#position = position;
  }

  /** Nothing is read any more. */
  stop(): void {
    this.#isStopped = true;
    this.#forget();
  }

  /** The rest, now with the part. */
  #joined(part: Buffer): Buffer {
    const bytes = this.#restBytes + part.length;
    if (bytes > this.#rest.length) {
      const roomy = Buffer.allocUnsafe(Math.max(bytes, Math.min(2 * this.#rest.length, this.#maxBytes)));
      this.#rest.copy(roomy, 0, 0, this.#restBytes);
      this.#rest = roomy;
    }
    part.copy(this.#rest, this.#restBytes);
    this.#restBytes = bytes;
    return this.#rest.subarray(0, bytes);
  }

  #forget(): void {
    this.#rest = Buffer.alloc(0);
    this.#restBytes = 0;
  }

  #refuse(): void {
    this.stop();
    this.#onTooLong();
  }
}
