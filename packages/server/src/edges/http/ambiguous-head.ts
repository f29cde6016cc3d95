import type { IncomingMessage } from 'node:http';

/**
 * Fields that say who asks and what for. Node keeps the first of several and drops the others, a proxy in front may go
 * by the last: the two would disagree on whose request it is.
 */
const single = new Set(['host', 'authorization', 'idempotency-key', 'content-type']);
const singleLengths = new Set([...single].map((name) => name.length));

/**
 * Why this head cannot be taken at its word; null when it can. A request of HTTP/1.1 names its host once (RFC 9112,
 * section 3.2), and none of the fields above is a list (RFC 9110, section 5.3).
 */
export function ambiguousHead(request: IncomingMessage): string | null {
  const { rawHeaders, httpVersion, headers } = request;
  if (headers.host === undefined && httpVersion === '1.1') return 'The Host header is missing.';
  let seen: string[] | undefined;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    if (!singleLengths.has(rawHeaders[at]!.length)) continue;
    const name = rawHeaders[at]!.toLowerCase();
    if (!single.has(name)) continue;
    if (seen?.includes(name))
      return `The header ${rawHeaders[at]} stands there more than once; send it once.`;
    (seen ??= []).push(name);
  }
  return null;
}
