import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';

/**
 * A reverse proxy before one host that adds a key, for clients that can send none. Addresses of the host in JSON answers
 * become its own.
 */
export async function keyedProxy(
  target: { origin: string; fetch: typeof fetch },
  key: string,
): Promise<{ url: string; close(): Promise<void> }> {
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const headers = new Headers(
      Object.entries(request.headers).flatMap(([name, value]) =>
        typeof value === 'string' &&
        !['host', 'connection', 'content-length', 'transfer-encoding'].includes(name)
          ? [[name, value]]
          : [],
      ) as [string, string][],
    );
    headers.set('authorization', `Bearer ${key}`);
    const init: RequestInit = { method: request.method!, headers };
    if (chunks.length > 0) init.body = Buffer.concat(chunks);
    const answer = await target.fetch(target.origin + request.url, init);
    const type = answer.headers.get('content-type') ?? '';
    response.writeHead(answer.status, { 'content-type': type });
    if (type.startsWith('application/json'))
      response.end((await answer.text()).replaceAll(target.origin, url));
    else if (answer.body) Readable.fromWeb(answer.body as never).pipe(response);
    else response.end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    url,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
