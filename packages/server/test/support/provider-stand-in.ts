import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface ProviderCall {
  method: string;
  path: string;
  headers: IncomingMessage['headers'];
  body: string;
}

export interface ProviderAnswer {
  status?: number;
  headers?: Record<string, string>;
  /** Sent as JSON. */
  body?: unknown;
  /** Sent as it is, in place of it. */
  raw?: string;
}

/** Somebody else's API on loopback: counts what it is asked, and answers what the test says; null: it hangs up. */
export async function providerStandIn(
  answer: (call: ProviderCall, before: ProviderCall[]) => ProviderAnswer | 'silence' | null,
  host = '127.0.0.1',
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
      if (said === 'silence') return;
      if (said === null) return void response.destroy();
      response
        .writeHead(said.status ?? 200, { 'content-type': 'application/json', ...said.headers })
        .end(said.raw ?? JSON.stringify(said.body));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, host, resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://${host}:${port}`,
    calls,
    async close(): Promise<void> {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
