/** How much is worked on at once of what came in, so that what comes in is still taken in time. */
export interface InboundPace {
  /** How long a delivery waited until it was durable. */
  taken(tookMs: number): void;
  /** What of the places for work may be filled, from `leastShare` to 1. */
  share(): number;
}

/** A sender waits for the one and not for the other: Slack gives up after three seconds, and a turn may take minutes. */
const slowMs = 50;
const quickMs = 25;
/** Between two looks: some commits. */
const lookEveryMs = 100;
/** From nothing to everything, when it has become quiet. */
const recoverMs = 3_000;
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
    const calmMs = meanMs < quickMs ? elapsedMs : elapsedMs - lookEveryMs;
    if (meanMs < quickMs || calmMs > lookEveryMs) share = Math.min(1, share + calmMs / recoverMs);
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
