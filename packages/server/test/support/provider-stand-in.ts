import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface ProviderCall {
  method: string;
  path: string;
  headers: IncomingMessage['headers'];
  body: string;
}

/** Somebody else's API on loopback: counts what it is asked, and answers what the test says. */
export async function providerStandIn(
  answer: (
    call: ProviderCall,
    before: ProviderCall[],
  ) => { status?: number; headers?: Record<string, string>; body: unknown } | null,
) {
  const calls: ProviderCall[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const call = {
        method: request.method ?? '',
        path: request.url ?? '',
        headers: request.headers,
        body: Buffer.concat(chunks).toString(),
      };
      const said = answer(call, [...calls]);
      calls.push(call);
      if (said === null) return void response.destroy();
      response
        .writeHead(said.status ?? 200, { 'content-type': 'application/json', ...said.headers })
        .end(JSON.stringify(said.body));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    calls,
    async close(): Promise<void> {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
