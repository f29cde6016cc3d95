import { Agent, request as httpRequest } from 'node:http';
import type { IncomingMessage } from 'node:http';

/** What came of a message that was streamed; times are from the moment of sending. */
export interface Streamed {
  conversationId: string;
  firstMs: number;
  totalMs: number;
  /** Between two events that carry text. */
  gapsMs: number[];
  text: string;
  status: string;
}

export interface Answered {
  conversationId: string;
  totalMs: number;
  content: string;
}

/** A client that costs little: kept connections, no web streams. */
export class Client {
  readonly #url: URL;
  readonly #key: string;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: Infinity, maxFreeSockets: 1024 });

  constructor(url: string, key: string) {
    this.#url = new URL(url);
    this.#key = key;
  }

  #open(method: string, path: string, body: object | null, accept: string): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const text = body === null ? '' : JSON.stringify(body);
      const headers: Record<string, string | number> = { authorization: `Bearer ${this.#key}`, accept };
      if (body) {
        headers['content-type'] = 'application/json';
        headers['content-length'] = Buffer.byteLength(text);
      }
      const { hostname, port } = this.#url;
      const outgoing = httpRequest({ hostname, port, method, path, headers, agent: this.#agent }, resolve);
      outgoing.once('error', reject);
      outgoing.end(text);
    });
  }

  /** Rejects when the status is not one of success. */
  async json<T>(method: string, path: string, body: object | null = null): Promise<T> {
    const response = await this.#open(method, path, body, 'application/json');
    response.setEncoding('utf8');
    let text = '';
    for await (const chunk of response) text += chunk;
    const status = response.statusCode ?? 0;
    if (status >= 300) throw new Error(`${method} ${path} gave ${status}: ${text.slice(0, 500)}`);
    return (text === '' ? null : JSON.parse(text)) as T;
  }

  /** Sends a message and waits for the whole answer as JSON. */
  async send(agentId: string, conversationId: string | null, content: string): Promise<Answered> {
    const startMs = performance.now();
    type Sent = { conversationId: string; status: string; message: { content: string } | null };
    const sent = await this.json<Sent>('POST', '/api/v1/chat/send', { agentId, conversationId, content });
    if (!sent.message) throw new Error(`The run ended as ${sent.status}: ${JSON.stringify(sent)}`);
    const totalMs = performance.now() - startMs;
    return { conversationId: sent.conversationId, totalMs, content: sent.message.content };
  }

  /** Sends a message and reads the run's events as they come. */
  async stream(agentId: string, conversationId: string | null, content: string): Promise<Streamed> {
    const startMs = performance.now();
    const body = { agentId, conversationId, content, stream: true };
    const response = await this.#open('POST', '/api/v1/chat/send', body, 'text/event-stream');
    if (response.statusCode !== 200) throw new Error(`A streamed send gave ${response.statusCode}.`);
    const result: Streamed = { conversationId: '', firstMs: 0, totalMs: 0, gapsMs: [], text: '', status: '' };
    let lastMs = 0;
    let rest = '';
    response.setEncoding('utf8');
    for await (const chunk of response) {
      rest += chunk;
      const nowMs = performance.now() - startMs;
      for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
        const event = rest.slice(0, end);
        rest = rest.slice(end + 2);
        if (!takeEvent(event, result)) continue;
        if (lastMs === 0) result.firstMs = nowMs;
        else result.gapsMs.push(nowMs - lastMs);
        lastMs = nowMs;
      }
    }
    result.totalMs = performance.now() - startMs;
    return result;
  }

  close(): void {
    this.#agent.destroy();
  }
}

/** True when the event carries text of the answer. */
function takeEvent(event: string, result: Streamed): boolean {
  const type = /^event: ?(\S+)/m.exec(event)?.[1] ?? '';
  if (type === 'run.completed' || type === 'run.failed' || type === 'run.cancelled') result.status = type;
  if (type !== 'message.delta' && type !== 'message.created') return false;
  // The data of an event is the event, whose own data is what counts.
  const { data } = JSON.parse(/^data: ?(.*)$/m.exec(event)?.[1] ?? '{}') as { data: Record<string, string> };
  if (type === 'message.created') result.conversationId = data['conversationId'] ?? '';
  else result.text += data['text'] ?? '';
  return type === 'message.delta';
}
