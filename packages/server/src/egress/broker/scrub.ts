import { Transform, type TransformCallback } from 'node:stream';
import { Needle } from './needle.ts';
import { Needles } from './needles.ts';

/** From which size on a look for all at once is cheaper than one for each. */
const LARGE_BYTES = 4096;

/** One form in which a value may come back, and what stands there instead. */
export interface Scrub {
  needle: Needle;
  instead: Buffer;
}

/** What an answer is searched for. Each list takes the place of the one before. */
export interface Search {
  readonly scrubs: readonly Scrub[];
}

/** A placeholder in a header or a short text would be damaged by a shorter match inside a longer one: longest first. */
export function scrubsOf(values: { value: Buffer; placeholder: string }[]): Scrub[] {
  const scrubs = new Map<string, Scrub>();
  for (const { value, placeholder } of values) {
    for (const form of formsOf(value)) {
      scrubs.set(form, {
        needle: new Needle(Buffer.from(form, 'latin1')),
        instead: Buffer.from(placeholder, 'latin1'),
      });
    }
  }
  return [...scrubs.values()].sort((a, b) => b.needle.bytes.length - a.needle.bytes.length);
}

/** As it is; as JSON, HTML, a query and hex write it; and in base64, at each of the three places in its groups. */
function formsOf(value: Buffer): string[] {
  const plain = value.toString('latin1');
  const text = value.toString();
  const bytes = (written: string) => Buffer.from(written).toString('latin1');
  const json = JSON.stringify(text).slice(1, -1);
  const html = text.replace(/[&<>"']/g, (char) => `&#${char.codePointAt(0)};`);
  const named = text
    .replace(/&/g, '&amp;')
    .replace(/</g, '&lt;')
    .replace(/>/g, '&gt;')
    .replace(/"/g, '&quot;')
    .replace(/'/g, '&#39;');
  const forms = [
    plain,
    bytes(json),
    bytes(json.replaceAll('/', '\\/')),
    bytes(json.replace(/[^\x20-\x7e]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`)),
    bytes(html),
    bytes(named),
    encodeURIComponent(text),
    encodeURIComponent(text).replaceAll('%20', '+'),
    value.toString('hex'),
    value.toString('hex').toUpperCase(),
    ...[0, 1, 2].flatMap((shift) => base64At(value, shift)),
  ];
  return [...new Set(forms)];
}

/** Only what does not depend on the bytes around. */
function base64At(value: Buffer, shift: number): string[] {
  const encoded = Buffer.concat([Buffer.alloc(shift), value])
    .toString('base64')
    .replace(/=+$/, '');
  const before = [0, 2, 3][shift]!;
  const spare = (shift + value.length) % 3 === 0 ? 0 : 1;
  const inner = encoded.slice(before, encoded.length - spare);
  return [inner, inner.replaceAll('+', '-').replaceAll('/', '_')];
}

/** For header values and other short texts, one character a byte. */
export function scrubText(scrubs: readonly Scrub[], text: string): string {
  return scrubs.reduce(
    (cleaned, { needle, instead }) =>
      cleaned.replaceAll(needle.bytes.toString('latin1'), () => instead.toString('latin1')),
    text,
  );
}

/**
 * Replaces values in a stream. Of each piece only an end with which a value may begin is held back, so that events of
 * a slow stream are not delayed. `keepsLength`: what stands instead is cut or filled up, for protocols that count bytes.
 */
export class ScrubStream extends Transform {
  readonly #search: Search;
  readonly #keepsLength: boolean;
  #held: Buffer = Buffer.alloc(0);
  /** Made for the first large piece of each list. */
  #needles: { of: readonly Scrub[]; all: Needles } | null = null;

  /** What the search is for may change meanwhile, and counts from the next piece on. */
  constructor(search: Search, keepsLength = false) {
    super();
    this.#search = search;
    this.#keepsLength = keepsLength;
  }

  override _transform(chunk: Buffer, _encoding: string, done: TransformCallback): void {
    const { scrubs } = this.#search;
    let bytes = this.#held.length > 0 ? Buffer.concat([this.#held, chunk]) : chunk;
    if (this.#mayHoldAny(bytes, scrubs)) for (const scrub of scrubs) bytes = this.#replaced(bytes, scrub);
    const held = scrubs.reduce((most, { needle }) => Math.max(most, needle.overlapWith(bytes)), 0);
    this.#held = bytes.subarray(bytes.length - held);
    if (bytes.length > held) this.push(bytes.subarray(0, bytes.length - held));
    done();
  }

  override _flush(done: TransformCallback): void {
    if (this.#held.length > 0) this.push(this.#held);
    done();
  }

  #mayHoldAny(bytes: Buffer, scrubs: readonly Scrub[]): boolean {
    if (bytes.length < LARGE_BYTES || scrubs.length === 0) return true;
    if (this.#needles?.of !== scrubs) {
      this.#needles = { of: scrubs, all: new Needles(scrubs.map(({ needle }) => needle)) };
    }
    return this.#needles.all.mayBeIn(bytes);
  }

  #replaced(bytes: Buffer, { needle, instead }: Scrub): Buffer {
    const places = needle.placesIn(bytes);
    if (places.length === 0) return bytes;
    const { length } = needle.bytes;
    const text = this.#keepsLength ? fitted(instead, length) : instead;
    const parts: Buffer[] = [];
    let from = 0;
    for (const at of places) {
      parts.push(bytes.subarray(from, at), text);
      from = at + length;
    }
    parts.push(bytes.subarray(from));
    return Buffer.concat(parts);
  }
}

function fitted(text: Buffer, length: number): Buffer {
  return Buffer.alloc(length, '*').fill(text, 0, Math.min(text.length, length));
}
