import type { ChildProcess } from 'node:child_process';

/**
 * A process that was just spawned. Throws when the machine has no descriptors left for it: Node then gives a process
 * without streams, and tells the reason by an event that would end the service if nobody listened.
 */
export function started<T extends ChildProcess>(child: T): T {
  let failure: Error | null = null;
  child.on('error', (error) => (failure = error));
  // Typed as always there, which it is not.
  const streams = child.stdio as unknown[] | undefined;
  if (streams === undefined) {
    throw new Error('No process could be started: the machine has no file descriptors left.', {
      cause: failure,
    });
  }
  return child;
}
