/** How much is worked on at once of what came in, so that what comes in is still taken in time. */
export interface InboundPace {
  /** How long a delivery waited until it was durable. */
  taken(tookMs: number): void;
  /** What of the places for work may be filled, from `leastShare` to 1. */
  share(): number;
}

/** A sender waits for the one and not for the other: Slack gives up after three seconds, and a turn may take minutes. */
const slowMs = 40;
const quickMs = 20;
/** Between two looks: some commits. */
const lookEveryMs = 100;
/**
 * From nothing to everything: when nothing comes, and while deliveries are quick. Each turn that begins makes those slower
 * that come meanwhile, which is seen only some turns later: what grows as fast as in quiet is far too much by then.
 */
const recoverMs = { quiet: 3_000, busy: 10_000 };
/** What was taken is worked on however much comes: other organisations and the first in line wait for it. */
const leastShare = 1 / 32;

/** Fewer turns begin while deliveries take long to be taken, half as many with each look; more when they are quick again. */
export function createInboundPace(now: () => number = () => performance.now()): InboundPace {
  let share = 1;
  let lookedAtMs = now();
  let sumMs = 0;
  let count = 0;

  function look(): void {
    const elapsedMs = now() - lookedAtMs;
    if (elapsedMs < lookEveryMs) return;
    const meanMs = count === 0 ? 0 : sumMs / count;
    if (meanMs > slowMs) share = Math.max(leastShare, share / 2);
    // What nobody looked at for longer was a time in which nothing came.
    const sinceMs = count === 0 ? elapsedMs : elapsedMs - lookEveryMs;
    const quietMs = count === 0 || sinceMs > lookEveryMs ? sinceMs : 0;
    const busyMs = count > 0 && meanMs < quickMs ? elapsedMs - quietMs : 0;
    share = Math.min(1, share + quietMs / recoverMs.quiet + busyMs / recoverMs.busy);
    lookedAtMs += elapsedMs;
    sumMs = 0;
    count = 0;
  }

  return {
    taken(tookMs) {
      look();
      sumMs += tookMs;
      count += 1;
    },
    share() {
      look();
      return share;
    },
  };
}
