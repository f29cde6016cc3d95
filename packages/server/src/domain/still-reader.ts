import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** How often it is looked in the time that a reader has; it is cut off no later than one look after its end. */
const LOOKS = 30;

/**
 * Calls `cut` when a reader has taken nothing for `stillMs` of what waits to be sent to it. A source that is slow is not the
 * reader's fault, and one who takes little at a time goes on. To be called when all was sent: what is returned.
 */
export function whenStill(outgoing: ServerResponse, stillMs: number, cut: () => void): () => void {
  let before: Waiting | null = null;
  // Looks and not times are counted: those of a service that was busy itself come late, and are fewer.
  let still = 0;
  // The timer of a socket is no help: it begins anew once for what the kernel takes of the last write at once.
  const looking = setInterval(() => {
    const now = outgoing.socket && waitingFor(outgoing.socket);
    const isSame = now !== null && now.taken === before?.taken && now.left === before.left;
    before = now;
    still = isSame ? still + 1 : 0;
    if (still < LOOKS) return;
    clearInterval(looking);
    cut();
  }, stillMs / LOOKS);
  looking.unref();
  return () => clearInterval(looking);
}

interface Waiting {
  /** Bytes of all writes that the kernel has taken whole. */
  taken: number;
  /** Of the one that is under way: falls as the kernel takes parts of it. */
  left: number;
}

/** Null: nothing waits. */
function waitingFor(socket: Socket): Waiting | null {
  const { bytesWritten, writableLength } = socket;
  if (writableLength === 0) return null;
  // Node tells of parts nowhere else, and its own timers go by it. Without it, only whole writes would count.
  const { _handle: handle } = socket as { _handle?: { writeQueueSize?: number } | null };
  return { taken: bytesWritten - writableLength, left: handle?.writeQueueSize ?? 0 };
}
