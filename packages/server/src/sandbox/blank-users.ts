import { randomInt } from 'node:crypto';

/** Far from the agents' own (200000 and up), and from the ranges that systemd and subuid(5) give away. */
const FIRST_UID = 1_900_000_000;
const UIDS = 200_000_000;

/**
 * Host users of sandboxes that were made before their agents: one each, that no other living sandbox has. The files of the
 * agent keep their owner; the mount in the sandbox shows them as this user's.
 */
export class BlankUsers {
  readonly #uids = new Map<string, number>();

  take(id: string): number {
    for (;;) {
      const uid = FIRST_UID + randomInt(UIDS);
      if ([...this.#uids.values()].includes(uid)) continue;
      this.#uids.set(id, uid);
      return uid;
    }
  }

  /** Of a sandbox that an earlier process made. */
  know(id: string, uid: number): void {
    this.#uids.set(id, uid);
  }

  free(id: string): void {
    this.#uids.delete(id);
  }
}
