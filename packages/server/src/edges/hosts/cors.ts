import type { Head } from '../http/answer.ts';

/** What a page may read of an answer, beyond the fields that every page may. */
const exposed = [
  'X-Request-Id',
  'RateLimit',
  'RateLimit-Policy',
  'Retry-After',
  'WWW-Authenticate',
  'Location',
  'X-Run-Id',
  'X-Conversation-Id',
  'ETag',
  'A2A-Version',
  'A2A-Extensions',
  'Acp-Connection-Id',
  'Acp-Session-Id',
  'Mcp-Session-Id',
].join(', ');

/** For so long a browser need not ask again. */
const MAX_AGE_SECONDS = 600;

/** Whether pages of `origin` may speak to an agent whose owner allows `allowed`; `*` allows all. */
export function allowsOrigin(allowed: readonly string[], origin: string, ownOrigin: string): boolean {
  return origin === ownOrigin || allowed.includes('*') || allowed.includes(origin.toLowerCase());
}

/**
 * Lets pages of an allowed origin read the answer (WHATWG Fetch, section 3.3). Credentials of the browser are never
 * allowed: a page sends a key that it has, not one that the browser adds.
 */
export function writeCors(head: Head, allowed: readonly string[], origin: string, ownOrigin: string): void {
  head['Vary'] = 'Origin';
  if (!allowsOrigin(allowed, origin, ownOrigin)) return;
  head['Access-Control-Allow-Origin'] = allowed.includes('*') ? '*' : origin;
  head['Access-Control-Expose-Headers'] = exposed;
}

/** The answer to a preflight, complete but for what `writeCors` has put; `requested` is what the browser asks for. */
export function preflight(head: Head, requested: string | undefined): Response {
  if (head['Access-Control-Allow-Origin'] !== undefined) {
    head['Access-Control-Allow-Methods'] = 'GET, HEAD, POST, PUT, PATCH, DELETE';
    // An asterisk would not cover Authorization, so that the names are said back.
    if (requested !== undefined && /^[\w!#$%&'*+.^`|~, -]{1,2000}$/.test(requested))
      head['Access-Control-Allow-Headers'] = requested;
    head['Access-Control-Max-Age'] = String(MAX_AGE_SECONDS);
  }
  head['Vary'] = 'Origin, Access-Control-Request-Headers';
  return new Response(null, { status: 204, headers: head });
}
