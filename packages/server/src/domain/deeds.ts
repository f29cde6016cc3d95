import { KeyGate } from './key-gate.ts';

/**
 * Node has four threads for the file system, and they are for name lookups, compression and much else too: a disk that
 * answers nobody may hold half of them.
 */
const AT_ONCE = 2;

const gate = new KeyGate({ total: AT_ONCE, perKey: 1, maxWaiting: Infinity });

/**
 * Whatever can wait for the disk of a volume is done in one of these, by calls that do not hold the event loop: all that
 * changes files, reads or writes their content, or gives back the room of what has no name any more. One at a time is done
 * to a volume, so that what a deed finds is not changed by another one before it acts, and a disk that hangs holds one
 * thread. A deed waits for no other, for no client and for no program.
 */
export async function deed<T>(volumeDir: string, work: () => Promise<T>): Promise<T> {
  const leave = await gate.enter(volumeDir);
  try {
    return await work();
  } finally {
    leave();
  }
}
