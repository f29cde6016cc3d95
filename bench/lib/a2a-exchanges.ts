import { randomUUID } from 'node:crypto';
import { SendMessageRequest, Task as TaskOfSchema } from '@a2a-js/sdk';
import { grpcPort, grpcWire } from '../../packages/server/test/support/a2a-grpc.ts';
import type { HostClient } from './host-client.ts';
import type { Exchange, Told } from './surfaces.ts';

const V1 = { 'a2a-version': '1.0' };
const V03 = { 'a2a-version': '0.3' };

export interface Part {
  text?: string;
}
/** Of both versions. */
interface Task {
  contextId: string;
  artifacts?: { parts: Part[] }[];
}

export const textOf = (parts: readonly Part[]): string => parts.map(({ text }) => text ?? '').join('');

function toldOf({ contextId, artifacts = [] }: Task): Told {
  return { conversationId: contextId, text: textOf(artifacts.flatMap(({ parts }) => parts)) };
}

const inContext = (contextId: string | null) => (contextId === null ? {} : { contextId });

const message = (content: string, contextId: string | null) => ({
  message: {
    messageId: randomUUID(),
    role: 'ROLE_USER',
    parts: [{ text: content }],
    ...inContext(contextId),
  },
});

const message03 = (content: string, contextId: string | null) => ({
  message: {
    kind: 'message',
    messageId: randomUUID(),
    role: 'user',
    parts: [{ kind: 'text', text: content }],
    ...inContext(contextId),
  },
});

const call = (method: string, params: object) => ({ jsonrpc: '2.0', id: 1, method, params });

interface StreamResponse {
  task?: Task;
  artifactUpdate?: { append?: boolean; artifact: { parts: Part[] } };
}

/** A message to the agent by each binding of A2A. `close` ends the connection of gRPC. */
export async function a2aExchanges(http: HostClient) {
  const { agentId, key } = http.place;
  const wire = grpcWire(grpcPort(await http.json('GET', '/.well-known/agent-card.json', null, V1)));

  const rpc: Exchange = async (content, contextId) => {
    const request = call('SendMessage', message(content, contextId));
    const { result } = await http.json<{ result: { task: Task } }>('POST', '/a2a', request, V1);
    return toldOf(result.task);
  };

  const rpc03: Exchange = async (content, contextId) => {
    const request = call('message/send', message03(content, contextId));
    const { result } = await http.json<{ result: Task }>('POST', '/a2a', request, V03);
    return toldOf(result);
  };

  const byHttp: Exchange = async (content, contextId) => {
    const path = '/a2a/http/message:send';
    const { task } = await http.json<{ task: Task }>('POST', path, message(content, contextId), V1);
    return toldOf(task);
  };

  const stream: Exchange = async (content, contextId) => {
    const told: Told = { conversationId: contextId ?? '', text: '' };
    const request = call('SendStreamingMessage', message(content, contextId));
    await http.events('POST', '/a2a', request, V1, (data) => {
      const { task, artifactUpdate } = (JSON.parse(data) as { result: StreamResponse }).result;
      if (task) Object.assign(told, toldOf(task));
      if (!artifactUpdate) return;
      const text = textOf(artifactUpdate.artifact.parts);
      told.text = artifactUpdate.append ? told.text + text : text;
    });
    return told;
  };

  const grpc: Exchange = async (content, contextId) => {
    const request = SendMessageRequest.fromJSON(message(content, contextId));
    const { code, details, messages } = await wire.call({ method: 'SendMessage', request, agentId, key });
    if (code !== 0) throw new Error(`SendMessage by gRPC gave ${code}: ${details}`);
    return toldOf(TaskOfSchema.toJSON(messages[0].payload.value) as Task);
  };

  return { rpc, rpc03, http: byHttp, stream, grpc, close: () => wire.close() };
}
