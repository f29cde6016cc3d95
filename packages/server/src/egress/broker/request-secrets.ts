import type { RequestHead } from '../interceptor.ts';
import type { Placeholders } from './placeholders.ts';

const basicPattern = /^(Basic[ \t]+)([A-Za-z0-9+/_=-]+)[ \t]*$/i;
/** Credentials go there; a host is not asked for by a secret, and the body's framing is not ours to change. */
const untouched = new Set(['host', 'content-length', 'transfer-encoding', 'connection', 'expect', 'upgrade']);

export interface FoundPlaceholders {
  /** Secrets whose placeholder stands where it is replaced: header values, and inside Basic credentials. */
  inHeaders: Set<string>;
  /** Those in the path or query, or in a header that is left alone: nothing is replaced there. */
  elsewhere: Set<string>;
}

export function findPlaceholders(placeholders: Placeholders, head: RequestHead): FoundPlaceholders {
  const inHeaders = new Set<string>();
  const elsewhere = placeholders.in(head.path);
  for (const [name, value] of head.headers) {
    const into = untouched.has(name.toLowerCase()) ? elsewhere : inHeaders;
    for (const key of placeholders.in(readable(name, value))) into.add(key);
  }
  return { inHeaders, elsewhere };
}

/** The header values with the secrets' own in them. Texts are latin1: one character a byte. */
export function fillHeaders(
  placeholders: Placeholders,
  headers: RequestHead['headers'],
  valueOf: (key: string) => string,
): RequestHead['headers'] {
  return headers.map(([name, value]) => {
    if (untouched.has(name.toLowerCase())) return [name, value];
    const replaced = placeholders.replace(value, valueOf);
    const basic = basicOf(name, value);
    if (replaced !== value || !basic) return [name, replaced];
    const filled = placeholders.replace(basic.credentials, valueOf);
    return [name, filled === basic.credentials ? value : basic.scheme + encode(filled)];
  });
}

/** The text in which a header's placeholders stand to be read. */
function readable(name: string, value: string): string {
  const basic = basicOf(name, value);
  return basic ? `${value}\n${basic.credentials}` : value;
}

/** RFC 7617: `user:password` in base64. A token is often the user, or the password of some fixed user. */
function basicOf(name: string, value: string): { scheme: string; credentials: string } | null {
  if (name.toLowerCase() !== 'authorization') return null;
  const match = basicPattern.exec(value);
  if (!match) return null;
  return { scheme: match[1]!, credentials: Buffer.from(match[2]!, 'base64').toString('latin1') };
}

const encode = (credentials: string): string => Buffer.from(credentials, 'latin1').toString('base64');
