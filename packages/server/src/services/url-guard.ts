import { lookup } from 'node:dns/promises';
import { parseNetwork } from '../domain/address-ranges.ts';
import { checkPublicUrl, type UrlGuard } from '../domain/url-guard.ts';

const lookupMs = 10_000;

/**
 * The guard with the machine's own resolver. `allowPrivateNetworks` are ranges in CIDR form; throws on one that is not.
 */
export function createUrlGuard(
  allowPrivateNetworks: readonly string[],
  resolve: (hostname: string) => Promise<string[]> = resolveAll,
): UrlGuard {
  const allow = allowPrivateNetworks.map((text) => {
    const network = parseNetwork(text);
    if (!network) throw new Error(`BERTH_ALLOW_PRIVATE_NETWORKS: "${text}" is not an address range.`);
    return network;
  });
  return { check: (url, protocols) => checkPublicUrl(url, { protocols, allow, lookup: resolve }) };
}

/** The system's resolver has no time limit of its own that we could set. */
async function resolveAll(hostname: string): Promise<string[]> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error('The name took too long to resolve.')), lookupMs);
  });
  try {
    const found = await Promise.race([lookup(hostname, { all: true, verbatim: true }), late]);
    return found.map(({ address }) => address);
  } finally {
    clearTimeout(timer);
  }
}
