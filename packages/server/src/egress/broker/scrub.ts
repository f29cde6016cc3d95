import { Transform, type TransformCallback } from 'node:stream';
import { Needles, type Place, type Scrub } from './needles.ts';

/** After so many places in one go others have their turn. */
const PLACES_PER_TURN = 200;

export interface ScrubValue {
  value: Buffer;
  placeholder: string;
}

/** All forms of some values, to be searched for. */
export interface Scrubs {
  readonly values: readonly ScrubValue[];
  readonly needles: Needles;
}

/** What an answer is searched for. Each list takes the place of the one before. */
export interface Search {
  readonly scrubs: Scrubs;
}

export function scrubsOf(values: readonly ScrubValue[]): Scrubs {
  const scrubs = new Map<string, Scrub>();
  for (const { value, placeholder } of values) {
    const instead = Buffer.from(placeholder, 'latin1');
    for (const form of formsOf(value)) scrubs.set(form, { bytes: Buffer.from(form, 'latin1'), instead });
  }
  return { values, needles: new Needles([...scrubs.values()]) };
}

export function areSameValues(some: readonly ScrubValue[], others: readonly ScrubValue[]): boolean {
  if (some.length !== others.length) return false;
  return some.every(({ value, placeholder }, index) => {
    const other = others[index]!;
    return placeholder === other.placeholder && value.equals(other.value);
  });
}

/** As it is; as JSON, HTML, a query and hex write it; and in base64, at each of the three places in its groups. */
function formsOf(value: Buffer): string[] {
  const plain = value.toString('latin1');
  const text = value.toString();
  const bytes = (written: string) => Buffer.from(written).toString('latin1');
  const json = JSON.stringify(text).slice(1, -1);
  const html = (quote: string, apostrophe: string, [and, less, more]: readonly [string, string, string]) =>
    text
      .replaceAll('&', and)
      .replaceAll('<', less)
      .replaceAll('>', more)
      .replaceAll('"', quote)
      .replaceAll("'", apostrophe);
  const uri = encodeURIComponent(text);
  const hex = value.toString('hex');
  const forms = [
    plain,
    bytes(json),
    bytes(json.replaceAll('/', '\\/')),
    bytes(json.replace(/[^\x20-\x7e]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`)),
    bytes(html('&#34;', '&#39;', ['&#38;', '&#60;', '&#62;'])),
    bytes(html('&quot;', '&#39;', ['&amp;', '&lt;', '&gt;'])),
    uri,
    uri.replaceAll('%20', '+'),
    hex,
    hex.toUpperCase(),
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
export function scrubText(scrubs: Scrubs, text: string): string {
  const scrubber = new Scrubber(false);
  scrubber.take(Buffer.from(text, 'latin1'));
  scrubber.run(scrubs.needles, { isEnd: true, places: Infinity });
  return Buffer.concat(scrubber.output()).toString('latin1');
}

/**
 * Replaces every byte that belongs to a form of a value: one placeholder for each stretch of forms that overlap, that of
 * the longest form that begins where the stretch does. What comes out does not depend on how the text was cut.
 */
class Scrubber {
  readonly #keepsLength: boolean;
  /** What has come from the first place on that is not decided, with room for more behind. */
  #text: Buffer = Buffer.alloc(0);
  #room: Buffer = Buffer.alloc(0);
  #needles: Needles | null = null;
  #place: Place | null = null;
  #at = 0;
  /** Up to here the text has been put out, or belongs to the stretch that is replaced. */
  #done = 0;
  #stretch: { instead: Buffer; bytes: number } = { instead: this.#room, bytes: 0 };
  #output: Buffer[] = [];

  constructor(keepsLength: boolean) {
    this.#keepsLength = keepsLength;
  }

  /** What was put out lies before what is held, and stays as it is. */
  take(chunk: Buffer): void {
    const held = this.#text.length;
    if (held === 0) {
      this.#text = chunk;
      this.#room = Buffer.alloc(0);
      return;
    }
    const size = held + chunk.length;
    if (this.#room.length < chunk.length) {
      const larger = Buffer.allocUnsafeSlow(2 * size);
      this.#text.copy(larger);
      this.#text = larger.subarray(0, held);
      this.#room = larger.subarray(held);
    }
    chunk.copy(this.#room);
    this.#text = Buffer.from(this.#text.buffer, this.#text.byteOffset, size);
    this.#room = this.#room.subarray(chunk.length);
  }

  /** False when there are more places to be looked at than `places`: then it is to be run again. */
  run(needles: Needles, { isEnd, places }: { isEnd: boolean; places: number }): boolean {
    if (needles !== this.#needles) this.#place = null;
    this.#needles = needles;
    const text = this.#text;
    let left = places;
    for (; (left -= 1) >= 0; this.#at += 1) {
      if (!this.#place) {
        this.#at = needles.next(text, this.#at);
        if (this.#at === text.length) break;
        this.#place = needles.begin(text, this.#at);
      }
      if (!needles.decide(this.#place, text, this.#at) && !isEnd) break;
      if (this.#place.best) this.#replace(this.#place.best);
      this.#place = null;
    }
    if (this.#at > this.#done) this.#put(this.#at);
    this.#text = text.subarray(this.#at);
    this.#done = Math.max(0, this.#done - this.#at);
    this.#at = 0;
    return left >= 0;
  }

  output(): Buffer[] {
    const output = this.#output;
    this.#output = [];
    return output;
  }

  #put(end: number): void {
    this.#output.push(this.#text.subarray(this.#done, end));
    this.#done = end;
  }

  #replace({ bytes, instead }: Scrub): void {
    const end = this.#at + bytes.length;
    const isNew = this.#at >= this.#done;
    if (end <= this.#done) return;
    if (this.#at > this.#done) this.#put(this.#at);
    if (isNew) this.#stretch = { instead, bytes: 0 };
    const stretch = this.#stretch;
    const size = end - this.#done;
    this.#done = end;
    if (this.#keepsLength) this.#output.push(fitted(stretch.instead.subarray(stretch.bytes), size));
    else if (isNew) this.#output.push(instead);
    stretch.bytes += size;
  }
}

/**
 * Replaces values in a stream. Of each piece only an end with which a value may begin is held back, so that events of
 * a slow stream are not delayed. `keepsLength`: what stands instead is cut or filled up, for protocols that count bytes.
 */
export class ScrubStream extends Transform {
  readonly #search: Search;
  readonly #scrubber: Scrubber;

  /** What the search is for may change meanwhile, and counts from the next piece on. */
  constructor(search: Search, keepsLength = false) {
    super();
    this.#search = search;
    this.#scrubber = new Scrubber(keepsLength);
  }

  override _transform(chunk: Buffer, _encoding: string, done: TransformCallback): void {
    this.#scrubber.take(chunk);
    this.#run(false, done);
  }

  override _flush(done: TransformCallback): void {
    this.#run(true, done);
  }

  #run(isEnd: boolean, done: TransformCallback): void {
    if (this.destroyed) return done();
    const { needles } = this.#search.scrubs;
    const isDone = this.#scrubber.run(needles, { isEnd, places: PLACES_PER_TURN });
    const output = this.#scrubber.output();
    const [first] = output;
    if (first) this.push(output.length === 1 ? first : Buffer.concat(output));
    if (isDone) done();
    else setImmediate(() => this.#run(isEnd, done));
  }
}

function fitted(text: Buffer, length: number): Buffer {
  return Buffer.alloc(length, '*').fill(text, 0, Math.min(text.length, length));
}
