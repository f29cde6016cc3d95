import type { ClientRequest, IncomingMessage } from 'node:http';
import { request } from 'node:http';

export interface SseFrame {
  id: string | undefined;
  event: string | undefined;
  data: string | undefined;
}

export interface SseClient {
  status: number;
  headers: IncomingMessage['headers'];
  frames: SseFrame[];
  /** Comment lines that came, heartbeats among them. */
  comments: number;
  /** True once the answer has ended, by the server's will or by a cut. */
  ended: boolean;
  /** The whole text so far. */
  text: string;
  request: ClientRequest;
  response: IncomingMessage;
  close(): void;
}

/** Opens a stream and reads it as it comes; `pause` leaves it unread. */
export function openSse(
  url: string,
  options: {
    key: string;
    method?: string;
    headers?: Record<string, string>;
    body?: unknown;
    pause?: boolean;
  },
): Promise<SseClient> {
  return new Promise((resolve, reject) => {
    const headers: Record<string, string> = { authorization: `Bearer ${options.key}`, ...options.headers };
    headers['accept'] ??= 'text/event-stream';
    if (options.body !== undefined) headers['content-type'] = 'application/json';
    const req = request(url, { method: options.method ?? 'GET', headers, agent: false });
    req.on('error', reject);
    req.on('response', (response) => {
      const client: SseClient = {
        status: response.statusCode!,
        headers: response.headers,
        frames: [],
        comments: 0,
        ended: false,
        text: '',
        request: req,
        response,
        close: () => req.destroy(),
      };
      let rest = '';
      response.setEncoding('utf8');
      response.on('error', () => {});
      response.on('close', () => (client.ended = true));
      if (!options.pause) {
        response.on('data', (chunk: string) => {
          client.text += chunk;
          const blocks = (rest + chunk).split('\n\n');
          rest = blocks.pop()!;
          for (const block of blocks) read(client, block);
        });
      }
      resolve(client);
    });
    req.end(options.body === undefined ? undefined : JSON.stringify(options.body));
  });
}

function read(client: SseClient, block: string): void {
  if (block.startsWith(':')) {
    client.comments += 1;
    return;
  }
  const fields = new Map(
    block.split('\n').map((line) => [line.split(': ', 1)[0]!, line.slice(line.indexOf(': ') + 2)]),
  );
  client.frames.push({ id: fields.get('id'), event: fields.get('event'), data: fields.get('data') });
}
