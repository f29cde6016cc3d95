import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** Whether nothing holds a thing any more. */
export async function isCollected(ref: WeakRef<object>): Promise<boolean> {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  for (let tries = 0; tries < 20; tries += 1) {
    // What a WeakRef was made of or asked for is held to the end of the turn.
    await new Promise((resolve) => setImmediate(resolve));
    collect();
    if (ref.deref() === undefined) return true;
  }
  return false;
}
