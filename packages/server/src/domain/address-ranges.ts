/** An IP address as a number, so that a range is a shift and a comparison. */
export interface Address {
  version: 4 | 6;
  value: bigint;
}

/** Addresses that share their first `prefix` bits with `address`. */
export interface Network {
  address: Address;
  prefix: number;
}

/**
 * Reads an address in any form that some resolver or library accepts (WHATWG URL, section 3.5, and inet_aton): IPv4
 * with one to four parts in decimal, octal or hex, IPv6 with `::`, a dotted tail, brackets and a zone. Null for names.
 */
export function parseAddress(text: string): Address | null {
  const bare = text.replace(/^\[(.*)\]$/, '$1').replace(/%.*$/, '');
  return bare.includes(':') ? parseIpv6(bare) : parseIpv4(bare);
}

function parseIpv4(text: string): Address | null {
  const parts = text.replace(/\.$/, '').split('.');
  if (parts.length > 4) return null;
  const numbers = parts.map(parsePart);
  const last = numbers.pop();
  if (last === undefined || last === null) return null;
  let value = 0n;
  for (const number of numbers) {
    if (number === null || number > 255n) return null;
    value = (value << 8n) | number;
  }
  // The last part fills all bytes that the others left.
  const bits = BigInt(8 * (4 - numbers.length));
  if (last >= 1n << bits) return null;
  return { version: 4, value: (value << bits) | last };
}

function parsePart(text: string): bigint | null {
  if (/^0x[0-9a-f]*$/i.test(text)) return text.length === 2 ? 0n : BigInt(text);
  if (/^0[0-7]+$/.test(text)) return BigInt(`0o${text.slice(1)}`);
  return /^(0|[1-9][0-9]{0,19})$/.test(text) ? BigInt(text) : null;
}

function parseIpv6(text: string): Address | null {
  const halves = text.split('::');
  if (halves.length > 2) return null;
  const head = parseGroups(halves[0]!, halves.length === 1);
  const tail = halves.length === 2 ? parseGroups(halves[1]!, true) : [];
  if (!head || !tail) return null;
  const missing = 8 - head.length - tail.length;
  if (halves.length === 2 ? missing < 1 : missing !== 0) return null;
  const groups = [...head, ...Array<bigint>(missing).fill(0n), ...tail];
  return { version: 6, value: groups.reduce((value, group) => (value << 16n) | group, 0n) };
}

function parseGroups(text: string, dottedTail: boolean): bigint[] | null {
  if (text === '') return [];
  const groups: bigint[] = [];
  const parts = text.split(':');
  for (const [index, part] of parts.entries()) {
    if (/^[0-9a-f]{1,4}$/i.test(part)) {
      groups.push(BigInt(`0x${part}`));
      continue;
    }
    const isLast = index === parts.length - 1;
    const dotted = dottedTail && isLast && /^\d{1,3}(\.\d{1,3}){3}$/.test(part) ? parseIpv4(part) : null;
    if (!dotted) return null;
    groups.push(dotted.value >> 16n, dotted.value & 0xffffn);
  }
  return groups;
}

/** Reads `10.0.0.0/8` or `fd00::/8`; null when it is neither. */
export function parseNetwork(text: string): Network | null {
  const [host, bits, ...more] = text.split('/');
  const address = host === undefined ? null : parseAddress(host);
  if (!address || more.length > 0 || !/^\d{1,3}$/.test(bits ?? '')) return null;
  const prefix = Number(bits);
  return prefix <= width(address) ? { address, prefix } : null;
}

export function contains(network: Network, address: Address): boolean {
  if (network.address.version !== address.version) return false;
  const shift = BigInt(width(address) - network.prefix);
  return network.address.value >> shift === address.value >> shift;
}

function width(address: Address): number {
  return address.version === 4 ? 32 : 128;
}

const networks = (...texts: string[]): Network[] => texts.map((text) => parseNetwork(text)!);

/** IANA's special-purpose registry (RFC 6890 and later), and one cloud's host that lies in public space. */
const closedIpv4 = networks(
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '168.63.129.16/32',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
);

/** All of IPv6 that is not global unicast is closed; these are the closed parts inside it. */
const globalIpv6 = networks('2000::/3');
const closedIpv6 = networks('2001::/23', '2001:db8::/32', '3fff::/20');

/** Ranges whose addresses stand for an IPv4 address, and how far from the right it lies. */
const carriers: { network: Network; shift: bigint }[] = [
  // Mapped, compatible, translated (RFC 4291, 2765), NAT64 (RFC 6052) and 6to4 (RFC 3056).
  { network: parseNetwork('::ffff:0:0/96')!, shift: 0n },
  { network: parseNetwork('::/96')!, shift: 0n },
  { network: parseNetwork('::ffff:0:0:0/96')!, shift: 0n },
  { network: parseNetwork('64:ff9b::/96')!, shift: 0n },
  { network: parseNetwork('2002::/16')!, shift: 80n },
];

/** The IPv4 address that a connection to this IPv6 address would end at, or null. */
export function carriedIpv4(address: Address): Address | null {
  const carrier = carriers.find(({ network }) => contains(network, address));
  return carrier ? { version: 4, value: (address.value >> carrier.shift) & 0xffff_ffffn } : null;
}

/**
 * Whether an address is on the public internet: not private, loopback, link-local (where clouds keep their metadata),
 * multicast, documentation or reserved, nor an IPv6 form of one of those. `allow` opens ranges again.
 */
export function isPublicAddress(address: Address, allow: readonly Network[] = []): boolean {
  if (allow.some((network) => contains(network, address))) return true;
  if (address.version === 4) return !closedIpv4.some((network) => contains(network, address));
  const carried = carriedIpv4(address);
  if (carried) return isPublicAddress(carried, allow);
  return (
    globalIpv6.some((network) => contains(network, address)) &&
    !closedIpv6.some((network) => contains(network, address))
  );
}
