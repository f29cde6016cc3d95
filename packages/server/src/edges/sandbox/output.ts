import { KeptBytes } from '../../domain/kept-bytes.ts';

export type Encoding = 'utf-8' | 'base64';

type Name = 'stdout' | 'stderr';

/** Turns the output of a command into text: for a stream part by part, and up to a limit as a whole. */
export function createOutput(encoding: Encoding, maxBytes: number) {
  const both = { stdout: new Output(encoding, maxBytes), stderr: new Output(encoding, maxBytes) };
  return {
    add: (name: Name, bytes: Buffer) => both[name].add(bytes),
    /** As text that stands alone. */
    text: (name: Name, bytes: Buffer): string[] => both[name].text(bytes),
    /** What waited for more. */
    rest: (name: Name): string[] => both[name].text(null),
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
  readonly #kept = new KeptBytes();
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });

  constructor(encoding: Encoding, maxBytes: number) {
    this.#encoding = encoding;
    this.#maxBytes = maxBytes;
  }

  add(bytes: Buffer): void {
    const room = this.#maxBytes - this.#kept.bytes;
    if (bytes.length > room) this.isCut = true;
    if (room <= 0) return;
    this.#kept.add(bytes.subarray(0, room));
  }

  /** A character that is cut by the end of a piece waits for the rest of it. */
  text(bytes: Buffer | null): string[] {
    const text =
      this.#encoding === 'base64'
        ? (bytes?.toString('base64') ?? '')
        : this.#decoder.decode(bytes ?? Buffer.alloc(0), { stream: bytes !== null });
    return text === '' ? [] : [text];
  }

  whole(): string {
    const bytes = this.#kept.whole();
    return bytes.toString(this.#encoding === 'base64' ? 'base64' : 'utf8');
  }
}
