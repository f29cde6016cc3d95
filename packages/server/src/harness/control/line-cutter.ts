/** Cuts a byte stream into lines, blank ones too, and tells the position of the byte after each. Bytes may be split anywhere. */
export class LineCutter {
  readonly #maxBytes: number;
  readonly #onLine: (line: string, end: number) => void;
  readonly #onTooLong: () => void;
  #rest: Buffer[] = [];
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
      // Joined only here, so that a long line is not searched again with every chunk of it.
      const line = this.#restBytes === 0 ? part : Buffer.concat([...this.#rest, part]);
      if (line.length > this.#maxBytes) return this.#refuse();
      this.#rest = [];
      this.#restBytes = 0;
      this.#position += line.length + 1;
      from = at + 1;
      this.#onLine(line.toString('utf8'), this.#position);
    }
    if (this.#isStopped || from === chunk.length) return;
    this.#rest.push(chunk.subarray(from));
    this.#restBytes += chunk.length - from;
    if (this.#restBytes > this.#maxBytes) this.#refuse();
  }

  /** What follows begins there, with a whole line. */
  restart(position: number): void {
    this.#rest = [];
    this.#restBytes = 0;
    this.#position = position;
  }

  /** Nothing is read any more. */
  stop(): void {
    this.#isStopped = true;
    this.#rest = [];
  }

  #refuse(): void {
    this.stop();
    this.#onTooLong();
  }
}
