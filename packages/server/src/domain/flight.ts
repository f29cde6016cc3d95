import { addTo } from './counts.ts';
import { DomainError } from './errors.ts';
import { limits } from './limits.ts';

/** Of bytes that are held at once: of one part of an organisation (where callers name parts), of all of it, of this process. */
export interface ShareLimits {
  ofPart?: number;
  ofOrg: number;
  ofAll: number;
}

export interface FlightLimits extends ShareLimits {
  /** A body up to here does not count with the others. */
  smallBytes: number;
  /** Of the small ones; without it they are taken always: there are not more of them than connections. */
  ofSmall?: ShareLimits;
}

/** What else bounds one body than its organisation. */
export interface BodyBounds {
  /** Within the organisation, such as a channel or a sandbox. */
  partId?: string;
  /** In place of `ofPart`, where that is less: so that the largest body that is allowed fits. */
  ofPartAtLeast?: number;
  /** Of `ofAll`, for what is to leave room for others; default 10. */
  tenthsOfAll?: number;
}

/** What a name or value costs beside its own bytes when it was parsed: about an empty object with its place in a list. */
const valueBytes = 64;

/** The bytes of one request's body, as long as it is read or worked on. */
export interface BodyHold {
  /** Throws `rate_limited` and `unavailable`, with when to try again, if these are too many; they do not count then. */
  add(bytes: number): void;
  /** The same for so many names and values, before they are made of the body. */
  addValues(count: number): void;
  /** Of those that were added, so many are not of the body. */
  remove(bytes: number): void;
  /** They are held no more, and what comes late does not count. May be called again. */
  drop(): void;
}

/**
 * The bytes of bodies that are in this process, from the first byte until their request is answered. Each body has its limit, but
 * many at once have another.
 */
export class Flight {
  readonly #smallBytes: number;
  readonly #large: Shares;
  readonly #small: Shares | null;

  constructor(most: FlightLimits = limits.bodiesInFlight) {
    this.#smallBytes = most.smallBytes;
    this.#large = new Shares(most, 'large requests');
    this.#small = most.ofSmall ? new Shares(most.ofSmall, 'requests') : null;
  }

  /** Of all bodies that are not small. */
  get bytes(): number {
    return this.#large.all;
  }

  /** Of those that are, if they are counted. */
  get smallBytes(): number {
    return this.#small?.all ?? 0;
  }

  bytesOf(orgId: string): number {
    return this.#large.ofOrg(orgId);
  }

  open(orgId: string, bounds: BodyBounds = {}): BodyHold {
    const owner = { ...bounds, orgId };
    let read = 0;
    let large = 0;
    let small = 0;
    let isOver = false;
    const set = (bytes: number): void => {
      if (isOver) return;
      const isLarge = bytes > this.#smallBytes;
      // A body that is no longer small counts from its first byte.
      const dueLarge = (isLarge ? bytes : 0) - large;
      const dueSmall = (isLarge ? 0 : bytes) - small;
      // Whatever gets less is never refused.
      if (bytes > read) {
        if (dueLarge > 0) this.#large.requireRoom(owner, dueLarge);
        // What leaves room for others leaves it of the large ones: nobody needs much of the small ones.
        if (dueSmall > 0) this.#small?.requireRoom({ orgId, partId: bounds.partId }, dueSmall);
      }
      read = bytes;
      large += dueLarge;
      small += dueSmall;
      this.#large.count(owner, dueLarge);
      this.#small?.count(owner, dueSmall);
    };
    return {
      add: (bytes) => set(read + bytes),
      addValues: (count) => set(read + count * valueBytes),
      remove: (bytes) => set(read - bytes),
      drop: () => {
        set(0);
        isOver = true;
      },
    };
  }
}

type Owner = { orgId: string; partId?: string | undefined; ofPartAtLeast?: number; tenthsOfAll?: number };

class Shares {
  readonly #most: ShareLimits;
  readonly #what: string;
  readonly #ofOrg = new Map<string, number>();
  readonly #ofPart = new Map<string, number>();
  all = 0;

  constructor(most: ShareLimits, what: string) {
    this.#most = most;
    this.#what = what;
  }

  ofOrg(orgId: string): number {
    return this.#ofOrg.get(orgId) ?? 0;
  }

  requireRoom({ orgId, partId, ofPartAtLeast = 0, tenthsOfAll = 10 }: Owner, bytes: number): void {
    const { ofPart = Infinity, ofOrg, ofAll } = this.#most;
    const held = partId === undefined ? 0 : (this.#ofPart.get(partId) ?? 0);
    if (held + bytes > Math.max(ofPart, ofPartAtLeast))
      throw this.#tooMany('rate_limited', ' to the same receiver');
    if (this.ofOrg(orgId) + bytes > ofOrg) throw this.#tooMany('rate_limited', ' of this organisation');
    if (this.all + bytes > (ofAll * tenthsOfAll) / 10) throw this.#tooMany('unavailable', '');
  }

  count({ orgId, partId }: Owner, change: number): void {
    this.all += change;
    addTo(this.#ofOrg, orgId, change);
    if (partId !== undefined) addTo(this.#ofPart, partId, change);
  }

  #tooMany(code: 'rate_limited' | 'unavailable', whose: string): DomainError {
    const text = `Too many ${this.#what}${whose} are under way; try again when others are answered.`;
    return new DomainError(code, text, { retryAfterSeconds: 1 });
  }
}
