import { limits } from './limits.ts';
import type { Sliced } from './slices.ts';

export interface JsonShape {
  /** Objects and lists are in each other deeper than any request has reason to be. */
  isTooDeep: boolean;
  /** It names and holds more than any request has reason to; the rest was not looked at. */
  hasTooMany: boolean;
  /** So many names and values at most. */
  values: number;
}

/** Of objects and lists in each other, and of names and values. */
export interface ShapeLimits {
  depth: number;
  values: number;
}

const ofRequests: ShapeLimits = { depth: limits.jsonDepth, values: limits.jsonValues };

/** What is told of a text that `hasTooMany`. */
export const tooManyValues = (what: string): string =>
  `${what} has more than ${limits.jsonValues} names and values; send less at once, or what is much as one text.`;

const part = 0;
const between = 1;
const opening = 2;
const closing = 3;
const quote = 4;

/** What a character outside of texts is; what is none of these is part of a number or of a word. */
const kinds = new Uint8Array(128);
for (const character of ' \t\r\n,:') kinds[character.charCodeAt(0)] = between;
for (const character of '[{') kinds[character.charCodeAt(0)] = opening;
for (const character of ']}') kinds[character.charCodeAt(0)] = closing;
kinds[0x22] = quote;

/** Characters after which the look gives way, in about a quarter of a millisecond. */
const stepChars = 128 * 1024;
/** A text that is longer is searched for its end, which costs a call and then hardly anything. */
const shortChars = 32;

/**
 * The shape of a JSON text, before a parser makes something of it: that takes much longer for many empty values than for as
 * much text. What is no JSON has a shape too: as many names and values as a parser would meet before it finds that out.
 * Names and values are texts, numbers, `true`, `false`, `null`, objects, lists and names of fields.
 */
export function* shapeOf(json: string, most: ShapeLimits = ofRequests): Sliced<JsonShape> {
  // A level takes two characters, and a value one.
  if (json.length <= 2 * most.depth && json.length <= most.values)
    return { isTooDeep: false, hasTooMany: false, values: json.length };
  const look = new Look(json, most);
  while (!look.goOn()) yield;
  const { values, deepest } = look;
  return { isTooDeep: deepest > most.depth, hasTooMany: values > most.values, values };
}

/** A number or a word is read in a fraction of the time that others take, and of them honest lists are long. */
const partShare = 1 / 8;

/** How many names and values there are, without giving way; numbers and words count an eighth each. Ends beyond `max`, with more than that. */
export function countValues(json: string, max: number): number {
  const look = new Look(json, { depth: Infinity, values: max }, partShare);
  while (!look.goOn());
  return Math.ceil(look.values);
}

/** Whether a value has so much in it that a look at all of it is best taken in turn with others (slices.ts). */
export function isLargeValue(root: unknown): boolean {
  const open = [root];
  let left = largeUnits;
  while (open.length > 0 && left > 0) {
    const value = open.pop();
    left -= 1;
    if (typeof value === 'string') left -= value.length / charsPerUnit;
    if (typeof value !== 'object' || value === null) continue;
    if (ArrayBuffer.isView(value)) left -= value.byteLength / charsPerUnit;
    else {
      const inner: unknown[] = Array.isArray(value) ? value : Object.values(value);
      left -= inner.length;
      if (left > 0) open.push(...inner);
    }
  }
  return left <= 0;
}

/** Of names and values, or of as much text as is looked at meanwhile. */
const largeUnits = 2_000;
const charsPerUnit = 100;

class Look {
  values = 0;
  deepest = 0;
  private readonly json: string;
  private readonly most: ShapeLimits;
  private readonly partWeight: number;
  private at = 0;
  private depth = 0;
  private isText = false;
  private isPart = false;

  constructor(json: string, most: ShapeLimits, partWeight = 1) {
    this.json = json;
    this.most = most;
    this.partWeight = partWeight;
  }

  /** Whether it is at its end. */
  goOn(): boolean {
    const { json, partWeight } = this;
    const mostValues = this.most.values;
    const end = Math.min(json.length, this.at + stepChars);
    let { at, depth, deepest, values, isText, isPart } = this;
    while (at < end && values <= mostValues) {
      if (isText) {
        at = endOfText(json, at);
        isText = false;
        continue;
      }
      const code = json.charCodeAt(at);
      const kind = code < 128 ? kinds[code] : part;
      at += 1;
      if (kind === part) {
        if (!isPart) values += partWeight;
        isPart = true;
        continue;
      }
      isPart = false;
      if (kind === between) continue;
      if (kind === closing) {
        depth -= 1;
        continue;
      }
      values += 1;
      if (kind === quote) isText = true;
      else if (++depth > deepest) deepest = depth;
    }
    this.at = at;
    this.depth = depth;
    this.deepest = deepest;
    this.values = values;
    this.isText = isText;
    this.isPart = isPart;
    return at >= json.length || values > mostValues;
  }
}

/** The place behind the quote that ends the text in which `from` is. */
function endOfText(json: string, from: number): number {
  let at = from;
  for (;;) {
    const near = Math.min(json.length, at + shortChars);
    for (; at < near; at += 1) {
      const code = json.charCodeAt(at);
      if (code === 0x22) return at + 1;
      if (code === 0x5c) at += 1;
    }
    if (at >= json.length) return json.length;
    const quoteAt = json.indexOf('"', at);
    if (quoteAt === -1) return json.length;
    // Whether it is escaped, the backslashes before it say; those before `at` belong to pairs.
    let slashes = 0;
    while (quoteAt - slashes > at && json.charCodeAt(quoteAt - slashes - 1) === 0x5c) slashes += 1;
    at = quoteAt + 1;
    if (slashes % 2 === 0) return at;
  }
}
