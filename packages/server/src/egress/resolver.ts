import { promises as dns } from 'node:dns';
import { readFile } from 'node:fs/promises';
import { parseAddress } from '../domain/address-ranges.ts';

/** All addresses of a name, IPv4 first; empty when it has none. */
export type ResolveName = (host: string) => Promise<string[]>;

const queryMs = 3_000;
const tries = 2;
const hostsFileMs = 5_000;

/**
 * Asks the name servers of this host directly: the system's resolver would take a thread of a pool of four for each
 * name, and names whose servers never answer would stop all file work of the service. The hosts file is read first.
 */
export function createResolver(hostsFile = '/etc/hosts'): ResolveName {
  const resolver = new dns.Resolver({ timeout: queryMs, tries });
  let hosts: Promise<Map<string, string[]>> | null = null;
  let readAt = 0;

  return async (host) => {
    if (hosts === null || Date.now() - readAt > hostsFileMs) {
      readAt = Date.now();
      hosts = readFile(hostsFile, 'utf8').then(parseHosts, () => new Map());
    }
    const listed = (await hosts).get(host);
    if (listed) return listed;
    const none = (): string[] => [];
    // A dot at the end: no search domain is added.
    const [four, six] = await Promise.all([
      resolver.resolve4(host).catch(none),
      resolver.resolve6(host).catch(none),
    ]);
    return [...four, ...six];
  };
}

function parseHosts(text: string): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const line of text.split('\n')) {
    const [address, ...names] = line.replace(/#.*/, '').trim().split(/\s+/);
    if (!address || parseAddress(address) === null) continue;
    for (const name of names) {
      const key = name.toLowerCase();
      found.set(key, [...(found.get(key) ?? []), address]);
    }
  }
  return found;
}
