import { once } from 'node:events';
import type { Server } from 'node:http';
import { connect, type AddressInfo, type Socket } from 'node:net';
import type { TestContext } from 'node:test';

/** Has a server listen until the test ends, with all that dialled it; how it is dialled. */
export async function dialling(t: TestContext, server: Server): Promise<() => Socket> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const clients: Socket[] = [];
  t.after(() => {
    for (const client of clients) client.destroy();
    server.closeAllConnections();
    server.close();
  });
  return () => {
    const client = connect((server.address() as AddressInfo).port, '127.0.0.1');
    clients.push(client);
    return client.on('error', () => undefined);
  };
}
