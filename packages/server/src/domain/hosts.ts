import { parseAddress } from './address-ranges.ts';
import { invalid } from './errors.ts';
import { limits } from './limits.ts';

const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;
const HTTPS_PORT = 443;

/** Names that mean something on one machine or network only (RFC 6761, 6762, 8375, 9476, 7686; and common usage). */
const localEndings = new Set([
  'localhost',
  'local',
  'internal',
  'intranet',
  'lan',
  'home',
  'corp',
  'private',
  'test',
  'invalid',
  'alt',
  'onion',
  'arpa',
]);

export interface HostRules {
  /** Whether names of the operator's own networks may be given, such as git.internal (BERTH_ALLOW_PRIVATE_NETWORKS). */
  allowLocal: boolean;
}

/**
 * Hosts to which a secret may be sent: exact (`api.example.com`) or all below a domain (`*.example.com`), each with a
 * port (`api.example.com:8443`) or for 443. Comes back in lower case, without `:443` and without repetition. Addresses
 * are refused: TLS to one names no host, so that it could not be told whose connection it is. So is a name without a dot,
 * such as `localhost`, which is the sandbox itself for the programs inside.
 */
export function readHosts(path: string, hosts: string[], rules: HostRules): string[] {
  if (hosts.length > limits.secretHosts)
    throw invalid(path, `must have at most ${limits.secretHosts} entries.`);
  const names = hosts.map((host, index) => readHost(`${path}.${index}`, host, rules));
  return [...new Set(names)];
}

function readHost(path: string, text: string, rules: HostRules): string {
  const { name, port } = splitHost(text.toLowerCase());
  const bare = name.startsWith('*.') ? name.slice(2) : name;
  if (parseAddress(bare)) {
    throw invalid(path, 'must be a host name; a secret cannot be bound to an IP address.');
  }
  const labels = bare.split('.');
  const usable = name.length <= 253 && labels.every((label) => LABEL.test(label));
  if (!usable || /^\d+$/.test(labels.at(-1)!) || port === null) {
    throw invalid(
      path,
      'must be a host name such as api.example.com, or a wildcard such as *.example.com, with or without a port.',
    );
  }
  // A top-level domain alone is no host, and a wildcard over one would be nearly everything.
  if (labels.length < 2) {
    throw invalid(
      path,
      'must have a dot in its name, as api.example.com has; localhost is the sandbox itself.',
    );
  }
  if (!rules.allowLocal && localEndings.has(labels.at(-1)!)) {
    throw invalid(
      path,
      'must be a public host name; the operator can allow others with BERTH_ALLOW_PRIVATE_NETWORKS.',
    );
  }
  return port === HTTPS_PORT ? name : `${name}:${port}`;
}

/** `port` is null when what stands there is none. */
function splitHost(text: string): { name: string; port: number | null } {
  const colon = text.indexOf(':');
  if (colon === -1) return { name: text, port: HTTPS_PORT };
  const digits = text.slice(colon + 1);
  const port = /^[1-9]\d{0,4}$/.test(digits) ? Number(digits) : null;
  return { name: text.slice(0, colon), port: port !== null && port <= 65_535 ? port : null };
}

/** Whether `host` (lower case) and `port` are what an entry that `readHosts` gave names. */
export function hostMatches(entry: string, target: { host: string; port: number }): boolean {
  return splitHost(entry).port === target.port && hostNameMatches(entry, target.host);
}

/** As `hostMatches`, whatever the port. */
export function hostNameMatches(entry: string, host: string): boolean {
  const { name } = splitHost(entry);
  return name.startsWith('*.') ? host.endsWith(name.slice(1)) : host === name;
}

/** The name of an entry without its wildcard and port: the part of the name space that it lies in. */
export function hostDomain(entry: string): string {
  const { name } = splitHost(entry);
  return name.startsWith('*.') ? name.slice(2) : name;
}
