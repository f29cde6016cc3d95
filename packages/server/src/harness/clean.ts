import { cleanText } from '../domain/clean-text.ts';

/** What comes out of a sandbox is bounded and made storable here, before anybody else sees it. */

const maxStringChars = 64 * 1024;
const maxDepth = 12;
const maxEntries = 1000;

export type Json = Record<string, unknown>;

export function isRecord(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Whether a line of JSON can hold what `cleanText` replaces: raw bytes cannot, only an escape can. */
export function mayNeedCleaning(line: string): boolean {
  return line.includes('\\u');
}

export function deepClean(value: unknown): unknown {
  if (typeof value === 'string') return cleanText(value);
  if (Array.isArray(value)) return value.map(deepClean);
  if (!isRecord(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, part]) => [cleanText(key), deepClean(part)]));
}

/** A text of at most `maxChars`, never cut inside a pair of surrogates; other kinds give ''. */
export function boundedText(value: unknown, maxChars: number): string {
  if (typeof value !== 'string') return '';
  return value.length <= maxChars ? value : `${value.slice(0, maxChars - 1).toWellFormed()}…`;
}

/** The same shape with long texts, long lists and deep nesting cut. */
export function bounded(value: unknown, depth = 0): unknown {
  if (typeof value === 'string') return boundedText(value, maxStringChars);
  if (typeof value !== 'object' || value === null) return value;
  if (depth >= maxDepth) return '…';
  if (Array.isArray(value)) return value.slice(0, maxEntries).map((part) => bounded(part, depth + 1));
  const entries = Object.entries(value).slice(0, maxEntries);
  return Object.fromEntries(entries.map(([key, part]) => [boundedText(key, 200), bounded(part, depth + 1)]));
}
