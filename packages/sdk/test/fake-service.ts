import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { TestContext } from 'node:test';

export interface Seen {
  method: string;
  path: string;
  headers: IncomingMessage['headers'];
  // oxlint-disable-next-line no-explicit-any -- bodies of all routes
  body: any;
}

/** Answers requests one after another by `answers`; the last one goes on answering. */
export async function fakeService(
  context: TestContext,
  answers: ((response: ServerResponse, seen: Seen) => void)[],
) {
  const seen: Seen[] = [];
  const server = createServer((request, response) => {
    let text = '';
    request.setEncoding('utf8').on('data', (part: string) => (text += part));
    request.on('end', () => {
      const one: Seen = {
        method: request.method!,
        path: request.url!,
        headers: request.headers,
        body: text === '' ? undefined : JSON.parse(text),
      };
      seen.push(one);
      answers[Math.min(seen.length, answers.length) - 1]!(response, one);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  context.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen };
}

export const json =
  (status: number, body: unknown, headers: Record<string, string> = {}) =>
  (response: ServerResponse): void => {
    response.writeHead(status, { 'content-type': 'application/json', ...headers });
    response.end(body === undefined ? undefined : JSON.stringify(body));
  };

export const frame = (seq: number, type: string, data: object): string =>
  `id: ${seq}\nevent: ${type}\ndata: ${JSON.stringify({ seq, type, at: '2026-01-01T00:00:00.000Z', data })}\n\n`;

/** A stream of these frames; `cut` breaks the connection after them, otherwise it ends in order. */
export const stream =
  (frames: string[], options: { cut?: boolean; headers?: Record<string, string> } = {}) =>
  (response: ServerResponse): void => {
    response.writeHead(200, { 'content-type': 'text/event-stream', ...options.headers });
    response.flushHeaders();
    if (!options.cut) return void response.end(frames.join(''));
    // The bytes leave before the reset, which would swallow them.
    response.write(frames.join(''), () => setImmediate(() => response.destroy()));
  };

export const cut = (response: ServerResponse): void => void response.destroy();
