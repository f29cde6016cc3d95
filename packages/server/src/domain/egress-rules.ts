import { contains, parseAddress, parseNetwork, type Network } from './address-ranges.ts';

/** A place on the network that a sandbox asks for: a lower-case host name without the root's dot, or an IP literal. */
export interface EgressTarget {
  host: string;
  port: number;
}

/**
 * A line of an agent's egress policy, `<host>[:<port>][/tcp]`:
 * `registry.example` (ports 80 and 443), `registry.example:8443`, `registry.example:*`, `*.example.org` (every name
 * below it, not itself), `203.0.113.7:443`, `[2001:db8::7]:443`, `203.0.113.0/24`. `/tcp` lets bytes of any protocol pass
 * unread, also TLS without a name. Among what is denied, a line without a port means every port.
 */
export type EgressRule = EgressRulePart &
  (
    | { kind: 'host'; host: string }
    | { kind: 'below'; suffix: string }
    | { kind: 'network'; network: Network }
  );

interface EgressRulePart {
  ports: readonly number[] | 'all';
  isUnread: boolean;
}

const webPorts = [80, 443];
const maxRuleChars = 270;
// A label of a host name. The underscore is no part of a host name, but of names that exist.
const label = '[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?';
const namePattern = new RegExp(`^(?=.{1,253}$)${label}(?:\\.${label})*$`);
const addressRule = /^(\[[0-9a-f:.]{2,45}\]|[0-9.]{7,15})(\/\d{1,3})?(?::(\d{1,5}|\*))?$/;
const nameRule = /^(\*\.)?([a-z0-9._-]+)(?::(\d{1,5}|\*))?$/;

type Ports = EgressRule['ports'];

/** A line of what is allowed; null for what is none. */
export const parseEgressRule = (text: string): EgressRule | null => parseRule(text, webPorts);

/**
 * A line of what is denied; null for what is none. Whoever denies a host and names no port means the host: what it serves on
 * another port is kept from the agent as well.
 */
export const parseDenyRule = (text: string): EgressRule | null => parseRule(text, 'all');

function parseRule(text: string, unnamedPorts: Ports): EgressRule | null {
  if (text.length > maxRuleChars) return null;
  const isUnread = text.endsWith('/tcp');
  const rest = (isUnread ? text.slice(0, -4) : text).toLowerCase();
  const address = addressRule.exec(rest);
  const name = address ? null : nameRule.exec(rest);
  const ports = readPorts((address ?? name)?.[3], unnamedPorts);
  if (ports === null) return null;
  if (address) {
    const bare = address[1]!.replace(/[[\]]/g, '');
    if (bare.includes(':') !== address[1]!.startsWith('[')) return null;
    const network = parseNetwork(`${bare}${address[2] ?? (bare.includes(':') ? '/128' : '/32')}`);
    return network && { kind: 'network', network, ports, isUnread };
  }
  const host = name && readHostName(name[2]!);
  if (!name || !host || parseAddress(host) !== null) return null;
  return name[1]
    ? { kind: 'below', suffix: `.${host}`, ports, isUnread }
    : { kind: 'host', host, ports, isUnread };
}

function readPorts(text: string | undefined, unnamedPorts: Ports): Ports | null {
  if (text === undefined) return unnamedPorts;
  if (text === '*') return 'all';
  const port = Number(text);
  return port >= 1 && port <= 65_535 ? [port] : null;
}

export function matchesTarget(rule: EgressRule, target: EgressTarget): boolean {
  if (rule.ports !== 'all' && !rule.ports.includes(target.port)) return false;
  switch (rule.kind) {
    case 'host':
      return rule.host === target.host;
    case 'below':
      return target.host.endsWith(rule.suffix) && target.host.length > rule.suffix.length;
    case 'network': {
      const address = parseAddress(target.host);
      return address !== null && contains(rule.network, address);
    }
  }
}

/** A name in the one form in which names are compared; null when it is none that DNS could hold. */
export function readHostName(text: string): string | null {
  const host = text.toLowerCase().replace(/\.$/, '');
  if (!namePattern.test(host)) return null;
  // A last label of digits makes it an address for some readers (WHATWG URL, section 3.5), whether they can read it or not.
  return /(^|\.)(\d+|0x[0-9a-f]*)$/.test(host) ? null : host;
}

/**
 * Reads `<host>:<port>` (RFC 9110, section 4.2, without user information) into the one form that rules are compared
 * with: addresses as WHATWG URL writes them, IPv4 inside IPv6 as IPv4. Null for what is unclear.
 */
export function readTarget(authority: string, defaultPort: number | null): EgressTarget | null {
  if (authority.length > maxRuleChars) return null;
  const match = /^(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?$/.exec(authority);
  if (!match) return null;
  const port = match[2] === undefined ? defaultPort : Number(match[2]);
  if (port === null || port < 1 || port > 65_535) return null;
  const host = readHostName(match[1]!) ?? readLiteral(match[1]!);
  return host === null ? null : { host, port };
}

function readLiteral(text: string): string | null {
  const address = parseAddress(text);
  if (address === null) return null;
  // Brackets are for IPv6 alone (RFC 3986, section 3.2.2); other readers refuse `[11]`, or see a name in it.
  if (text.startsWith('[') !== (address.version === 6)) return null;
  const mapped = address.version === 6 && address.value >> 32n === 0xffffn;
  if (address.version === 6 && !mapped) {
    // Written by the parser that everybody compares with.
    return new URL(`http://${text}/`).hostname.slice(1, -1);
  }
  return [24n, 16n, 8n, 0n].map((shift) => (address.value >> shift) & 255n).join('.');
}
