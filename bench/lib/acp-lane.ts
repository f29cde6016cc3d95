import { once } from 'node:events';
import { WebSocket } from 'ws';
import type { HostClient } from './host-client.ts';
import type { Lane } from './surfaces.ts';

interface Incoming {
  id?: number;
  result?: { sessionId?: string; stopReason?: string };
  error?: { message: string };
  params?: { update: { sessionUpdate: string; content?: { text?: string } } };
}

/** A connection that is initialized. */
interface Pipe {
  /** `sessionId`: of the session that the message is about. */
  send(message: object, sessionId?: string): void;
  /** Hears what is told of a new session. */
  follow(sessionId: string): void;
  end(): void;
}

/** `hear` gets each message as it came, `fail` what ended the connection or a request. */
type Connect = (
  http: HostClient,
  initialize: object,
  hear: (data: string) => void,
  fail: (error: Error) => void,
) => Promise<Pipe>;

/** A client of the Agent Client Protocol that keeps one WebSocket, with a session for each conversation. */
export const openSocketLane = (http: HostClient): Promise<Lane> => openLane(http, bySocket);

/** The same by streamable HTTP: a stream of the connection, one of each session, and a request for each message. */
export const openHttpLane = (http: HostClient): Promise<Lane> => openLane(http, byHttp);

async function openLane(http: HostClient, connect: Connect): Promise<Lane> {
  const waiting = new Map<number, PromiseWithResolvers<NonNullable<Incoming['result']>>>();
  let lastId = 0;
  let text = '';
  let sessionId = '';

  const hear = (data: string) => {
    const { id, result, error, params } = JSON.parse(data) as Incoming;
    const update = params?.update;
    if (update?.sessionUpdate === 'agent_message_chunk') text += update.content?.text ?? '';
    if (id === undefined) return;
    const asked = waiting.get(id);
    waiting.delete(id);
    if (error) asked?.reject(new Error(`ACP answered: ${error.message}`));
    else asked?.resolve(result ?? {});
  };
  const fail = (error: Error) => {
    for (const asked of waiting.values()) asked.reject(error);
  };
  const question = (method: string, params: object) => {
    const asked = Promise.withResolvers<NonNullable<Incoming['result']>>();
    lastId += 1;
    waiting.set(lastId, asked);
    return { message: { jsonrpc: '2.0', id: lastId, method, params }, answer: asked.promise };
  };
  const clientInfo = { name: 'bench', version: '1' };
  const first = question('initialize', { protocolVersion: 1, clientCapabilities: {}, clientInfo });
  const pipe = await connect(http, first.message, hear, fail);
  await first.answer;

  const ask = (method: string, params: object, about?: string) => {
    const { message, answer } = question(method, params);
    pipe.send(message, about);
    return answer;
  };
  return {
    async say(content, isNew) {
      if (isNew) {
        sessionId = (await ask('session/new', { cwd: '/', mcpServers: [] })).sessionId ?? '';
        pipe.follow(sessionId);
      }
      text = '';
      const prompt = [{ type: 'text', text: content }];
      await ask('session/prompt', { sessionId, prompt }, sessionId);
      return text;
    },
    end: () => pipe.end(),
  };
}

const bySocket: Connect = async (http, initialize, hear, fail) => {
  const { port, key } = http.place;
  const headers = { host: http.host, authorization: `Bearer ${key}` };
  const socket = new WebSocket(`ws://127.0.0.1:${port}/acp`, { headers, perMessageDeflate: false });
  socket.on('message', (data: Buffer) => hear(data.toString('utf8')));
  socket.on('close', () => fail(new Error('The WebSocket was closed.')));
  await once(socket, 'open');
  const send = (message: object) => socket.send(JSON.stringify(message));
  send(initialize);
  return { send, follow() {}, end: () => socket.terminate() };
};

const byHttp: Connect = async (http, initialize, hear, fail) => {
  const path = '/acp';
  const { head, text } = await http.exchange('POST', path, initialize);
  const connection = { 'acp-connection-id': String(head['acp-connection-id']) };
  const about = (sessionId: string) => ({ ...connection, 'acp-session-id': sessionId });
  const listen = (headers: Record<string, string>) => {
    const ended = () => fail(new Error('A stream of the connection has ended.'));
    http.events('GET', path, null, headers, hear).then(ended, fail);
  };
  hear(text);
  listen(connection);
  return {
    send(message, sessionId) {
      const headers = sessionId === undefined ? connection : about(sessionId);
      http.exchange('POST', path, message, headers).catch(fail);
    },
    follow: (sessionId) => listen(about(sessionId)),
    // Its streams end with it.
    end: () => void http.exchange('DELETE', path, null, connection).catch(() => {}),
  };
};
