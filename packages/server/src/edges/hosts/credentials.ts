import type { IncomingHttpHeaders } from 'node:http';
import { bearerToken } from '../http/bearer.ts';

/** A browser can set no header for a WebSocket, but offer subprotocols: the key stands in one that is not chosen. */
const keyPrefix = 'berth.key.';

/**
 * The API key of a request to an agent's host: `Authorization: Bearer`, `X-API-Key`, or of a WebSocket the subprotocol
 * `berth.key.<key>`. Null: there is none.
 */
export function hostKey(headers: Pick<IncomingHttpHeaders, string>): string | null {
  const authorization = headers['authorization'];
  if (authorization !== undefined) return bearerToken(String(authorization));
  const apiKey = headers['x-api-key'];
  if (apiKey !== undefined) return String(apiKey).trim();
  if (String(headers['upgrade'] ?? '').toLowerCase() !== 'websocket') return null;
  const offered = String(headers['sec-websocket-protocol'] ?? '').split(',');
  const found = offered.map((one) => one.trim()).find((one) => one.startsWith(keyPrefix));
  return found?.slice(keyPrefix.length) ?? null;
}
