import { limits } from '../../domain/limits.ts';

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

/** The same as `badValue` for what was read from this JSON; nearly all JSON needs no look at each of its values. */
export const badJsonValue = (json: string, value: unknown): BadValue | null =>
  suspicious.test(json) ? badValue(value) : null;

/** `path` is dotted, `body` for the whole. */
export interface BadValue {
  path: string;
  message: string;
}

/** The first text, field name or number of the value that cannot be stored as it is; null when all can. */
export function badValue(root: unknown): BadValue | null {
  // A list of its own instead of recursion: a body may be nested deeper than the call stack.
  const open: [path: string, value: unknown][] = [['', root]];
  for (let next = open.pop(); next; next = open.pop()) {
    const [path, value] = next;
    const bad = (message: string) => ({ path: path || 'body', message });
    if (typeof value === 'string' && !isStorable(value)) return bad(badText);
    if (typeof value === 'number' && !Number.isFinite(value)) return bad(badNumber);
    if (typeof value !== 'object' || value === null) continue;
    for (const [name, inner] of Object.entries(value)) {
      if (!isStorable(name)) return bad(badText);
      open.push([path ? `${path}.${name}` : name, inner]);
    }
  }
  return null;
}

/**
 * Whether JSON is nested deeper than any request has reason to be. What is deep can be read, but not written again: that
 * takes a step of the call stack for each level.
 */
export function isTooDeep(json: string, maxDepth: number = limits.jsonDepth): boolean {
  // Each level takes two characters.
  if (json.length <= 2 * maxDepth) return false;
  let depth = 0;
  let isText = false;
  for (let at = 0; at < json.length; at += 1) {
    const code = json.charCodeAt(at);
    if (isText) {
      if (code === 0x5c) at += 1;
      else if (code === 0x22) isText = false;
    } else if (code === 0x22) isText = true;
    else if (code === 0x5b || code === 0x7b) {
      depth += 1;
      if (depth > maxDepth) return true;
    } else if (code === 0x5d || code === 0x7d) depth -= 1;
  }
  return false;
}

/** The same of a value that did not come as JSON. */
export function isDeepValue(root: unknown, maxDepth: number = limits.jsonDepth): boolean {
  const open: [depth: number, value: unknown][] = [[0, root]];
  for (let next = open.pop(); next; next = open.pop()) {
    const [depth, value] = next;
    if (typeof value !== 'object' || value === null) continue;
    if (depth >= maxDepth) return true;
    for (const inner of Object.values(value)) open.push([depth + 1, inner]);
  }
  return false;
}
