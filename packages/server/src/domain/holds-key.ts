import { holdsKeyValue } from './api-key-value.ts';

/** Whether a key stands in a value of a field, in a path or a query: as it is, with escapes, or in base64 as Basic authentication has it. */
export function holdsKey(text: string): boolean {
  if (holdsKeyValue(text) || holdsKeyValue(unescaped(text))) return true;
  const runs = unescaped(text).match(BASE64_RUN) ?? [];
  // What stands before it, such as a folder of a path, is of the alphabet too.
  return runs.some((run) => [0, 1, 2, 3].some((at) => holdsKeyValue(decoded(run.slice(at)))));
}

const decoded = (run: string): string => Buffer.from(run, 'base64').toString('latin1');

/** Node reads both alphabets of RFC 4648. A key of so few characters is none. */
const BASE64_RUN = /[A-Za-z0-9+/_-]{36,}/g;

/** Escapes that are none stay as they are. */
function unescaped(text: string): string {
  if (!text.includes('%')) return text;
  return text.replaceAll(/%([0-9a-f]{2})/gi, (_, hex: string) =>
    String.fromCharCode(Number.parseInt(hex, 16)),
  );
}
