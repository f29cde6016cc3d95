/** A form in which a value may come back, and what stands there instead. No form is shorter than three bytes. */
export interface Scrub {
  bytes: Buffer;
  instead: Buffer;
}

const BLOCK = 3;
const MAX_WINDOW = 64;
/** Up to here a comparison here is cheaper than one by a call. */
const SHORT = 24;

/**
 * What is known of the place where a form may begin: the forms from `low` to before `high`, in their order, agree with
 * the first `size` bytes there. `best` is the longest that stands there whole.
 */
export interface Place {
  low: number;
  high: number;
  size: number;
  best: Scrub | null;
}

/**
 * Finds the longest of many byte strings at each place of a text that comes in pieces. The forms lie in order, so that
 * those that a place may still become are neighbours, and what these have in common is compared once, whatever their
 * number: they are chosen by one tenant, and what is searched is sent by another.
 */
export class Needles {
  readonly #sorted: Scrub[];
  /** By two bytes: the first form that does not come before them. */
  readonly #firsts = new Uint16Array(65_536 + 1);
  readonly #window: number;
  /** By the hash of a block: how far the window may move when it ends with it (Wu and Manber, 1994). */
  readonly #moves = new Uint8Array(65_536);
  /** By `low` and `high`: how many bytes those forms begin with in common. */
  readonly #common = new Map<number, number>();

  constructor(scrubs: readonly Scrub[]) {
    const sorted = scrubs.toSorted((a, b) => a.bytes.compare(b.bytes));
    this.#sorted = sorted;
    const window = Math.min(MAX_WINDOW, ...sorted.map(({ bytes }) => bytes.length));
    this.#window = window;
    this.#moves.fill(window - BLOCK + 1);
    let pair = 0;
    for (const [index, { bytes }] of sorted.entries()) {
      const own = (bytes[0]! << 8) | bytes[1]!;
      while (pair <= own) this.#firsts[pair++] = index;
      for (let end = BLOCK - 1; end < window; end += 1) {
        const hash = hashAt(bytes, end);
        this.#moves[hash] = Math.min(this.#moves[hash]!, window - 1 - end);
      }
    }
    this.#firsts.fill(sorted.length, pair);
  }

  get isEmpty(): boolean {
    return this.#sorted.length === 0;
  }

  /** The first place from `at` on where a form may begin; the length of the text when there is none. */
  next(text: Buffer, at: number): number {
    const { length } = text;
    if (this.isEmpty) return length;
    const window = this.#window;
    let end = at + window - 1;
    while (end < length) {
      const move = this.#moves[hashAt(text, end)]!;
      if (move === 0 && this.#mayBegin(text, end - window + 1)) return end - window + 1;
      end += Math.max(move, 1);
    }
    for (let start = end - window + 1; start < length; start += 1)
      if (this.#mayBegin(text, start)) return start;
    return length;
  }

  begin(text: Buffer, at: number): Place {
    const first = text[at]! << 8;
    const isPair = at + 1 < text.length;
    const pair = isPair ? first | text[at + 1]! : first;
    const low = this.#firsts[pair]!;
    return { low, high: this.#firsts[pair + (isPair ? 1 : 256)]!, size: isPair ? 2 : 1, best: null };
  }

  /** Whether `place` at `at` is decided by the bytes that are there. `place` goes on where it was with more of them. */
  decide(place: Place, text: Buffer, at: number): boolean {
    let isFresh = true;
    while (place.low < place.high) {
      const first = this.#sorted[place.low]!;
      if (first.bytes.length === place.size) {
        place.best = first;
        place.low += 1;
        continue;
      }
      const rest = text.length - at;
      if (place.size === rest) return false;
      const common = this.#commonOf(place.low, place.high);
      if (common === place.size) {
        this.#narrow(place, text[at + place.size]!);
        continue;
      }
      const { bytes: last } = this.#sorted[place.high - 1]!;
      // What has the last of them as its beginning would come after it: none is longer.
      if (isFresh && last.length <= rest && isSame(last, text, place.size, last.length, at)) {
        place.best = this.#sorted[place.high - 1]!;
        return true;
      }
      isFresh = false;
      const size = Math.min(common, rest);
      if (!isSame(first.bytes, text, place.size, size, at)) return true;
      place.size = size;
    }
    return true;
  }

  #mayBegin(text: Buffer, at: number): boolean {
    const { low, high } = this.begin(text, at);
    return low < high;
  }

  /** To the forms that go on with `byte`. */
  #narrow(place: Place, byte: number): void {
    const { low, high, size } = place;
    place.low = this.#firstFrom(low, high, size, byte);
    place.high = this.#firstFrom(place.low, high, size, byte + 1);
    place.size = size + 1;
  }

  #firstFrom(from: number, to: number, size: number, byte: number): number {
    let low = from;
    let high = to;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#sorted[middle]!.bytes[size]! < byte) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #commonOf(low: number, high: number): number {
    const key = low * 65_536 + high;
    const known = this.#common.get(key);
    if (known !== undefined) return known;
    const common = commonLength(this.#sorted[low]!.bytes, this.#sorted[high - 1]!.bytes);
    this.#common.set(key, common);
    return common;
  }
}

const hashAt = (bytes: Buffer, end: number): number =>
  Math.imul((bytes[end - 2]! << 16) | (bytes[end - 1]! << 8) | bytes[end]!, 0x9e3779b1) >>> 16;

function isSame(bytes: Buffer, text: Buffer, from: number, to: number, at: number): boolean {
  if (to - from > SHORT) return text.compare(bytes, from, to, at + from, at + to) === 0;
  for (let index = from; index < to; index += 1) if (bytes[index] !== text[at + index]) return false;
  return true;
}

function commonLength(a: Buffer, b: Buffer): number {
  let same = 0;
  let other = Math.min(a.length, b.length) + 1;
  // Halving: `same` bytes are the same, and `other` are not.
  while (other - same > 1) {
    const middle = (same + other) >>> 1;
    if (a.compare(b, same, middle, same, middle) === 0) same = middle;
    else other = middle;
  }
  return same;
}
