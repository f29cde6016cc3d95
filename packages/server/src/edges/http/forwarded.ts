import type { IncomingHttpHeaders } from 'node:http';
import type { Network } from '../../domain/address-ranges.ts';
import { carriedIpv4, contains, parseAddress } from '../../domain/address-ranges.ts';

/** Of a request, also of HTTP/2: its fields in lower case, with `host` for the authority, and who sent it. */
export interface Incoming {
  headers: IncomingHttpHeaders;
  socket: { remoteAddress?: string | undefined };
}

/** What proxies say of the client, believed of trusted ones only: anybody can write such a header. */
export interface Proxies {
  /** The host that the client asked for: `X-Forwarded-Host` of a trusted proxy, else `Host`. */
  host(incoming: Incoming): string | undefined;
  /** The nearest address that is no trusted proxy's, by `X-Forwarded-For`; the peer of the connection without one. */
  clientAddress(incoming: Incoming): string;
}

export function createProxies(trusted: readonly Network[]): Proxies {
  const isTrusted = (text: string | undefined): boolean => {
    const address = text === undefined ? null : parseAddress(text);
    if (address === null) return false;
    const carried = address.version === 6 ? carriedIpv4(address) : null;
    return trusted.some(
      (network) => contains(network, address) || (carried !== null && contains(network, carried)),
    );
  };
  const isFromProxy = (incoming: Incoming): boolean =>
    trusted.length > 0 && isTrusted(incoming.socket.remoteAddress);

  return {
    host(incoming) {
      const forwarded = incoming.headers['x-forwarded-host'];
      if (forwarded === undefined || !isFromProxy(incoming)) return incoming.headers.host;
      // Each proxy appends the host that it was asked for; the first is the client's, as all of them are trusted or
      // the outermost has to overwrite what the client sent.
      return String(forwarded).split(',')[0]!.trim();
    },
    clientAddress(incoming) {
      const peer = incoming.socket.remoteAddress ?? 'unknown';
      const forwarded = incoming.headers['x-forwarded-for'];
      if (forwarded === undefined || !isFromProxy(incoming)) return peer;
      const chain = String(forwarded)
        .split(',')
        .map((one) => one.trim());
      return chain.findLast((one) => !isTrusted(one)) ?? chain[0] ?? peer;
    },
  };
}
