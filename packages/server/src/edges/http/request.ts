import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Context } from 'hono';
import type { Edge } from './edge.ts';

/** Set by the Node adapter; absent when the app is called with a Request and no socket. */
export interface NodeBindings {
  incoming?: IncomingMessage;
  outgoing?: ServerResponse;
}

export type Env = { Bindings: NodeBindings };

/** A header's value, read from the Node request when there is one: no Headers object is made on the hot path. */
export function header(c: Context<Env>, lowerName: string): string | undefined {
  const incoming = c.env?.incoming;
  if (!incoming) return c.req.raw.headers.get(lowerName) ?? undefined;
  const value = incoming.headers[lowerName];
  return Array.isArray(value) ? value.join(', ') : value;
}

/** Who called, as far as trusted proxies tell. */
export function clientAddress(c: Context<Env>, edge: Pick<Edge, 'proxies'>): string {
  const incoming = c.env?.incoming;
  return incoming ? edge.proxies.clientAddress(incoming) : 'unknown';
}

/**
 * All of the path that follows `prefixSegments` segments, as it was sent: what a URL parser makes of dots and escapes
 * would no longer be what the client wrote.
 */
export function restOfPath(c: Context<Env>, prefixSegments: number): string {
  const target = c.env?.incoming?.url ?? new URL(c.req.raw.url).pathname;
  const path = target.split(/[?#]/, 1)[0]!.replace(/^https?:\/\/[^/]*/i, '');
  return path
    .split('/')
    .slice(prefixSegments + 1)
    .join('/');
}

/** The query string without its question mark; `''` when there is none. */
export function queryText(url: string): string {
  const mark = url.indexOf('?');
  if (mark === -1) return '';
  const hash = url.indexOf('#', mark);
  return hash === -1 ? url.slice(mark + 1) : url.slice(mark + 1, hash);
}
