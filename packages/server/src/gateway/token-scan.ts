import { maxKeyBytes, usageTrees } from './usage-paths.ts';
import type { PathNode, TokenCounts } from './usage-paths.ts';
import type { Wire } from './wires.ts';

const maxDepth = 12;

/**
 * Reads token counts out of an answer as its bytes pass: it never holds more than one key or number, whatever the
 * length of the stream, and builds no object. Depth is followed, because a model can be made to write a "usage" of its
 * own into the arguments of a tool; only those at the wire's own place count. The last value of a field wins, since
 * streams report running sums.
 */
export class TokenScan {
  readonly counts: TokenCounts = {
    input: -1,
    cached: -1,
    cacheWrite: -1,
    cacheWriteLong: -1,
    output: -1,
    reasoning: -1,
    total: -1,
  };
  /** Bytes of text, reasoning and tool arguments that the model wrote. */
  answerBytes = 0;
  /** Where the last of them stood: text, reasoning and tool arguments have places of their own on most wires. */
  #answerPlace: PathNode | null = null;

  readonly #root: PathNode;
  readonly #isSse: boolean;
  #line: 'prefix' | 'data' | 'other';
  #prefixAt = 0;
  /** The nodes of the objects and arrays that are open. */
  #stack: PathNode[] = [];
  /** How many more levels are open than `#stack` holds: nothing below is of interest. */
  #below = 0;
  #isArray: boolean[] = [];
  #node: PathNode | null = null;
  #inString = false;
  #escaped = false;
  #expectsKey = false;
  #isKey = false;
  #key = Buffer.alloc(maxKeyBytes);
  #keyBytes = 0;
  #number = -1;

  constructor(wire: Wire, isSse: boolean) {
    this.#root = usageTrees[wire];
    this.#isSse = isSse;
    this.#line = isSse ? 'prefix' : 'data';
    this.#reset();
  }

  /**
   * Returns whether it is the middle of a stream: more of a text, reasoning or arguments that have begun before, and nothing
   * new. What has none of them, as the events of the end, is not: somebody may wait for that.
   */
  feed(chunk: Buffer): boolean {
    const [place, bytes] = [this.#answerPlace, this.answerBytes];
    this.#feed(chunk);
    return this.#isSse && place !== null && place === this.#answerPlace && this.answerBytes > bytes;
  }

  #feed(chunk: Buffer): void {
    const length = chunk.length;
    let at = 0;
    while (at < length) {
      if (this.#inString) at = this.#string(chunk, at);
      else if (this.#line === 'data') this.#structure(chunk[at++] as number);
      else if (this.#line === 'other') {
        const end = chunk.indexOf(0x0a, at);
        at = end === -1 ? length : end + 1;
        if (end !== -1) this.#startLine();
      } else this.#prefix(chunk[at++] as number);
    }
  }

  #reset(): void {
    this.#stack.length = 0;
    this.#isArray.length = 0;
    this.#below = 0;
    this.#node = this.#root;
    this.#inString = false;
    this.#expectsKey = false;
    this.#number = -1;
  }

  #startLine(): void {
    this.#line = 'prefix';
    this.#prefixAt = 0;
  }

  /** An event's data is what follows `data:`; every other line of a stream is skipped (HTML, server-sent events). */
  #prefix(byte: number): void {
    if (byte === 'data:'.charCodeAt(this.#prefixAt)) {
      this.#prefixAt += 1;
      if (this.#prefixAt < 5) return;
      this.#line = 'data';
      this.#reset();
      return;
    }
    if (byte === 0x0a) this.#startLine();
    else if (byte !== 0x0d) this.#line = 'other';
  }

  /** Steps through a string; returns the place after what belongs to it in this chunk. */
  #string(chunk: Buffer, from: number): number {
    const length = chunk.length;
    let at = from;
    let escaped = this.#escaped;
    while (at < length) {
      const byte = chunk[at] as number;
      if (escaped) escaped = false;
      else if (byte === 0x5c) escaped = true;
      else if (byte === 0x22) break;
      else if (byte === 0x0a && this.#isSse) break;
      at += 1;
    }
    this.#escaped = escaped;
    if (this.#isKey) this.#keyPart(chunk, from, at);
    else if (this.#node?.isAnswer && at > from) {
      this.answerBytes += at - from;
      this.#answerPlace = this.#node;
    }
    if (at === length) return at;
    this.#inString = false;
    // A line end inside a string: the event is broken, the next one is read afresh.
    if (chunk[at] === 0x0a) this.#startLine();
    return at + 1;
  }

  /** A key that lies in one piece is compared where it is; one that was cut is put together first. */
  #keyPart(chunk: Buffer, from: number, to: number): void {
    const bytes = to - from;
    const ends = to < chunk.length;
    if (ends && this.#keyBytes === 0) {
      this.#endKey(chunk, from, bytes);
      return;
    }
    if (this.#keyBytes + bytes <= maxKeyBytes) chunk.copy(this.#key, this.#keyBytes, from, to);
    this.#keyBytes += bytes;
    if (ends) this.#endKey(this.#key, 0, this.#keyBytes);
  }

  #endKey(source: Buffer, from: number, bytes: number): void {
    this.#isKey = false;
    this.#expectsKey = false;
    this.#node = null;
    const parent = this.#stack.at(-1);
    if (!parent || bytes > maxKeyBytes || (parent.keyLengths & (1 << bytes)) === 0) return;
    this.#node = parent.children.get(source.toString('latin1', from, from + bytes)) ?? null;
  }

  #structure(byte: number): void {
    if (this.#number >= 0) {
      if (byte >= 0x30 && byte <= 0x39) {
        this.#number = this.#number * 10 + byte - 0x30;
        return;
      }
      this.#endNumber();
    }
    if (byte === 0x22) this.#openString();
    else if (byte === 0x7b) this.#open(false);
    else if (byte === 0x5b) this.#open(true);
    else if (byte === 0x7d || byte === 0x5d) this.#close();
    else if (byte === 0x2c) this.#separate();
    else if (byte === 0x0a && this.#isSse) this.#startLine();
    else if (byte >= 0x30 && byte <= 0x39 && this.#node?.field && this.#below === 0)
      this.#number = byte - 0x30;
  }

  #openString(): void {
    this.#inString = true;
    this.#escaped = false;
    this.#isKey = this.#expectsKey && this.#below === 0;
    this.#keyBytes = 0;
  }

  #open(isArray: boolean): void {
    const node = this.#node;
    if (this.#below > 0 || node === null || this.#stack.length >= maxDepth) {
      this.#below += 1;
      return;
    }
    this.#stack.push(node);
    this.#isArray.push(isArray);
    this.#expectsKey = !isArray;
    if (!isArray) this.#node = null;
  }

  #close(): void {
    if (this.#below > 0) {
      this.#below -= 1;
      return;
    }
    this.#stack.pop();
    this.#isArray.pop();
    this.#node = null;
    this.#expectsKey = false;
  }

  #separate(): void {
    if (this.#below > 0) return;
    const isArray = this.#isArray.at(-1) ?? true;
    this.#expectsKey = !isArray;
    // The elements of an array stand at the array's own place.
    this.#node = isArray ? (this.#stack.at(-1) ?? null) : null;
  }

  #endNumber(): void {
    const field = this.#node?.field;
    if (field && Number.isSafeInteger(this.#number)) this.counts[field] = this.#number;
    this.#number = -1;
    // What follows a digit run here (a fraction, an exponent) is not part of a token count.
    this.#node = null;
  }
}
