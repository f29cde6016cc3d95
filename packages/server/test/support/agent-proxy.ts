import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface AgentProxy {
  /** `http://127.0.0.1:<port>`. */
  url: string;
  close(): Promise<void>;
}

/**
 * An address of loopback that is an agent's own host with a key put in, for tools that can set no header. A `Host` or an
 * `Origin` of its own becomes the agent's; any other is passed on as it came.
 */
export async function agentProxy(port: number, host: string, key: string): Promise<AgentProxy> {
  const server = createServer((incoming, outgoing) => {
    const own = `127.0.0.1:${(server.address() as AddressInfo).port}`;
    const headers = { ...incoming.headers, authorization: `Bearer ${key}` };
    if (headers.host === own || headers.host === own.replace('127.0.0.1', 'localhost')) headers.host = host;
    if (/^http:\/\/(127\.0\.0\.1|localhost)(:\d+)?$/.test(headers.origin ?? ''))
      headers.origin = `http://${host}`;
    const sent = request(
      { host: '127.0.0.1', port, method: incoming.method, path: incoming.url, headers, agent: false },
      (answer) => {
        outgoing.writeHead(answer.statusCode!, answer.headers);
        answer.pipe(outgoing);
      },
    );
    outgoing.on('close', () => sent.destroy());
    sent.on('error', () => outgoing.destroy());
    incoming.pipe(sent);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
}
