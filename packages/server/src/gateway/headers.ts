import type { IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http';

/**
 * What passes from a harness to a provider: how it wants the answer, and the vendors' own switches byte for byte, since
 * some features do not work without them. Credentials, cookies, hop-by-hop headers and headers that pick another
 * account of the operator's are left out by not being on the list.
 */
const requestNames = new Set([
  'accept',
  'content-type',
  'user-agent',
  'idempotency-key',
  'http-referer',
  'x-title',
  'x-app',
  'x-goog-api-client',
  'openai-beta',
  'originator',
  'session_id',
  'conversation_id',
]);
const requestPrefixes = ['anthropic-', 'x-stainless-'];

/** What passes back: what clients retry by and what people quote in a support request. */
const responseNames = new Set([
  'content-type',
  'content-encoding',
  'cache-control',
  'retry-after',
  'retry-after-ms',
  'x-should-retry',
  'request-id',
  'x-request-id',
  'openai-processing-ms',
  'openai-version',
]);
const responsePrefixes = ['anthropic-ratelimit-', 'x-ratelimit-', 'ratelimit'];

export function requestHeaders(incoming: IncomingHttpHeaders): OutgoingHttpHeaders {
  const headers = pick(incoming, requestNames, requestPrefixes);
  // Usage is read from the answer as it passes, which a compressed one would hide.
  headers['accept-encoding'] = 'identity';
  headers['content-type'] ??= 'application/json';
  return headers;
}

export function responseHeaders(incoming: IncomingHttpHeaders): OutgoingHttpHeaders {
  return pick(incoming, responseNames, responsePrefixes);
}

function pick(incoming: IncomingHttpHeaders, names: Set<string>, prefixes: string[]): OutgoingHttpHeaders {
  const kept: OutgoingHttpHeaders = {};
  for (const name in incoming) {
    const value = incoming[name];
    if (value !== undefined && (names.has(name) || prefixes.some((prefix) => name.startsWith(prefix)))) {
      kept[name] = value;
    }
  }
  return kept;
}
