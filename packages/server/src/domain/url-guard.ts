import { isPublicAddress, parseAddress, type Network } from './address-ranges.ts';

/**
 * The guard against requests forged through the service (SSRF): every URL that comes from a user passes it before the
 * service connects anywhere. Callers dial one of `addresses`, never the name again, since the name could meanwhile
 * resolve to something else.
 */
export interface UrlGuard {
  /** Throws UrlRefused. `protocols` are such as `https:`. */
  check(url: string, protocols: readonly string[]): Promise<CheckedUrl>;
}

export interface CheckedUrl {
  url: URL;
  /** IP addresses as text, each of them allowed; never empty. */
  addresses: string[];
}

/** `message` is safe to show: it holds nothing but what the user wrote. */
export class UrlRefused extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'UrlRefused';
  }
}

/** The name cannot be resolved, at least not now. */
export class HostNotFound extends UrlRefused {}

export interface UrlGuardOptions {
  protocols: readonly string[];
  /** Ranges that are let through although they are not public (BERTH_ALLOW_PRIVATE_NETWORKS). */
  allow: readonly Network[];
  /** All addresses of a host name; rejects when there are none. */
  lookup: (hostname: string) => Promise<string[]>;
}

const maxUrlChars = 2048;
/** Controls, spaces and backslashes: what parsers drop, fold or read in different ways. */
// oxlint-disable-next-line no-control-regex
const unclear = /[\u0000-\u0020\u007f-\u00a0\\\u2028\u2029\ufeff]/;

/** Parses a URL strictly, resolves its host once and checks every address. Throws UrlRefused. */
export async function checkPublicUrl(text: string, options: UrlGuardOptions): Promise<CheckedUrl> {
  const url = parseUserUrl(text, options.protocols);
  // `URL` has already rewritten 0x7f.1, 2130706433 and the like to dotted form.
  const literal = parseAddress(url.hostname);
  const addresses = literal ? [bareHost(url.hostname)] : await resolveHost(url, options.lookup);
  for (const address of addresses) {
    const parsed = parseAddress(address);
    if (parsed && isPublicAddress(parsed, options.allow)) continue;
    throw new UrlRefused(
      `The host "${url.hostname}" is on a private or reserved network, which the service does not connect to. ` +
        'The operator can open a range with BERTH_ALLOW_PRIVATE_NETWORKS.',
    );
  }
  return { url, addresses };
}

/** Only what no two parsers read differently: no credentials, no control characters, no backslashes. */
export function parseUserUrl(text: string, protocols: readonly string[]): URL {
  if (text.length > maxUrlChars) throw new UrlRefused(`The URL is longer than ${maxUrlChars} characters.`);
  if (text.startsWith('-') || unclear.test(text) || !URL.canParse(text)) {
    throw new UrlRefused('This is not a valid URL.');
  }
  const url = new URL(text);
  if (!protocols.includes(url.protocol)) {
    const wanted = protocols.map((protocol) => `${protocol}//`).join(' or ');
    throw new UrlRefused(`The URL must begin with ${wanted}.`);
  }
  if (url.username !== '' || url.password !== '') {
    throw new UrlRefused('The URL may not hold a user name or password.');
  }
  // The root's dot makes the same host look like another name to whoever compares.
  url.hostname = url.hostname.replace(/\.$/, '');
  if (url.hostname === '') throw new UrlRefused('The URL has no host.');
  return url;
}

async function resolveHost(url: URL, lookup: UrlGuardOptions['lookup']): Promise<string[]> {
  const found = await lookup(url.hostname).catch(() => []);
  if (found.length === 0) throw new HostNotFound(`The host "${url.hostname}" cannot be found.`);
  return found;
}

function bareHost(hostname: string): string {
  return hostname.replace(/^\[(.*)\]$/, '$1');
}
