import { connect, createServer } from 'node:net';
import type { Socket } from 'node:net';
import { SyntheticNames, serveDns } from './dns.ts';
import { join, listen } from './pipe-socket.ts';

const plainHttp = 80;
const maxHeadBytes = 16 * 1024;

/**
 * For programs that know no proxy, in a sandbox whose every address is its own (docs/egress.md): names are answered with
 * made-up addresses, and a connection to one is led to the proxy under the name. What it wanted is its local address.
 */
export async function openTransparent(socketPath: string, ports: number[]): Promise<void> {
  const names = new SyntheticNames();
  await serveDns(names);
  for (const port of ports) {
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (client) => {
      lead(client, port, socketPath, names);
    });
    await listen(server, port, '0.0.0.0');
  }
}

function lead(client: Socket, port: number, socketPath: string, names: SyntheticNames): void {
  client.on('error', () => client.destroy());
  const address = client.localAddress ?? '';
  // A program that looks for its own server must not find the proxy.
  if (address === '' || address.startsWith('127.')) return void client.resetAndDestroy();
  const target = `${names.nameOf(address) ?? address}:${port}`;
  const proxy = connect({ path: socketPath, allowHalfOpen: true });
  proxy.on('error', () => client.resetAndDestroy());
  client.on('close', () => proxy.destroy());
  proxy.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`);
  readHead(proxy, (head) => {
    if (head?.startsWith('HTTP/1.1 200 ')) return join(client, proxy);
    // Plain HTTP can be told why; whoever speaks TLS sees the connection fail.
    if (head === null || port !== plainHttp) {
      proxy.destroy();
      return client.resetAndDestroy();
    }
    client.resume();
    client.write(head);
    proxy.pipe(client);
  });
}

/** Calls back once with the head of the answer, and what follows is put back; null when there is none. */
function readHead(proxy: Socket, done: (head: string | null) => void): void {
  let bytes = Buffer.alloc(0);
  const end = (head: string | null) => {
    proxy.off('data', onData).off('close', onClose);
    proxy.pause();
    done(head);
  };
  const onClose = () => end(null);
  const onData = (chunk: Buffer) => {
    bytes = Buffer.concat([bytes, chunk]);
    const at = bytes.indexOf('\r\n\r\n');
    if (at < 0) return bytes.length > maxHeadBytes ? end(null) : undefined;
    const rest = bytes.subarray(at + 4);
    proxy.pause();
    if (rest.length > 0) proxy.unshift(rest);
    end(bytes.subarray(0, at + 4).toString('latin1'));
  };
  proxy.on('data', onData).on('close', onClose);
}
