import { connect, createServer, type AddressInfo } from 'node:net';
import type { TestContext } from 'node:test';
import type { Connection } from '../../src/store/embedded/server.ts';

/** The database by TCP, as an address can name it; that of the tests listens on a socket alone. */
export async function addressOf(
  t: TestContext,
  { host, user, password, database }: Connection,
): Promise<string> {
  const server = createServer((client) => {
    const far = connect(`${String(host)}/.s.PGSQL.5432`);
    for (const socket of [client, far]) socket.on('error', () => undefined);
    client.pipe(far).pipe(client);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => void server.close());
  const { port } = server.address() as AddressInfo;
  return `postgres://${user}:${encodeURIComponent(String(password))}@127.0.0.1:${port}/${database}`;
}
