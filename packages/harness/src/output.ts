/** Keeps the beginning and the end of a long output: both tell more than its middle. */
export class CappedOutput {
  readonly #headBytes: number;
  readonly #tailBytes: number;
  #head: Buffer[] = [];
  #headSize = 0;
  #tail: Buffer[] = [];
  #tailSize = 0;
  #total = 0;

  constructor(headBytes: number, tailBytes: number) {
    this.#headBytes = headBytes;
    this.#tailBytes = tailBytes;
  }

  get totalBytes(): number {
    return this.#total;
  }

  push(chunk: Buffer): void {
    this.#total += chunk.length;
    const room = this.#headBytes - this.#headSize;
    if (room > 0) {
      const part = chunk.subarray(0, room);
      // Copied, since a part would keep the whole chunk in memory.
      this.#head.push(Buffer.from(part));
      this.#headSize += part.length;
      chunk = chunk.subarray(part.length);
    }
    if (chunk.length === 0) return;
    this.#tail.push(chunk);
    this.#tailSize += chunk.length;
    if (this.#tailSize > 4 * this.#tailBytes) this.#shrinkTail();
  }

  text(): string {
    this.#shrinkTail();
    const dropped = this.#total - this.#headSize - this.#tailSize;
    const head = Buffer.concat(this.#head);
    const tail = Buffer.concat(this.#tail);
    if (dropped === 0) return Buffer.concat([head, tail]).toString('utf8');
    return `${wholeChars(head)}\n[... ${dropped} bytes left out ...]\n${wholeChars(tail)}`;
  }

  #shrinkTail(): void {
    if (this.#tailSize <= this.#tailBytes) return;
    const tail = Buffer.from(Buffer.concat(this.#tail).subarray(this.#tailSize - this.#tailBytes));
    this.#tail = [tail];
    this.#tailSize = tail.length;
  }
}

/** A cut inside a character leaves up to three bytes of it at either end. */
function wholeChars(bytes: Buffer): string {
  return bytes.toString('utf8').replace(/^\uFFFD{1,3}|\uFFFD{1,3}$/g, '');
}

export function capText(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  const half = Math.floor(maxChars / 2);
  return `${text.slice(0, half)}\n[... ${text.length - 2 * half} characters left out ...]\n${text.slice(-half)}`;
}
