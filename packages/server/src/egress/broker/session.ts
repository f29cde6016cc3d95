import { EgressRefused, type EgressTarget } from '../../domain/egress-policy.ts';
import { hostDomain, hostMatches, hostNameMatches } from '../../domain/hosts.ts';
import { limits } from '../../domain/limits.ts';
import { ReadingAccount } from '../../domain/paced.ts';
import type { BrokeredName, BrokeredSecret, BrokeredValues } from '../../domain/ports/secret-broker.ts';
import type { RequestHead } from '../interceptor.ts';
import { createAuthority, type Authority } from './authority.ts';
import { freshReads } from './fresh-reads.ts';
import { Placeholders } from './placeholders.ts';
import { fillHeaders, findPlaceholders, type FoundPlaceholders } from './request-secrets.ts';
import { areSameValues, scrubsOf, type Scrubs, type ScrubValue, type Search } from './scrub.ts';

export interface SessionOptions {
  /** 32 random bytes of this start. */
  seed: Buffer;
  /** What the sandbox was started with. */
  secrets: BrokeredName[];
  /** Hosts that may tell what secrets were before. */
  earlierHosts: string[];
  /** The agent's brokered secrets as they are now, and what is still searched for. */
  read: () => Promise<BrokeredValues>;
}

/** A request with the values in it. */
export interface FilledRequest {
  headers: RequestHead['headers'];
  /** Secrets of this host whose placeholder stands where it is not replaced. */
  left: string[];
}

/** Of the current values of one host: making the list of what its answers are searched for is work for all sandboxes. */
const MAX_BYTES_OF_HOST = 256 * 1024;
/** Hosts with other secrets; when there are more, lists are made again more often. */
const MAX_LISTS = 32;

const nothing: Scrubs = scrubsOf([]);

/** What is known of one sandbox's brokered secrets. Each request reads their values; what is kept of them goes with the answers. */
export class BrokerSession {
  readonly authority: Authority;
  readonly placeholders: Placeholders;
  /** Of what is read for the sandbox here. */
  readonly reading = new ReadingAccount();
  readonly #secrets: Map<string, string[]>;
  readonly #earlierHosts: string[];
  readonly #read: () => Promise<BrokeredValues>;
  /** What answers are searched for that are asked for or under way, by host and port. */
  readonly #searches = new Map<string, Set<{ scrubs: Scrubs }>>();
  /** Lists of forms, as long as memory has them anyway: answers under way do, and each takes a while to make. */
  #made: WeakRef<Scrubs>[] = [];

