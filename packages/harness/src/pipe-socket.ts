import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';

/** Joins two connections: bytes pass both ways unread, and neither outlives the other. */
export function join(one: Socket, other: Socket): void {
  one.pipe(other).pipe(one);
  one.on('error', () => other.destroy());
  other.on('error', () => one.destroy());
  one.on('close', () => other.destroy());
  other.on('close', () => one.destroy());
}

/** A server whose connections each lead to a Unix socket of the host. */
export function pipeTo(socketPath: string): Server {
  return createServer({ allowHalfOpen: true }, (client) => {
    join(client, connect({ path: socketPath, allowHalfOpen: true }));
  });
}

/** Listens without keeping the process alive; resolves with the port. */
export function listen(server: Server, port: number, host: string): Promise<number> {
  server.unref();
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => resolve((server.address() as AddressInfo).port));
  });
}
