import type { EventEmitter } from 'node:events';

/**
 * The arguments of `close`, however it came to that. Not `once`: it rejects at an `error`, and whether a peer that closes with
 * bytes unread is seen as an end or as a reset is a matter of which is first.
 */
export function closed(connection: EventEmitter): Promise<unknown[]> {
  return new Promise((resolve) => {
    connection.on('error', () => undefined);
    connection.once('close', (...details: unknown[]) => resolve(details));
  });
}
