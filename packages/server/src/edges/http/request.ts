import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Context } from 'hono';

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

/** The peer of the connection. No forwarding header is trusted: anybody can write one. */
export function clientAddress(c: Context<Env>): string {
  return c.env?.incoming?.socket.remoteAddress ?? 'unknown';
}

/** The query string without its question mark; `''` when there is none. */
export function queryText(url: string): string {
  const mark = url.indexOf('?');
  if (mark === -1) return '';
  const hash = url.indexOf('#', mark);
  return hash === -1 ? url.slice(mark + 1) : url.slice(mark + 1, hash);
}
