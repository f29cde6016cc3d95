import type { Socket } from 'node:net';
import type { EgressOwner, EgressRecorder } from '../domain/ports/egress.ts';

interface Counted {
  owner: EgressOwner;
  host: string;
  sent: number;
  received: number;
  isNew: boolean;
}

const sampleMs = 10_000;

/** Counts the bytes of every connection that leaves, while it is open too: a tunnel may stay for a day. */
export function createMeter(recorder: EgressRecorder) {
  const open = new Map<Socket, Counted>();
  let timer: NodeJS.Timeout | null = null;
  let sentBytes = 0;
  let receivedBytes = 0;

  function sample(socket: Socket, counted: Counted): void {
    // Null-safe, since a socket that was taken over by TLS tells its numbers only while it lives.
    const sent = Math.max(0, (socket.bytesWritten ?? 0) - counted.sent);
    const received = Math.max(0, (socket.bytesRead ?? 0) - counted.received);
    if (sent === 0 && received === 0 && !counted.isNew) return;
    counted.sent += sent;
    counted.received += received;
    sentBytes += sent;
    receivedBytes += received;
    const { orgId, agentId } = counted.owner;
    const connections = counted.isNew ? 1 : 0;
    counted.isNew = false;
    recorder.passed({
      orgId,
      agentId,
      host: counted.host,
      sentBytes: sent,
      receivedBytes: received,
      connections,
    });
  }

  function sampleAll(): void {
    for (const [socket, counted] of open) sample(socket, counted);
  }

  return {
    /** Bytes that the socket carries from now on are the owner's, to this host. */
    track(owner: EgressOwner, host: string, socket: Socket): void {
      const counted: Counted = { owner, host, sent: 0, received: 0, isNew: true };
      open.set(socket, counted);
      timer ??= setInterval(sampleAll, sampleMs).unref();
      socket.once('close', () => {
        sample(socket, counted);
        open.delete(socket);
        if (open.size > 0 || timer === null) return;
        clearInterval(timer);
        timer = null;
      });
    },
    sampleAll,
    stats: () => ({ sentBytes, receivedBytes }),
  };
}

export type Meter = ReturnType<typeof createMeter>;
