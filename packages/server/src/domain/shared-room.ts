import { addTo } from './counts.ts';
import { DomainError } from './errors.ts';

export interface RoomLimits {
  ofOrg: number;
  ofAll: number;
}

/** Whose it is: keys share what their organisation has, and organisations share all. */
export interface KeyOwner {
  orgId: string;
  keyId: string;
}

/**
 * Room for something of which a key has at most as much as is left of its organisation's, and an organisation as much as is left of all:
 * whoever takes as much as it gets leaves as much to the next, so that no key and no organisation fills it for the others. A key alone
 * gets half of `ofOrg`, two get a third each.
 */
export class SharedRoom {
  readonly #most: RoomLimits;
  /** As in "Too many … are under way". */
  readonly #what: string;
  readonly #ofKey = new Map<string, number>();
  readonly #ofOrg = new Map<string, number>();
  #all = 0;

  constructor(most: RoomLimits, what: string) {
    this.#most = most;
    this.#what = what;
  }

  get all(): number {
    return this.#all;
  }

  /** Throws `rate_limited` and `unavailable`, with when to try again, if there is not so much left; nothing is taken then. */
  take(owner: KeyOwner, count: number): void {
    const ofOrg = this.#ofOrg.get(owner.orgId) ?? 0;
    const ofKey = this.#ofKey.get(owner.keyId) ?? 0;
    if (ofKey + count > this.#most.ofOrg - ofOrg)
      throw this.#tooMany('rate_limited', ' of this organisation');
    if (ofOrg + count > this.#most.ofAll - this.#all) throw this.#tooMany('unavailable', '');
    this.#count(owner, count);
  }

  giveBack(owner: KeyOwner, count: number): void {
    this.#count(owner, -count);
  }

  #count({ orgId, keyId }: KeyOwner, change: number): void {
    addTo(this.#ofKey, keyId, change);
    addTo(this.#ofOrg, orgId, change);
    this.#all += change;
  }

  #tooMany(code: 'rate_limited' | 'unavailable', whose: string): DomainError {
    const text = `Too many ${this.#what}${whose} are under way; try again when others are answered.`;
    return new DomainError(code, text, { retryAfterSeconds: 1 });
  }
}
