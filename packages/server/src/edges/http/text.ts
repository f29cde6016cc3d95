import { isUtf8 } from 'node:buffer';
import { limits } from '../../domain/limits.ts';
import type { Sliced } from '../../domain/slices.ts';

/**
 * The text of bytes in UTF-8; null when they are none. It is one step: a text that is made of pieces takes ten times as long, and the parser
 * that comes behind it cannot be cut either.
 */
export function* textOf(bytes: Buffer): Sliced<string | null> {
  yield;
  if (!isUtf8(bytes)) return null;
  const text = bytes.toString('utf8');
  yield;
  return text;
}

/** What PostgreSQL's text cannot hold (U+0000) or UTF-8 cannot carry (a surrogate without its other half). */
export function isStorable(text: string): boolean {
  return !text.includes('\0') && text.isWellFormed();
}

const badText = 'must not contain U+0000 or a lone surrogate';
const badNumber = 'must be a number that a double can hold, from -1.8e308 to 1.8e308';

/**
 * What may have become another value than was written. Raw UTF-8 cannot hold a lone surrogate, nor a JSON string a raw
 * NUL: both come by an escape only. A number that is too large, which would be kept as null, has many digits or a long exponent.
 */
const suspicious = /\\u|\d[eE]\+?\d{3}|(?<!\d)\d{200}/;
/** The expression takes up to 7 ns a character. */
const stepChars = 128 * 1024;
/** What it finds is no longer. */
const overlapChars = 256;

/** The same as `badValue` for what was read from this JSON; nearly all JSON needs no look at each of its values. */
export function* badJsonValue(json: string, value: unknown): Sliced<BadValue | null> {
  for (let at = 0; ; at += stepChars) {
    if (suspicious.test(at === 0 && json.length <= stepChars ? json : partOf(json, at))) break;
    if (at + stepChars >= json.length) return null;
    yield;
  }
  yield;
  return badValue(value);
}

const partOf = (json: string, at: number): string => json.slice(at, at + stepChars + overlapChars);

/** `path` is dotted, `body` for the whole. */
export interface BadValue {
  path: string;
  message: string;
}

/** A value of which parts are still to be looked at; those of a list have no names that could be bad. */
interface Opened {
  value: Record<string, unknown>;
  names: string[] | null;
  /** The one that is looked at; the last comes first. */
  at: number;
}

/** The first text, field name or number of the value that cannot be stored as it is; null when all can. */
export function badValue(root: unknown): BadValue | null {
  // What leads to the value that is looked at, instead of recursion: a body may be nested deeper than the call stack. A
  // path is put together only for what is bad: that takes longer than all else.
  const way: Opened[] = [];
  const bad = (message: string): BadValue => ({ path: pathOf(way) || 'body', message });
  for (let value = root; ;) {
    const message = badScalar(value);
    if (message !== null) return bad(message);
    if (typeof value === 'object' && value !== null) {
      const names = Array.isArray(value) ? null : Object.keys(value);
      if (names !== null && !names.every(isStorable)) return bad(badText);
      way.push({
        value: value as Record<string, unknown>,
        names,
        at: names?.length ?? (value as unknown[]).length,
      });
    }
    let last = way.at(-1);
    while (last?.at === 0) {
      way.pop();
      last = way.at(-1);
    }
    if (last === undefined) return null;
    last.at -= 1;
    value = last.value[last.names?.[last.at] ?? last.at];
  }
}

function badScalar(value: unknown): string | null {
  if (typeof value === 'string') return isStorable(value) ? null : badText;
  return typeof value === 'number' && !Number.isFinite(value) ? badNumber : null;
}

const pathOf = (way: readonly Opened[]): string =>
  way.reduce((path, { names, at }) => {
    const name = names?.[at] ?? String(at);
    return path ? `${path}.${name}` : name;
  }, '');

/** Whether a value that did not come as JSON is nested deeper than JSON may be. */
export function isDeepValue(root: unknown, maxDepth: number = limits.jsonDepth): boolean {
  const open: [depth: number, value: unknown][] = [[0, root]];
  for (let next = open.pop(); next; next = open.pop()) {
    const [depth, value] = next;
    if (typeof value !== 'object' || value === null) continue;
    if (depth >= maxDepth) return true;
    for (const inner of Object.values(value))
      if (typeof inner === 'object' && inner !== null) open.push([depth + 1, inner]);
  }
  return false;
}
