import dns from 'node:dns';

/**
 * Names below `localhost` are this machine (RFC 6761, section 6.3), where agents of a service on it have their addresses;
 * many resolvers do not know them. Node asks `dns.lookup` for each connection that it opens.
 */
export function resolveLocalhostNames(): void {
  const ask = dns.lookup;
  const lookup = (host: string, ...rest: unknown[]) =>
    (ask as (...args: unknown[]) => void)(/\.localhost$/i.test(host) ? 'localhost' : host, ...rest);
  dns.lookup = Object.assign(lookup, ask) as typeof dns.lookup;
}
