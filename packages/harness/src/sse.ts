import { StringDecoder } from 'node:string_decoder';

const maxLineChars = 16 * 1024 * 1024;

/**
 * Server-sent events, read incrementally (WHATWG HTML, section 9.2). Only `data` matters here: both wires repeat the
 * event's type inside. A character or a line may be cut anywhere between two chunks.
 */
export class SseReader {
  readonly #decoder = new StringDecoder('utf8');
  readonly #onData: (data: string) => void;
  #rest = '';
  #data: string | null = null;

  constructor(onData: (data: string) => void) {
    this.#onData = onData;
  }

  push(chunk: Buffer): void {
    const text = this.#decoder.write(chunk);
    let from = 0;
    for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n', from)) {
      // Joined only here: a long line that comes in many chunks is not searched again from its start.
      const line = this.#rest === '' ? text.slice(from, end) : this.#rest + text.slice(from, end);
      this.#rest = '';
      from = end + 1;
      this.#line(line.endsWith('\r') ? line.slice(0, -1) : line);
    }
    if (from < text.length) this.#rest += from === 0 ? text : text.slice(from);
    if (this.#rest.length > maxLineChars) throw new Error('The model sent a line without an end.');
  }

  /** A last event without its empty line still counts, since some servers close right after it. */
  end(): void {
    if (this.#rest !== '') this.#line(this.#rest);
    this.#rest = '';
    this.#line('');
  }

  #line(line: string): void {
    if (line === '') {
      const data = this.#data;
      this.#data = null;
      if (data !== null) this.#onData(data);
      return;
    }
    if (!line.startsWith('data:')) return;
    const value = line.charCodeAt(5) === 32 ? line.slice(6) : line.slice(5);
    this.#data = this.#data === null ? value : `${this.#data}\n${value}`;
  }
}
