import { DomainError } from '../domain/errors.ts';
import { limits } from '../domain/limits.ts';

export interface BacklogDependencies {
  /** Events of the organisation whose turn has not begun, counted up to `atMost`. */
  count(orgId: string, atMost: number): Promise<number>;
  /** Default: `limits.inboundBacklogPerOrg`. */
  perOrg?: number;
  /** A count is believed for so long; default five seconds. */
  countEveryMs?: number;
  now: () => number;
}

export interface Backlog {
  /** Throws `unavailable` when too much waits already; a tenth more is let in when it is `reserved`. */
  requireRoom(orgId: string, isReserved: boolean): Promise<void>;
}

/** Of an organisation that has so much already, a delivery waits for the count; the others go on while it is made. */
const nearly = 0.8;
const retryAfterSeconds = 60;

/**
 * Bounds what waits in the inbox of each organisation. What a count does not know yet gets in: of one replica, no more
 * than comes within the time of two counts.
 */
export function createBacklog({ count, now, ...options }: BacklogDependencies): Backlog {
  const { perOrg = limits.inboundBacklogPerOrg, countEveryMs = 5_000 } = options;
  const known = new Map<string, { atMs: number; waiting: number }>();
  const counting = new Map<string, Promise<number>>();

  function countAnew(orgId: string): Promise<number> {
    const under = counting.get(orgId);
    if (under) return under;
    const made = count(orgId, Math.ceil(perOrg * 1.1))
      .then((waiting) => {
        if (known.size > 20_000) known.clear();
        known.set(orgId, { atMs: now(), waiting });
        return waiting;
      })
      .finally(() => counting.delete(orgId));
    counting.set(orgId, made);
    return made;
  }

  async function waitingOf(orgId: string): Promise<number> {
    const before = known.get(orgId);
    if (before && now() - before.atMs < countEveryMs) return before.waiting;
    const counted = countAnew(orgId);
    if (before && before.waiting >= perOrg * nearly) return counted;
    // A count that fails says nothing; storing will say what is wrong with the database.
    counted.catch(() => undefined);
    return before?.waiting ?? 0;
  }

  return {
    async requireRoom(orgId, isReserved) {
      if ((await waitingOf(orgId)) < perOrg * (isReserved ? 1.1 : 1)) return;
      throw new DomainError(
        'unavailable',
        `More than ${perOrg} inbound events of the organisation wait for their turn; nothing more is taken until some are done.`,
        { retryAfterSeconds },
      );
    },
  };
}
