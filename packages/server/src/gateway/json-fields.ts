import { sliceBytes } from './slices.ts';
import type { Sliced } from '../domain/slices.ts';
import type { Pace } from './slices.ts';
import { WireError } from './wires.ts';

/** Where the value of a top-level field lies: bytes `start` to `end` (exclusive). */
export interface FieldSpan {
  start: number;
  end: number;
}

const quote = 0x22;
const backslash = 0x5c;
const openBrace = 0x7b;
const closeBrace = 0x7d;
const openBracket = 0x5b;
const closeBracket = 0x5d;
const comma = 0x2c;
const colon = 0x3a;
const maxDepth = 512;
/** Of an object that is looked at: the wires know some dozens. */
export const maxFields = 256;
const maxNameBytes = 256;
/** In a row. It is stepped over in one go. */
const maxSpaceBytes = 1024 * 1024;
/** Of a number, or of what should be one. */
const maxScalarBytes = 64;

/**
 * Finds the fields of a JSON object without building it: prompts are large and only a few small fields matter here.
 *
 * It is strict where parsers differ, because the provider parses the same bytes again: a field twice, or one that
 * differs from a `watched` one only in case (some parsers fold it), is refused, and so is everything that is no JSON
 * outside strings, such as comments. Throws WireError `bad_request`.
 */
export function* topLevelFields(
  body: Buffer,
  watched: ReadonlySet<string>,
  pace: Pace,
): Sliced<Map<string, FieldSpan>> {
  const fields = new Map<string, FieldSpan>();
  let at = skipSpace(body, 0);
  if (body[at] !== openBrace) throw malformed('it must be an object');
  at = skipSpace(body, at + 1);
  if (body[at] === closeBrace) return endOfBody(body, at + 1, fields);
  for (;;) {
    if (body[at] !== quote) throw malformed('a field name is expected', at);
    if (fields.size === maxFields)
      throw new WireError(
        'bad_request',
        `An object of a model request may have at most ${maxFields} fields.`,
      );
    const nameStart = at;
    const nameEnd = skipString(body, at);
    const name = readName(body, at, nameEnd);
    at = skipSpace(body, nameEnd);
    if (body[at] !== colon) throw malformed('":" is expected', at);
    const start = skipSpace(body, at + 1);
    const end = yield* skipValue(body, start, pace);
    checkName(name, fields, watched);
    fields.set(name, { start, end });
    at = skipSpace(body, end);
    if (body[at] === closeBrace) return endOfBody(body, at + 1, fields);
    if (body[at] !== comma) throw malformed('"," or "}" is expected', at);
    at = skipSpace(body, at + 1);
    pace.leftBytes -= start - nameStart + at - end;
  }
}

/** The spans of an array's elements; null when the value is no array. The bytes must have been checked before. */
export function* arrayElements(
  body: Buffer,
  span: FieldSpan,
  maxElements: number,
  pace: Pace,
): Sliced<FieldSpan[] | null> {
  if (body[span.start] !== openBracket) return null;
  const elements: FieldSpan[] = [];
  let at = skipSpace(body, span.start + 1);
  while (at < span.end && body[at] !== closeBracket) {
    if (elements.length === maxElements)
      throw new WireError(
        'bad_request',
        `A list of a model request may have at most ${maxElements} entries here.`,
      );
    const end = yield* skipValue(body, at, pace);
    elements.push({ start: at, end });
    at = skipSpace(body, end);
    if (body[at] === comma) at = skipSpace(body, at + 1);
    pace.leftBytes -= at - end;
  }
  return elements;
}

/** Builds the value of a field. What is needed here is small; a large one would take long to build, and is refused. */
export function parseField(
  body: Buffer,
  fields: ReadonlyMap<string, FieldSpan>,
  name: string,
  maxBytes = 1024,
): unknown {
  const span = fields.get(name);
  if (!span) return undefined;
  if (span.end - span.start > maxBytes)
    throw new WireError('bad_request', `The field "${name}" may have at most ${maxBytes} bytes here.`);
  try {
    return JSON.parse(body.toString('utf8', span.start, span.end));
  } catch {
    throw malformed('a value cannot be read', span.start);
  }
}

function checkName(name: string, fields: Map<string, FieldSpan>, watched: ReadonlySet<string>): void {
  if (fields.has(name)) throw new WireError('bad_request', `The field "${name}" is there twice.`);
  if (watched.has(name)) return;
  const folded = name.toLowerCase().replaceAll('\u017f', 's').replaceAll('\u212a', 'k');
  if (watched.has(folded))
    throw new WireError('bad_request', `The field "${name}" must be written "${folded}".`);
}

