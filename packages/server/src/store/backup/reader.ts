import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { BackupError } from './format.ts';

const LINE_FEED = 10;
const LONGEST_LINE_BYTES = 1024 * 1024;
const TERMINATOR = Buffer.from('\\.');

/** Reads a backup line by line, in constant memory, and hashes what it has read. */
export class BackupReader {
  readonly #chunks: AsyncIterator<Buffer>;
  readonly #hash = createHash('sha256');
  #buffer: Buffer = Buffer.alloc(0);

  constructor(input: Readable) {
    const gunzip = createGunzip();
    input.on('error', (error) => gunzip.destroy(error));
    // An error that comes before the first read is kept by the stream, and thrown by that read.
    gunzip.on('error', () => {});
    this.#chunks = input.pipe(gunzip)[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
  }

  /** The next line as JSON, and the SHA-256 of everything before it. */
  async json(): Promise<{ line: Record<string, unknown>; sha256Before: string }> {
    const sha256Before = this.#hash.copy().digest('hex');
    let end = this.#buffer.indexOf(LINE_FEED);
    while (end < 0) {
      if (this.#buffer.length > LONGEST_LINE_BYTES)
        throw new BackupError('This is no backup of a Berth database.');
      if (!(await this.#more())) throw new BackupError('The backup is cut off: its end is missing.');
      end = this.#buffer.indexOf(LINE_FEED);
    }
    const line = this.#take(end + 1);
    try {
      return { line: JSON.parse(line.toString('utf8')) as Record<string, unknown>, sha256Before };
    } catch {
      throw new BackupError('The backup is damaged: a line of it cannot be read.');
    }
  }

  /** The rows up to the terminator, in pieces of whole lines; `counter.rows` counts them. */
  async *rows(counter: { rows: number }): AsyncGenerator<Buffer> {
    for (;;) {
      let start = 0;
      for (
        let end = this.#buffer.indexOf(LINE_FEED);
        end >= 0;
        end = this.#buffer.indexOf(LINE_FEED, start)
      ) {
        if (end - start === 2 && this.#buffer.subarray(start, end).equals(TERMINATOR)) {
          if (start > 0) yield this.#take(start);
          this.#take(3);
          return;
        }
        counter.rows += 1;
        start = end + 1;
      }
      if (start > 0) yield this.#take(start);
      if (!(await this.#more())) throw new BackupError('The backup is cut off in the middle of a table.');
    }
  }

  /** Nothing may follow the last line; this also makes gzip check its own sum. */
  async end(): Promise<void> {
    if (this.#buffer.length > 0 || (await this.#more()))
      throw new BackupError('The backup is damaged: something follows its end.');
  }

  #take(length: number): Buffer {
    const taken = this.#buffer.subarray(0, length);
    this.#hash.update(taken);
    this.#buffer = this.#buffer.subarray(length);
    return taken;
  }

  async #more(): Promise<boolean> {
    try {
      const next = await this.#chunks.next();
      if (next.done) return false;
      this.#buffer = this.#buffer.length === 0 ? next.value : Buffer.concat([this.#buffer, next.value]);
      return true;
    } catch (error) {
      throw new BackupError(`The backup is damaged or cut off: ${(error as Error).message}.`);
    }
  }
}
