export type Encoding = 'utf-8' | 'base64';
type Name = 'stdout' | 'stderr';

/** Turns the output of a command into text: for a stream part by part, and up to a limit as a whole. */
export function createOutput(encoding: Encoding, maxBytes: number) {
  const both = { stdout: new Output(encoding, maxBytes), stderr: new Output(encoding, maxBytes) };
  return {
    add: (name: Name, bytes: Buffer) => both[name].add(bytes),
    /** What has come since the last call, as text that stands alone. */
    parts: (name: Name): string[] => both[name].parts(false),
    rest: (name: Name): string[] => both[name].parts(true),
    end: () => ({
      stdout: both.stdout.whole(),
      stderr: both.stderr.whole(),
      encoding,
      truncated: both.stdout.isCut || both.stderr.isCut,
    }),
  };
}

class Output {
  isCut = false;
  readonly #encoding: Encoding;
  readonly #maxBytes: number;
  readonly #kept: Buffer[] = [];
  #keptBytes = 0;
  /** Waits to be told. */
  #waiting: Buffer[] = [];
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });

  constructor(encoding: Encoding, maxBytes: number) {
    this.#encoding = encoding;
    this.#maxBytes = maxBytes;
  }

  add(bytes: Buffer): void {
    this.#waiting.push(bytes);
    const room = this.#maxBytes - this.#keptBytes;
    if (bytes.length > room) this.isCut = true;
    if (room <= 0) return;
    const kept = bytes.subarray(0, room);
    this.#kept.push(kept);
    this.#keptBytes += kept.length;
  }

  /** A character that is cut by the end of a piece waits for the rest of it. */
  parts(isLast: boolean): string[] {
    const bytes = Buffer.concat(this.#waiting);
    this.#waiting = [];
    const text =
      this.#encoding === 'base64'
        ? bytes.toString('base64')
        : this.#decoder.decode(bytes, { stream: !isLast });
    return text === '' ? [] : [text];
  }

  whole(): string {
    const bytes = Buffer.concat(this.#kept);
    return bytes.toString(this.#encoding === 'base64' ? 'base64' : 'utf8');
  }
}
