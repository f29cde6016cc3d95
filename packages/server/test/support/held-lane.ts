import { inSlices, type BodySender, type Sliced } from '../../src/domain/slices.ts';

/** Large work of this sender waits until it is let go, since what one sender has is done in its order. */
export function holdLane(sender: BodySender): () => Promise<void> {
  let isHeld = true;
  function* hold(): Sliced<void> {
    while (isHeld) yield;
  }
  const held = inSlices(sender, hold());
  return () => {
    isHeld = false;
    return held;
  };
}
