import type { Addresses } from '../http/route.ts';

/** Hosts that were asked for lately; a client may send any. */
const MAX_KNOWN = 1_000;

/**
 * Which agent's host a request is for. Ports say nothing: the service may be reached by another one than the domain
 * names. Null: a host that is not below the app domain, and thus the service's own, whatever it is called.
 */
export function createHostNames({
  baseUrl,
  appDomain,
}: Addresses): (host: string | undefined) => string | null {
  const suffix = `.${bareName(appDomain)}`;
  const own = bareName(new URL(baseUrl).host);
  const known = new Map<string, string | null>();

  return (host) => {
    if (host === undefined) return null;
    const found = known.get(host);
    if (found !== undefined) return found;
    const name = bareName(host);
    const label = name !== own && name.endsWith(suffix) ? name.slice(0, -suffix.length) : null;
    if (known.size >= MAX_KNOWN) known.clear();
    known.set(host, label);
    return label;
  };
}

/** Lower case, without a port and without the dot that ends a full name (RFC 9110, section 4.2.3; RFC 3986, 3.2.2). */
function bareName(host: string): string {
  return host.toLowerCase().replace(/:\d*$/, '').replace(/\.$/, '');
}
