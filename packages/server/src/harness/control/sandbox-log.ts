import { cleanText } from '../../domain/clean-text.ts';

export interface LogLine {
  number: number;
  at: Date;
  text: string;
}

const maxLines = 1000;
const maxLineChars = 4000;
/** More characters than that, whichever they are. */
const maxLineBytes = 4 * maxLineChars;
/** What a sandbox may add: a burst, and then so much a second. What is beyond is not kept. */
const burstChars = 512 * 1024;
const charsPerSecond = 32 * 1024;

/** The last lines that a sandbox wrote to its log. */
export class SandboxLog {
  #lines: LogLine[] = [];
  #number = 0;
  #budget = burstChars;
  #filledMs = Date.now();
  #waiters = new Set<() => void>();
  #isClosed = false;

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** A line in UTF-8. */
  push(bytes: Buffer): void {
    const nowMs = Date.now();
    this.#budget = Math.min(burstChars, this.#budget + ((nowMs - this.#filledMs) / 1000) * charsPerSecond);
    this.#filledMs = nowMs;
    const text = bytes.toString('utf8', 0, maxLineBytes);
    const line = cleanText(text.slice(0, maxLineChars));
    this.#budget -= line.length + 32;
    if (this.#budget >= 0) this.note(line);
  }

  /** A line of the service's own. */
  note(text: string): void {
    this.#number += 1;
    this.#lines.push({ number: this.#number, at: new Date(), text });
    if (this.#lines.length > maxLines) this.#lines.shift();
    this.#wake();
  }

  /** The kept lines after a number, oldest first. */
  after(number: number): LogLine[] {
    return this.#lines.filter((line) => line.number > number);
  }

  /** Resolves when there may be more, or never will be. */
  changed(signal: AbortSignal): Promise<void> {
    if (this.#isClosed || signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const done = () => {
        this.#waiters.delete(done);
        signal.removeEventListener('abort', done);
        resolve();
      };
      this.#waiters.add(done);
      signal.addEventListener('abort', done, { once: true });
    });
  }

  close(): void {
    this.#isClosed = true;
    this.#wake();
  }

  #wake(): void {
    for (const waiter of this.#waiters) waiter();
  }
}
