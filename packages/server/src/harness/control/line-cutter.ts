import { GrowingBytes } from '../../domain/growing-bytes.ts';

const nothing = Buffer.alloc(0);

/** Cuts a byte stream into lines, blank ones too, and tells the position of the byte after each. Bytes may be split anywhere. */
export class LineCutter {
  readonly #maxBytes: number;
  readonly #onLine: (line: string, end: number) => void;
  readonly #onTooLong: () => void;
  readonly #isHeld: () => boolean;
  /** The beginning of a line whose end is not there. */
  readonly #rest: GrowingBytes;
  /** Came while it was held. */
  #waiting: Buffer = nothing;
  #position = 0;
  #isStopped = false;

  constructor(options: {
    maxBytes: number;
    onLine: (line: string, end: number) => void;
    onTooLong: () => void;
    /** Asked before each line: while it is, what is left waits for `goOn`. */
    isHeld: () => boolean;
  }) {
    this.#maxBytes = options.maxBytes;
    this.#rest = new GrowingBytes(options.maxBytes);
    this.#onLine = options.onLine;
    this.#onTooLong = options.onTooLong;
    this.#isHeld = options.isHeld;
  }

  /** Of the byte after the last whole line. */
  get position(): number {
    return this.#position;
  }

  push(bytes: Buffer): void {
    const chunk = this.#waiting.length === 0 ? bytes : Buffer.concat([this.#waiting, bytes]);
    this.#waiting = nothing;
    let from = 0;
    for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, from)) {
      if (this.#isStopped) return;
      if (this.#isHeld()) {
        this.#waiting = chunk.subarray(from);
        return;
      }
      const part = chunk.subarray(from, at);
      if (this.#rest.length + part.length > this.#maxBytes) return this.#refuse();
      this.#rest.add(part);
      const line = this.#rest.whole();
      this.#rest.clear();
      this.#position += line.length + 1;
      from = at + 1;
      this.#onLine(line.toString('utf8'), this.#position);
    }
    if (this.#isStopped || from === chunk.length) return;
    if (this.#rest.length + chunk.length - from > this.#maxBytes) this.#refuse();
    else this.#rest.add(chunk.subarray(from));
  }

  /** Takes what waits, until it is held again. */
  goOn(): void {
    if (this.#waiting.length > 0) this.push(nothing);
  }

  /** What follows begins there, with a whole line. */
  restart(position: number): void {
    this.#rest.clear();
    this.#waiting = nothing;
    this.#position = position;
  }

  /** Nothing is read any more. */
  stop(): void {
    this.#isStopped = true;
    this.#waiting = nothing;
    this.#rest.clear();
  }

  #refuse(): void {
    this.stop();
    this.#onTooLong();
  }
}