function endOfBody(body: Buffer, at: number, fields: Map<string, FieldSpan>): Map<string, FieldSpan> {
  if (skipSpace(body, at) !== body.length) throw malformed('something follows the object', at);
  return fields;
}

function malformed(what: string, at?: number): WireError {
  return new WireError(
    'bad_request',
    `The body is not valid JSON: ${what}${at === undefined ? '' : ` (byte ${at})`}.`,
  );
}

function skipSpace(body: Buffer, from: number): number {
  let at = from;
  for (;;) {
    const byte = body[at];
    if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) return at;
    at += 1;
    if (at - from > maxSpaceBytes) throw malformed('too much white space', from);
  }
}

/** `from` is the opening quote; returns the place after the closing one. */
function skipString(body: Buffer, from: number): number {
  const length = body.length;
  let at = from + 1;
  while (at < length) {
    const byte = body[at] as number;
    if (byte === quote) return at + 1;
    at += byte === backslash ? 2 : 1;
  }
  throw malformed('a text does not end', from);
}

function readName(body: Buffer, start: number, end: number): string {
  if (end - start > maxNameBytes + 2)
    throw new WireError(
      'bad_request',
      `The name of a field may have at most ${maxNameBytes} bytes (byte ${start}).`,
    );
  const text = body.toString('utf8', start, end);
  if (!text.includes('\\')) return text.slice(1, -1);
  try {
    return JSON.parse(text) as string;
  } catch {
    throw malformed('a field name cannot be read', start);
  }
}

/** Returns the place after the value that begins at `from`. Brackets must match; nesting is bounded. */
function* skipValue(body: Buffer, from: number, pace: Pace): Sliced<number> {
  const open: number[] = [];
  let at = from;
  let sliceEnd = from + pace.leftBytes;
  for (;;) {
    if (at >= sliceEnd) {
      yield;
      sliceEnd = at + sliceBytes;
    }
    pace.values += 1;
    const byte = body[at];
    if (byte === undefined) throw malformed('it ends too early', at);
    if (byte === quote) at = skipString(body, at);
    else if (byte === openBrace || byte === openBracket) {
      if (open.length >= maxDepth) throw malformed('it is nested too deeply', at);
      open.push(byte + 2);
      at = skipSpace(body, at + 1);
      if (body[at] !== byte + 2) continue;
      open.pop();
      at += 1;
    } else at = skipScalar(body, at, byte);
    at = closeAll(body, at, open);
    if (open.length === 0) break;
    if (body[at] !== comma && body[at] !== colon) throw malformed('"," is expected', at);
    at = skipSpace(body, at + 1);
  }
  pace.leftBytes = sliceEnd - at;
  return at;
}

/** Steps over closing brackets and the space around them, up to the next separator of what is still open. */
function closeAll(body: Buffer, from: number, open: number[]): number {
  let at = from;
  while (open.length > 0) {
    at = skipSpace(body, at);
    const byte = body[at];
    if (byte !== closeBrace && byte !== closeBracket) return at;
    if (open.pop() !== byte) throw malformed('brackets do not match', at);
    at += 1;
  }
  return at;
}

/** RFC 8259, sections 3 and 6. What may not follow a value is seen by whoever reads on. */
function skipScalar(body: Buffer, from: number, byte: number): number {
  if (byte === 0x74) return skipWord(body, from, 'true');
  if (byte === 0x66) return skipWord(body, from, 'false');
  if (byte === 0x6e) return skipWord(body, from, 'null');
  let at = byte === 0x2d ? from + 1 : from;
  at = body[at] === 0x30 ? at + 1 : skipDigits(body, at, from);
  if (body[at] === 0x2e) at = skipDigits(body, at + 1, from);
  if (body[at] === 0x65 || body[at] === 0x45) {
    const sign = body[at + 1];
    at = skipDigits(body, sign === 0x2b || sign === 0x2d ? at + 2 : at + 1, from);
  }
  if (at - from > maxScalarBytes) throw malformed('a value is expected', from);
  return at;
}

function skipWord(body: Buffer, from: number, word: string): number {
  for (let index = 1; index < word.length; index += 1) {
    if (body[from + index] !== word.charCodeAt(index)) throw malformed('a value is expected', from);
  }
  return from + word.length;
}

function skipDigits(body: Buffer, first: number, from: number): number {
  let at = first;
  for (;;) {
    const byte = body[at] as number;
    if (!(byte >= 0x30 && byte <= 0x39)) break;
    at += 1;
  }
  if (at === first) throw malformed('a value is expected', from);
  return at;
}
