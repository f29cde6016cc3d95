import { StringDecoder } from 'node:string_decoder';

/** Cuts a byte stream into lines. Characters and lines may be split anywhere between chunks. */
export class LineReader {
  readonly #decoder = new StringDecoder('utf8');
  readonly #maxChars: number;
  readonly #onLine: (line: string) => void;
  readonly #onTooLong: () => void;
  #rest = '';
  #stopped = false;

  constructor(options: { maxChars: number; onLine: (line: string) => void; onTooLong: () => void }) {
    this.#maxChars = options.maxChars;
    this.#onLine = options.onLine;
    this.#onTooLong = options.onTooLong;
  }

  push(chunk: Buffer): void {
    if (this.#stopped) return;
    const text = this.#decoder.write(chunk);
    let from = 0;
    for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n', from)) {
      // Joined only here, so that a long line is not searched again with every chunk of it.
      const line = this.#rest === '' ? text.slice(from, end) : this.#rest + text.slice(from, end);
      this.#rest = '';
      from = end + 1;
      if (line.length > this.#maxChars) return this.#stop();
      if (line.trim() !== '') this.#onLine(line);
      if (this.#stopped) return;
    }
    if (from < text.length) this.#rest += text.slice(from);
    if (this.#rest.length > this.#maxChars) this.#stop();
  }

  /** Nothing is read any more. */
  stop(): void {
    this.#stopped = true;
    this.#rest = '';
  }

  #stop(): void {
    this.stop();
    this.#onTooLong();
  }
}
