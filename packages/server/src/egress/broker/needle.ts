/** By so many bytes a place is judged before all of it is compared. */
const PREFIX = 16;
/** After so many places that only looked like it, a slower search takes over whose effort has a limit. */
const MAX_MISSES = 64;

/**
 * A byte string to be found in others. Looking for it takes time in proportion to what is searched, whatever both are
 * made of: values are chosen by one tenant, and what is searched is sent by another.
 */
export class Needle {
  readonly bytes: Buffer;
  readonly #prefix: Buffer;
  #failure: Int32Array | null = null;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
    this.#prefix = bytes.subarray(0, PREFIX);
  }

  /** Where it stands, from left to right, no place within another. */
  placesIn(text: Buffer): number[] {
    const places: number[] = [];
    const { bytes } = this;
    let misses = 0;
    for (let at = text.indexOf(this.#prefix); at !== -1;) {
      const isHere =
        at + bytes.length <= text.length && text.compare(bytes, 0, bytes.length, at, at + bytes.length) === 0;
      if (isHere) places.push(at);
      else if ((misses += 1) > MAX_MISSES) return this.#walk(text).places;
      at = text.indexOf(this.#prefix, isHere ? at + bytes.length : at + 1);
    }
    return places;
  }

  /** How many bytes at the end of `text` are its beginning, but not all of it. */
  overlapWith(text: Buffer): number {
    const tail = text.subarray(Math.max(0, text.length - this.bytes.length + 1));
    let misses = 0;
    for (let at = tail.indexOf(this.bytes[0]!); at !== -1; at = tail.indexOf(this.bytes[0]!, at + 1)) {
      const size = tail.length - at;
      if (tail.compare(this.bytes, 0, size, at) === 0) return size;
      if ((misses += 1) > MAX_MISSES) return this.#walk(tail).state;
    }
    return 0;
  }

  /** Knuth, Morris and Pratt: each byte of the text is looked at once. */
  #walk(text: Buffer): { places: number[]; state: number } {
    const { bytes } = this;
    const failure = (this.#failure ??= failureOf(bytes));
    const places: number[] = [];
    let state = 0;
    for (let at = 0; at < text.length; at += 1) {
      while (state > 0 && text[at] !== bytes[state]) state = failure[state - 1]!;
      if (text[at] === bytes[state]) state += 1;
      if (state < bytes.length) continue;
      places.push(at - bytes.length + 1);
      state = 0;
    }
    return { places, state };
  }
}

/** For each end of a prefix, how long the prefix is that ends there as well. */
function failureOf(bytes: Buffer): Int32Array {
  const failure = new Int32Array(bytes.length);
  let state = 0;
  for (let at = 1; at < bytes.length; at += 1) {
    while (state > 0 && bytes[at] !== bytes[state]) state = failure[state - 1]!;
    if (bytes[at] === bytes[state]) state += 1;
    failure[at] = state;
  }
  return failure;
}
