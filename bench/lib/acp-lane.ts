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

/** A client of the Agent Client Protocol that keeps one WebSocket, with a session for each conversation. */
export async function openAcpLane(http: HostClient): Promise<Lane> {
  const { port, key } = http.place;
  const headers = { host: http.host, authorization: `Bearer ${key}` };
  const socket = new WebSocket(`ws://127.0.0.1:${port}/acp`, { headers, perMessageDeflate: false });
  const waiting = new Map<number, PromiseWithResolvers<NonNullable<Incoming['result']>>>();
  let lastId = 0;
  let text = '';
  let sessionId = '';

  socket.on('message', (data: Buffer) => {
    const { id, result, error, params } = JSON.parse(data.toString('utf8')) as Incoming;
    const update = params?.update;
    if (update?.sessionUpdate === 'agent_message_chunk') text += update.content?.text ?? '';
    if (id === undefined) return;
    const asked = waiting.get(id);
    waiting.delete(id);
    if (error) asked?.reject(new Error(`ACP answered: ${error.message}`));
    else asked?.resolve(result ?? {});
  });
  socket.on('close', () => {
    for (const asked of waiting.values()) asked.reject(new Error('The WebSocket was closed.'));
  });
  await once(socket, 'open');

  const ask = (method: string, params: object) => {
    const asked = Promise.withResolvers<NonNullable<Incoming['result']>>();
    lastId += 1;
    waiting.set(lastId, asked);
    socket.send(JSON.stringify({ jsonrpc: '2.0', id: lastId, method, params }));
    return asked.promise;
  };
  const clientInfo = { name: 'bench', version: '1' };
  await ask('initialize', { protocolVersion: 1, clientCapabilities: {}, clientInfo });

  return {
    async say(content, isNew) {
      if (isNew) sessionId = (await ask('session/new', { cwd: '/', mcpServers: [] })).sessionId ?? '';
      text = '';
      await ask('session/prompt', { sessionId, prompt: [{ type: 'text', text: content }] });
      return text;
    },
    end: () => socket.terminate(),
  };
}
