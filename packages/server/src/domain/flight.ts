import { addTo } from './counts.ts';
import { DomainError } from './errors.ts';
import { limits } from './limits.ts';

export interface FlightLimits {
  /** A body up to here is taken always: there are not more of them than connections. */
  smallBytes: number;
  ofOrg: number;
  ofAll: number;
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
  readonly #limits: FlightLimits;
  readonly #ofOrg = new Map<string, number>();
  #all = 0;

  constructor(most: FlightLimits = limits.bodiesInFlight) {
    this.#limits = most;
  }

  /** Of all bodies that are not small. */
  get bytes(): number {
    return this.#all;
  }

  bytesOf(orgId: string): number {
    return this.#ofOrg.get(orgId) ?? 0;
  }

  open(orgId: string): BodyHold {
    let read = 0;
    let held = 0;
    let isOver = false;
    const set = (bytes: number): void => {
      if (isOver) return;
      // A body that is no longer small counts from its first byte.
      const due = (bytes > this.#limits.smallBytes ? bytes : 0) - held;
      if (due > 0) this.#requireRoom(orgId, due);
      read = bytes;
      held += due;
      this.#count(orgId, due);
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

  #requireRoom(orgId: string, bytes: number): void {
    if (this.bytesOf(orgId) + bytes > this.#limits.ofOrg)
      throw new DomainError(
        'rate_limited',
        'Too many large requests of this organisation are under way; try again when others are answered.',
        { retryAfterSeconds: 1 },
      );
    if (this.#all + bytes > this.#limits.ofAll)
      throw new DomainError(
        'unavailable',
        'Too many large requests are under way; try again when others are answered.',
        { retryAfterSeconds: 1 },
      );
  }

  #count(orgId: string, change: number): void {
    this.#all += change;
    addTo(this.#ofOrg, orgId, change);
  }
}

/** For what is read where no organisation is known, and has a bound of its own. */
export const uncounted: BodyHold = {
  add: () => undefined,
  addValues: () => undefined,
  remove: () => undefined,
  drop: () => undefined,
};
