import type { TurnRequest, TurnResult } from '../../src/domain/ports/harness.ts';

/** Resolves as a harness that was cancelled does. */
export function untilStopped(turn: TurnRequest): Promise<TurnResult> {
  return new Promise((resolve) => {
    const done = () => resolve({ outcome: 'cancelled' });
    if (turn.signal.aborted) done();
    else turn.signal.addEventListener('abort', done, { once: true });
  });
}

export const never = new Promise<never>(() => {});

/** A promise with its resolver. */
export function gate<T = void>(): { opened: Promise<T>; open: (value: T) => void } {
  let open!: (value: T) => void;
  const opened = new Promise<T>((resolve) => (open = resolve));
  return { opened, open };
}

/** A small seeded generator (mulberry32), so that a failing round can be had again. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}
