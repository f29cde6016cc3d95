import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { hostFetch } from './host-fetch.ts';
import type { Pushed, Workshop } from './scenario.ts';
import { workshop } from './scenario.ts';
import type { Service, ServiceOptions } from './service.ts';
import { startService } from './service.ts';
import { scriptedAgent } from './scripted-agent.ts';

export interface A2aReply {
  status: number;
  headers: Headers;
  text: string;
  // oxlint-disable-next-line no-explicit-any -- tests read into answers of all operations
  body: any;
}

export interface A2aWorld {
  service: Service;
  shop: Workshop;
  agent: Pushed;
  /** Of the agent's host. */
  origin: string;
  originOf(agentId: string): string;
  fetch: typeof fetch;
  /** The answer as it begins, for streams. */
  open(method: string, path: string, options?: RequestOptions): Promise<Response>;
  request(method: string, path: string, options?: RequestOptions): Promise<A2aReply>;
  /** JSON-RPC 1.0; the answer's body. */
  // oxlint-disable-next-line no-explicit-any -- as above
  rpc(method: string, params?: unknown, options?: RequestOptions): Promise<any>;
  close(): Promise<void>;
}

export interface RequestOptions {
  key?: string | null;
  body?: unknown;
  headers?: Record<string, string>;
  origin?: string;
  signal?: AbortSignal;
}

export async function a2aWorld(
  options: ServiceOptions = {},
  files: Record<string, string> = scriptedAgent,
): Promise<A2aWorld> {
  const service = await startService(options);
  const shop = await workshop(service);
  const agent = await shop.agent(files, { name: 'Scripted', description: 'Does what it is told.' });
  const originOf = (agentId: string) => `http://${agentId}.localhost:${service.port}`;
  const origin = originOf(agent.id);
  const fetchHost = hostFetch(service.port);
  async function open(method: string, path: string, given: RequestOptions = {}): Promise<Response> {
    const key = given.key === undefined ? service.key : given.key;
    const headers: Record<string, string> = { 'a2a-version': '1.0', ...given.headers };
    if (key !== null) headers['authorization'] = `Bearer ${key}`;
    const init: RequestInit = { method, headers, signal: given.signal ?? null };
    if (given.body !== undefined) {
      headers['content-type'] ??= 'application/json';
      init.body = typeof given.body === 'string' ? given.body : JSON.stringify(given.body);
    }
    return fetchHost(`${given.origin ?? origin}${path}`, init);
  }
  async function request(method: string, path: string, given: RequestOptions = {}): Promise<A2aReply> {
    const response = await open(method, path, given);
    const text = await response.text();
    return { status: response.status, headers: response.headers, text, body: parse(text) };
  }
  return {
    service,
    shop,
    agent,
    origin,
    originOf,
    fetch: fetchHost,
    open,
    request,
    async rpc(method, params = {}, given = {}) {
      const reply = await request('POST', '/a2a', {
        ...given,
        body: { jsonrpc: '2.0', id: 1, method, params },
      });
      assert.match(reply.headers.get('content-type') ?? '', /^application\/json/, reply.text);
      return reply.body;
    },
    async close() {
      await shop.close();
      await service.end();
    },
  };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export function message(text: string, more: Record<string, unknown> = {}): Record<string, unknown> {
  return { messageId: randomUUID(), role: 'ROLE_USER', parts: [{ text }], ...more };
}

/** The data of each event of a stream of server-sent events, as it comes; closes the connection when left. */
// oxlint-disable-next-line no-explicit-any -- as above
export async function* sse(response: Response): AsyncGenerator<{ id: string | undefined; data: any }> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
    text += decoder.decode(chunk, { stream: true });
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
      const lines = text.slice(0, end).split('\n');
      text = text.slice(end + 2);
      const data = lines.find((line) => line.startsWith('data: '))?.slice(6);
      const id = lines.find((line) => line.startsWith('id: '))?.slice(4);
      if (data !== undefined) yield { id, data: JSON.parse(data) };
    }
  }
}
