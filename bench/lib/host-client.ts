import { Agent, request as httpRequest } from 'node:http';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';

/** Which agent's host, where it is, and the key. */
export interface HostPlace {
  agentId: string;
  port: number;
  key: string;
}

/** An agent's host over HTTP, at little cost: kept connections, no web streams. Hosts below `localhost` need no resolver. */
export class HostClient {
  readonly place: HostPlace;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: Infinity, maxFreeSockets: 1024 });

  constructor(place: HostPlace) {
    this.place = place;
  }

  /** The host of the agent, as it stands in URLs. */
  get host(): string {
    return `${this.place.agentId}.localhost:${this.place.port}`;
  }

  #open(method: string, path: string, body: object | null, more: Record<string, string>) {
    return new Promise<IncomingMessage>((resolve, reject) => {
      const text = body === null ? '' : JSON.stringify(body);
      const headers: Record<string, string | number> = {
        host: this.host,
        authorization: `Bearer ${this.place.key}`,
        ...(body && { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) }),
        ...more,
      };
      const to = { hostname: '127.0.0.1', port: this.place.port, method, path, headers, agent: this.#agent };
      const outgoing = httpRequest(to, resolve);
      outgoing.once('error', reject);
      outgoing.end(text);
    });
  }

  /** Resolves with the whole answer. Rejects when its status is not one of success. */
  async exchange(
    method: string,
    path: string,
    body: object | null,
    headers: Record<string, string> = {},
  ): Promise<{ head: IncomingHttpHeaders; text: string }> {
    const response = await this.#open(method, path, body, headers);
    response.setEncoding('utf8');
    let text = '';
    for await (const chunk of response) text += chunk;
    const status = response.statusCode ?? 0;
    if (status >= 300) throw new Error(`${method} ${path} gave ${status}: ${text.slice(0, 500)}`);
    return { head: response.headers, text };
  }

  /** The same with the JSON of the answer. */
  async json<T>(method: string, path: string, body: object | null, headers: Record<string, string> = {}) {
    const { text } = await this.exchange(method, path, body, headers);
    return JSON.parse(text) as T;
  }

  /** Tells the data of each server-sent event as it comes; resolves at the end of the stream. */
  async events(
    method: 'GET' | 'POST',
    path: string,
    body: object | null,
    headers: Record<string, string>,
    onData: (data: string) => void,
  ): Promise<void> {
    const response = await this.#open(method, path, body, { accept: 'text/event-stream', ...headers });
    if (response.statusCode !== 200) throw new Error(`${method} ${path} gave ${response.statusCode}.`);
    response.setEncoding('utf8');
    let rest = '';
    for await (const chunk of response) {
      rest += chunk;
      for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
        const data = /^data: ?(.*)$/m.exec(rest.slice(0, end))?.[1];
        rest = rest.slice(end + 2);
        if (data !== undefined) onData(data);
      }
    }
  }

  close(): void {
    this.#agent.destroy();
  }
}
