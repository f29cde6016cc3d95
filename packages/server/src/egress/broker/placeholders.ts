import { createHmac } from 'node:crypto';

/** What stands in a sandbox for a brokered value: 49 letters, digits and underscores, as many tokens look. */
const PREFIX = 'berth_ph_';
const placeholderPattern = new RegExp(`${PREFIX}[0-9a-f]{40}`, 'g');
export const placeholderChars = PREFIX.length + 40;

/** From random bytes of this start and the name, never from the value: another start has other placeholders. */
export function placeholderOf(seed: Buffer, key: string): string {
  return PREFIX + createHmac('sha256', seed).update(`placeholder:${key}`).digest('hex').slice(0, 40);
}

/** The placeholders of one sandbox. */
export class Placeholders {
  readonly #seed: Buffer;
  readonly #keys = new Map<string, string>();
  readonly #texts = new Map<string, string>();

  constructor(seed: Buffer, keys: readonly string[]) {
    this.#seed = seed;
    for (const key of keys) {
      const text = placeholderOf(seed, key);
      this.#keys.set(text, key);
      this.#texts.set(key, text);
    }
  }

  /** Of a secret that the sandbox was not started with, too: what stands instead of a value that is told there. */
  textOf(key: string): string {
    return this.#texts.get(key) ?? placeholderOf(this.#seed, key);
  }

  /** The names of the secrets whose placeholder stands in the text. What merely looks like one is none. */
  in(text: string): Set<string> {
    const found = new Set<string>();
    if (!text.includes(PREFIX)) return found;
    for (const [match] of text.matchAll(placeholderPattern)) {
      const key = this.#keys.get(match);
      if (key !== undefined) found.add(key);
    }
    return found;
  }

  /** Every placeholder replaced by what `valueOf` says for its secret. */
  replace(text: string, valueOf: (key: string) => string): string {
    return text.replace(placeholderPattern, (match) => {
      const key = this.#keys.get(match);
      return key === undefined ? match : valueOf(key);
    });
  }
}

/** Finds placeholders in a body that comes in pieces, also where one is cut in two. Holds nothing back. */
export class PlaceholderWatch {
  readonly #placeholders: Placeholders;
  #tail = '';

  constructor(placeholders: Placeholders) {
    this.#placeholders = placeholders;
  }

  push(chunk: Buffer): Set<string> {
    const text = this.#tail + chunk.toString('latin1');
    this.#tail = text.slice(-(placeholderChars - 1));
    return this.#placeholders.in(text);
  }
}
