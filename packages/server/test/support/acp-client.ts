import { client, methods } from '@agentclientprotocol/sdk';
import type {
  ClientConnection,
  ClientContext,
  CreateElicitationRequest,
  CreateElicitationResponse,
  NewSessionResponse,
  PromptResponse,
  RequestPermissionRequest,
  RequestPermissionResponse,
  SessionNotification,
  Stream,
} from '@agentclientprotocol/sdk';
import { createHttpStream } from '@agentclientprotocol/sdk/experimental/http-client';
import { createWebSocketStream } from '@agentclientprotocol/sdk/experimental/ws-client';
import type { LookupFunction } from 'node:net';
import { WebSocket } from 'ws';
import { hostFetch } from './host-fetch.ts';

/** Every host is at loopback, as with a wildcard record: the resolver of a machine need not know names below `localhost`. */
const loopback: LookupFunction = (_host, options, callback) => {
  if (options.all) callback(null, [{ address: '127.0.0.1', family: 4 }]);
  else callback(null, '127.0.0.1', 4);
};

export class HostSocket extends WebSocket {
  constructor(
    url: string,
    protocols?: string | string[],
    options: { headers?: Record<string, string> } = {},
  ) {
    super(url, protocols ?? [], { ...options, lookup: loopback });
  }
}

export type Transport = 'websocket' | 'http';

/** The stream of the SDK's own client to an agent's host. */
export function acpStream(transport: Transport, port: number, agentId: string, key: string): Stream {
  const headers = { authorization: `Bearer ${key}` };
  const host = `${agentId}.localhost:${port}`;
  if (transport === 'http')
    return createHttpStream(`http://${host}/acp`, { headers, fetch: hostFetch(port), cookies: 'omit' });
  return createWebSocketStream(`ws://${host}/acp`, {
    headers,
    WebSocket: HostSocket as never,
    cookies: 'omit',
  });
}

export interface AcpClient {
  agent: ClientContext;
  connection: ClientConnection;
  /** Every `session/update`, in order. */
  updates: SessionNotification[];
  permissions: RequestPermissionRequest[];
  /** The agent's text so far; of one session when it is named. */
  text(sessionId?: string): string;
  /** A new session; its id. */
  open(): Promise<string>;
  prompt(sessionId: string, words: string): Promise<PromptResponse>;
  close(): void;
}

/** Where the tests' clients work. */
export const place = { cwd: '/home/me/project', mcpServers: [] };

export interface AcpClientOptions {
  onPermission?: (asked: RequestPermissionRequest) => Promise<RequestPermissionResponse>;
  onElicitation?: (asked: CreateElicitationRequest) => Promise<CreateElicitationResponse>;
}

const firstOption = async (asked: RequestPermissionRequest): Promise<RequestPermissionResponse> => ({
  outcome: { outcome: 'selected', optionId: asked.options[0]!.optionId },
});

/** The SDK's client, initialized. */
export async function acpClient(stream: Stream, options: AcpClientOptions = {}): Promise<AcpClient> {
  const updates: SessionNotification[] = [];
  const permissions: RequestPermissionRequest[] = [];
  const app = client({ name: 'test' })
    .onNotification(methods.client.session.update, ({ params }) => void updates.push(params))
    .onRequest(methods.client.session.requestPermission, ({ params }) => {
      permissions.push(params);
      return (options.onPermission ?? firstOption)(params);
    });
  if (options.onElicitation) {
    const { onElicitation } = options;
    app.onRequest(methods.client.elicitation.create, ({ params }) => onElicitation(params));
  }
  const connection = app.connect(stream);
  await connection.agent.request(methods.agent.initialize, {
    protocolVersion: 1,
    clientCapabilities: options.onElicitation ? { elicitation: { form: {} } } : {},
    clientInfo: { name: 'test', version: '1' },
  });
  return {
    agent: connection.agent,
    connection,
    updates,
    permissions,
    text: (sessionId) =>
      updates
        .flatMap(({ sessionId: id, update }) =>
          update.sessionUpdate === 'agent_message_chunk' &&
          update.content.type === 'text' &&
          (sessionId === undefined || id === sessionId)
            ? [update.content.text]
            : [],
        )
        .join(''),
    async open() {
      const made = await connection.agent.request<NewSessionResponse>(methods.agent.session.new, place);
      return made.sessionId;
    },
    prompt: (sessionId, words) =>
      connection.agent.request<PromptResponse>(methods.agent.session.prompt, {
        sessionId,
        prompt: [{ type: 'text', text: words }],
      }),
    close: () => connection.close(),
  };
}
