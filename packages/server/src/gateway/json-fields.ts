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

/**
 * Finds the fields of a JSON object without building it: prompts are large and only a few small fields matter here.
 *
 * It is strict where parsers differ, because the provider parses the same bytes again: a field twice, or one that
 * differs from a `watched` one only in case (some parsers fold it), is refused, and so is everything that is no JSON
 * outside strings, such as comments. Throws WireError `bad_request`.
 */
export function topLevelFields(body: Buffer, watched: ReadonlySet<string>): Map<string, FieldSpan> {
  const fields = new Map<string, FieldSpan>();
  let at = skipSpace(body, 0);
  if (body[at] !== openBrace) throw malformed('it must be an object');
  at = skipSpace(body, at + 1);
  if (body[at] === closeBrace) return endOfBody(body, at + 1, fields);
  for (;;) {
    if (body[at] !== quote) throw malformed('a field name is expected', at);
    const nameEnd = skipString(body, at);
    const name = readString(body, at, nameEnd);
    at = skipSpace(body, nameEnd);
    if (body[at] !== colon) throw malformed('":" is expected', at);
    const start = skipSpace(body, at + 1);
    const end = skipValue(body, start);
    checkName(name, fields, watched);
    fields.set(name, { start, end });
    at = skipSpace(body, end);
    if (body[at] === closeBrace) return endOfBody(body, at + 1, fields);
    if (body[at] !== comma) throw malformed('"," or "}" is expected', at);
    at = skipSpace(body, at + 1);
  }
}

/** The spans of an array's elements; null when the value is no array. The bytes must have been checked before. */
export function arrayElements(body: Buffer, span: FieldSpan): FieldSpan[] | null {
  if (body[span.start] !== openBracket) return null;
  const elements: FieldSpan[] = [];
  let at = skipSpace(body, span.start + 1);
  while (at < span.end && body[at] !== closeBracket) {
    const end = skipValue(body, at);
    elements.push({ start: at, end });
    at = skipSpace(body, end);
    if (body[at] === comma) at = skipSpace(body, at + 1);
  }
  return elements;
}

export function parseField(body: Buffer, span: FieldSpan | undefined): unknown {
  if (!span) return undefined;
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

function readString(body: Buffer, start: number, end: number): string {
  const text = body.toString('utf8', start, end);
  if (!text.includes('\\')) return text.slice(1, -1);
  try {
    return JSON.parse(text) as string;
  } catch {
    throw malformed('a field name cannot be read', start);
  }
}

/** Returns the place after the value that begins at `from`. Brackets must match; nesting is bounded. */
function skipValue(body: Buffer, from: number): number {
  const open: number[] = [];
  let at = from;
  for (;;) {
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
    } else at = skipScalar(body, at);
    at = closeAll(body, at, open);
    if (open.length === 0) return at;
    if (body[at] !== comma && body[at] !== colon) throw malformed('"," is expected', at);
    at = skipSpace(body, at + 1);
  }
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

const scalar = /^(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)$/;

function skipScalar(body: Buffer, from: number): number {
  let at = from;
  for (; at < body.length; at += 1) {
    const byte = body[at] as number;
    if (byte <= 0x20 || byte === comma || byte === closeBrace || byte === closeBracket || byte === colon)
      break;
  }
  if (at - from > 64 || !scalar.test(body.toString('latin1', from, at)))
    throw malformed('a value is expected', from);
  return at;
}
