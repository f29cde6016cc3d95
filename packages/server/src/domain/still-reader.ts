import type { ServerResponse } from 'node:http';

/**
 * Calls `cut` when a reader has taken nothing for `stillMs` of what waits to be sent to it. A source that is slow is not the
 * reader's fault, and one who takes little at a time goes on. To be called when all was sent: what is returned.
 */
export function whenStill(outgoing: ServerResponse, stillMs: number, cut: () => void): () => void {
  // The timer of a socket begins anew when the kernel takes a part of what is written too.
  const look = (): void => {
    if ((outgoing.socket?.writableLength ?? 0) > 0) cut();
  };
  outgoing.setTimeout(stillMs, look);
  return () => {
    outgoing.off('timeout', look);
    outgoing.setTimeout(0);
  };
}
