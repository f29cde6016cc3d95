import { WireError } from './wires.ts';

const megabyte = 1024 * 1024;

/**
 * Bounds what callers can make this process hold: request bodies are kept until their call has ended. A sandbox that
 * opens many connections with large bodies gets 429, which clients answer by waiting.
 */
export class Load {
  readonly #bytesOf = new Map<string, number>();
  #allBytes = 0;
  readonly #perSandbox: number;
  readonly #all: number;

  constructor(perSandboxBytes = 64 * megabyte, allBytes = 512 * megabyte) {
    this.#perSandbox = perSandboxBytes;
    this.#all = allBytes;
  }

  /** Throws WireError `too_busy` when the bytes would be too many. */
  add(sandboxId: string, bytes: number): void {
    const held = this.#bytesOf.get(sandboxId) ?? 0;
    if (held + bytes > this.#perSandbox || this.#allBytes + bytes > this.#all) {
      throw new WireError(
        'too_busy',
        'Too many large model requests at once; try again when others have ended.',
      );
    }
    this.#bytesOf.set(sandboxId, held + bytes);
    this.#allBytes += bytes;
  }

  remove(sandboxId: string, bytes: number): void {
    const held = (this.#bytesOf.get(sandboxId) ?? 0) - bytes;
    if (held > 0) this.#bytesOf.set(sandboxId, held);
    else this.#bytesOf.delete(sandboxId);
    this.#allBytes -= bytes;
  }
}
