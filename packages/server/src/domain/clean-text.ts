/** Makes a text that a harness or a model produced storable: U+0000 and lone surrogates become U+FFFD. */
export function cleanText(text: string): string {
  const wellFormed = text.isWellFormed() ? text : text.toWellFormed();
  return wellFormed.includes('\u0000') ? withoutNul(wellFormed) : wellFormed;
}

/** By its code units: a replacement of each takes a tenth of a microsecond, and somebody may send nothing else. */
function withoutNul(text: string): string {
  const units = new Uint16Array(text.length);
  for (let at = 0; at < units.length; at += 1) units[at] = text.charCodeAt(at) || 0xfffd;
  return Buffer.from(units.buffer).toString('utf16le');
}

/** The same over a text that comes in parts: a surrogate pair that is split between two parts stays whole. */
export class TextCleaner {
  #held = '';

  /** The first half of a pair waits for the other. */
  get isHolding(): boolean {
    return this.#held !== '';
  }

  push(part: string): string {
    const text = this.#held + part;
    const last = text.charCodeAt(text.length - 1);
    const isSplit = last >= 0xd800 && last <= 0xdbff;
    this.#held = isSplit ? text.slice(-1) : '';
    return cleanText(isSplit ? text.slice(0, -1) : text);
  }

  end(): string {
    const rest = cleanText(this.#held);
    this.#held = '';
    return rest;
  }
}

/** Cleans every text inside a JSON value. Depth is bounded, since the value comes from a harness. */
export function cleanValue(value: unknown, depth = 0): unknown {
  if (typeof value === 'string') return cleanText(value);
  if (value === null || typeof value !== 'object') return value;
  if (depth > 20) return null;
  if (Array.isArray(value)) return value.map((item) => cleanValue(item, depth + 1));
  const clean: Record<string, unknown> = {};
  for (const [key, item] of Object.entries(value)) clean[cleanText(key)] = cleanValue(item, depth + 1);
  return clean;
}