  constructor({ seed, secrets, earlierHosts, read }: SessionOptions) {
    this.#secrets = new Map(secrets.map(({ key, hosts }) => [key, hosts]));
    this.placeholders = new Placeholders(seed, [...this.#secrets.keys()]);
    this.#earlierHosts = earlierHosts;
    const domains = [...secrets.flatMap(({ hosts }) => hosts), ...earlierHosts].map(hostDomain);
    this.authority = createAuthority({ seed, domains: [...new Set(domains)] });
    this.#read = freshReads(read);
  }

  /** By what the sandbox was started with: the authority that it trusts may sign for no other host. */
  takes(target: EgressTarget): boolean {
    for (const hosts of [...this.#secrets.values(), this.#earlierHosts]) {
      if (hosts.some((host) => hostMatches(host, target))) return true;
    }
    return false;
  }

  /** Throws EgressRefused when a placeholder would go where its value may not. */
  async fill(target: EgressTarget, head: RequestHead): Promise<FilledRequest> {
    const found = findPlaceholders(this.placeholders, head);
    const { secrets: current, earlier } = await this.#read();
    const secrets = new Map(current.map((secret) => [secret.key, secret]));
    for (const key of [...found.inHeaders, ...found.elsewhere]) requireHost(key, secrets.get(key), target);
    const headers = this.#headers(head, found, secrets);
    const values = this.#valuesOf(target, current);
    if (values.reduce((sum, { value }) => sum + value.length, 0) > MAX_BYTES_OF_HOST) throw tooMuch(target);
    const scrubs = this.#scrubs([...this.#valuesOf(target, earlier), ...values]);
    for (const search of this.#searches.get(nameOf(target)) ?? []) search.scrubs = scrubs;
    return { headers, left: [...found.elsewhere] };
  }

  /**
   * For the answer to a request, from before it is filled until `end` is called: what is set meanwhile, and then sent to
   * the same host, may come back with it, however long after the request its answer begins.
   */
  search(target: EgressTarget): { search: Search; end: () => void } {
    const name = nameOf(target);
    const others = this.#searches.get(name) ?? new Set();
    const search = { scrubs: nothing };
    this.#searches.set(name, others.add(search));
    const end = () => {
      others.delete(search);
      if (others.size === 0 && this.#searches.get(name) === others) this.#searches.delete(name);
    };
    return { search, end };
  }

  /** How many answers are asked for or under way. */
  get searchCount(): number {
    return [...this.#searches.values()].reduce((sum, { size }) => sum + size, 0);
  }

  /** The secrets among `keys` that are not for this target, by what is known without a read. */
  foreign(keys: Iterable<string>, target: EgressTarget): string[] {
    return [...keys].filter((key) => !this.#secrets.get(key)?.some((entry) => hostMatches(entry, target)));
  }

  /** Those that are for no port of the host. */
  foreignToName(keys: Iterable<string>, host: string): string[] {
    return [...keys].filter((key) => !this.#secrets.get(key)?.some((entry) => hostNameMatches(entry, host)));
  }

  #headers(
    head: RequestHead,
    found: FoundPlaceholders,
    secrets: Map<string, BrokeredSecret>,
  ): RequestHead['headers'] {
    if (found.inHeaders.size === 0) return head.headers;
    let count = 0;
    const headers = fillHeaders(this.placeholders, head.headers, (key) => {
      if ((count += 1) > limits.placeholdersPerRequest) {
        throw new EgressRefused(
          'bad_request',
          `A request may hold at most ${limits.placeholdersPerRequest} placeholders.`,
        );
      }
      return secrets.get(key)!.value.toString('latin1');
    });
    return headers;
  }

  #valuesOf(target: EgressTarget, secrets: BrokeredSecret[]): ScrubValue[] {
    return secrets
      .filter(({ hosts }) => hosts.some((entry) => hostMatches(entry, target)))
      .map(({ key, value }) => ({ value, placeholder: this.placeholders.textOf(key) }));
  }

  /** Of all values that the host may know, whoever sent them and whenever: it can tell them to any request. */
  #scrubs(values: ScrubValue[]): Scrubs {
    const made = this.#made.filter((ref) => ref.deref());
    this.#made = made;
    for (const ref of made) {
      const scrubs = ref.deref();
      // By what they are and not by when they were read: a value that was set meanwhile is never missed.
      if (scrubs && areSameValues(scrubs.values, values)) return scrubs;
    }
    const scrubs = scrubsOf(values);
    this.#made = [...made, new WeakRef(scrubs)].slice(-MAX_LISTS);
    return scrubs;
  }
}

const nameOf = ({ host, port }: EgressTarget): string => `${host}:${port}`;

function requireHost(key: string, secret: BrokeredSecret | undefined, target: EgressTarget): void {
  if (secret?.hosts.some((entry) => hostMatches(entry, target))) return;
  if (secret) throw wrongHost(key, target);
  throw new EgressRefused(
    'placeholder_to_wrong_host',
    `The secret ${key} was deleted; its placeholder is not sent.`,
  );
}

function tooMuch({ host, port }: EgressTarget): EgressRefused {
  return new EgressRefused(
    'bad_request',
    `The brokered secrets of ${host}:${port} have more than ${MAX_BYTES_OF_HOST / 1024} KiB together; broker fewer or shorter ones for it.`,
  );
}

export function wrongHost(key: string, target: EgressTarget): EgressRefused {
  return new EgressRefused(
    'placeholder_to_wrong_host',
    `The placeholder of the secret ${key} was about to be sent to ${target.host}:${target.port}, which is none of its hosts.`,
  );
}
