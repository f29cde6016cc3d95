import type { TestContext } from 'node:test';
import { inSlices, type BodySender, type Sliced } from '../../src/domain/slices.ts';

/** Large work of this sender waits until it is let go, at the end of the test at last, since what one sender has is done in its order. */
export function holdLane(t: TestContext, sender: BodySender): () => Promise<void> {
  let isHeld = true;
  function* hold(): Sliced<void> {
    while (isHeld) yield;
  }
  const held = inSlices(sender, hold());
  const letGo = (): Promise<void> => {
    isHeld = false;
    return held;
  };
  t.after(letGo);
  return letGo;
}
