import { cleanText } from '../domain/clean-text.ts';

/** What comes out of a sandbox is bounded and made storable here, before anybody else sees it. */

const maxStringChars = 64 * 1024;
const maxDepth = 12;
const maxEntries = 1000;

export type Json = Record<string, unknown>;

export function isRecord(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** A value as it is when it is a text, else ''. A template makes texts of other kinds too, but some objects make it throw. */
export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

/** Whether a line of JSON can hold what `cleanText` replaces: raw bytes cannot, only an escape of U+0000 or of a surrogate can. */
export function mayNeedCleaning(line: string): boolean {
  return /\\u(?:0000|[dD][89a-fA-F])/.test(line);
}

/** Cleans every text in a value that was read from JSON and is nobody else's: what is clean already stays as it is. */
export function deepClean(value: unknown): unknown {
  const root = { value };
  // A list of its own instead of recursion: a line may be nested deeper than the call stack.
  const open: object[] = [root];
  const cleaned = (part: unknown): unknown => {
    if (typeof part === 'string') return cleanText(part);
    if (typeof part !== 'object' || part === null) return part;
    const holder = Array.isArray(part) ? part : withCleanNames(part as Json);
    open.push(holder);
    return holder;
  };
  for (let next = open.pop(); next; next = open.pop()) {
    if (Array.isArray(next)) {
      for (let at = 0; at < next.length; at += 1) next[at] = cleaned(next[at]);
    } else {
      const holder = next as Json;
      for (const name in holder) {
        const part = holder[name];
        const clean = cleaned(part);
        if (clean !== part) holder[name] = clean;
      }
    }
  }
  return root.value;
}

function withCleanNames(value: Json): Json {
  for (const name in value) {
    if (cleanText(name) === name) continue;
    return Object.fromEntries(Object.entries(value).map(([key, part]) => [cleanText(key), part]));
  }
  return value;
}

/**
 * A message of the harness with every text cleaned but the pieces of an answer: a pair of surrogates may be split between
 * two of them, so they are cleaned where they are joined (`TurnLog`).
 */
export function cleanMessage(message: unknown): unknown {
  const text = chunkContent(message)?.['text'];
  const clean = deepClean(message);
  const cleaned = chunkContent(clean);
  if (text !== undefined && cleaned) cleaned['text'] = text;
  return clean;
}

function chunkContent(message: unknown): Json | null {
  const params = isRecord(message) ? message['params'] : null;
  const update = isRecord(params) ? params['update'] : null;
  if (!isRecord(update) || !isRecord(update['content']) || update['_meta'] !== undefined) return null;
  const kind = update['sessionUpdate'];
  if (kind !== 'agent_message_chunk' && kind !== 'agent_thought_chunk') return null;
  const { content } = update;
  return content['type'] === 'text' && typeof content['text'] === 'string' ? content : null;
}

/** A text of at most `maxChars`, never cut inside a pair of surrogates; other kinds give ''. */
export function boundedText(value: unknown, maxChars: number): string {
  if (typeof value !== 'string') return '';
  return value.length <= maxChars ? value : `${value.slice(0, maxChars - 1).toWellFormed()}…`;
}

/** The same shape with deep nesting cut, and of all texts and entries together no more than an event may hold. */
export function bounded(value: unknown): unknown {
  return cut(value, { chars: maxStringChars, entries: maxEntries }, 0);
}

function cut(value: unknown, left: { chars: number; entries: number }, depth: number): unknown {
  if (typeof value === 'string') {
    const text = boundedText(value, Math.max(1, left.chars));
    left.chars -= text.length;
    return text;
  }
  if (typeof value !== 'object' || value === null) return value;
  if (depth >= maxDepth) return '…';
  const entries: [string, unknown][] = [];
  for (const [name, part] of Object.entries(value)) {
    if (--left.entries < 0 || left.chars <= 0) break;
    const key = boundedText(name, 200);
    if (!Array.isArray(value)) left.chars -= key.length;
    entries.push([key, cut(part, left, depth + 1)]);
  }
  return Array.isArray(value) ? entries.map(([, part]) => part) : Object.fromEntries(entries);
}
