import type { KeptSandbox } from './kept-sandbox.ts';

/** The one that gives way when another agent needs a place; null: there is none, or one is on its way out already. */
export function spareOf(all: Iterable<KeptSandbox>): KeptSandbox | null {
  let spare: KeptSandbox | null = null;
  for (const kept of all) {
    // It makes room by itself.
    if (!kept.canTakeTurns) return null;
    if (!kept.isFree) continue;
    // Open connections keep an agent from being stopped, but not another one from being started.
    if (!spare || order(kept) < order(spare)) spare = kept;
  }
  return spare;
}

/** Which of two gives way first is the lower one: those without connections, then those that were not used the longest. */
function order(kept: KeptSandbox): number {
  return kept.isIdle ? kept.lastUsedMs - performance.now() - 1 : kept.lastUsedMs;
}

/** What nobody uses is frozen after a while, and ended after a longer one. To be asked now and then: it notes the use. */
export function dueFor(kept: KeptSandbox, freezeAfterMs: number | null): 'freeze' | 'end' | null {
  const nowMs = performance.now();
  if (!kept.isIdle) kept.lastUsedMs = nowMs;
  const idleMs = nowMs - kept.lastUsedMs;
  if (!kept.canTakeTurns) return null;
  if (idleMs >= kept.idleMs) return 'end';
  return freezeAfterMs !== null && idleMs >= freezeAfterMs && !kept.isFrozen ? 'freeze' : null;
}
