import { randomUUID } from 'node:crypto';
import { openAcpLane } from './acp-lane.ts';
import { HostClient } from './host-client.ts';
import type { World } from './world.ts';

/** One client that speaks to the agent, one message after another. */
export interface Lane {
  /** Resolves with the answer's text. `isNew`: it begins a conversation, else it goes on in the last one. */
  say(content: string, isNew: boolean): Promise<string>;
  end(): void;
}

export interface Surface {
  name: string;
  open(): Promise<Lane>;
}

interface Told {
  conversationId: string;
  text: string;
}

type Exchange = (content: string, conversationId: string | null) => Promise<Told>;

/** A surface of single requests: `exchange` sends a message to a conversation, null = a new one. */
function byRequests(name: string, exchange: Exchange): Surface {
  return {
    name,
    async open() {
      let conversationId: string | null = null;
      return {
        async say(content, isNew) {
          const told: Told = await exchange(content, isNew ? null : conversationId);
          conversationId = told.conversationId;
          return told.text;
        },
        end() {},
      };
    },
  };
}

export const REST_JSON = 'REST, JSON';

/** The same agent by each surface that it has; REST's JSON is the first. `close` ends the connections of all. */
export function surfacesOf(world: World): { surfaces: Surface[]; close(): void } {
  const { client, agentId, service } = world;
  const http = new HostClient({ agentId, port: service.port, key: service.key });
  const surfaces = [
    byRequests(REST_JSON, async (content, conversationId) => {
      const answer = await client.send(agentId, conversationId, content);
      return { conversationId: answer.conversationId, text: answer.content };
    }),
    byRequests('REST, stream', (content, conversationId) => client.stream(agentId, conversationId, content)),
    byRequests('A2A, JSON-RPC', (content, contextId) => a2aRpc(http, content, contextId)),
    byRequests('A2A, HTTP', (content, contextId) => a2aHttp(http, content, contextId)),
    byRequests('A2A, stream', (content, contextId) => a2aStream(http, content, contextId)),
    { name: 'ACP, WebSocket', open: () => openAcpLane(http) },
    byRequests('OpenAI, chat', (content, conversationId) => openaiChat(http, content, conversationId)),
    byRequests('OpenAI, responses', (content, conversation) => openaiResponse(http, content, conversation)),
    byRequests('MCP, send_message', (content, conversationId) => mcp(http, content, conversationId)),
    byRequests('Agent Communication Protocol', (content, session) =>
      agentCommunication(http, content, session),
    ),
  ];
  return { surfaces, close: () => http.close() };
}

const A2A = { 'a2a-version': '1.0' };

interface Part {
  text?: string;
}
interface Task {
  contextId: string;
  artifacts?: { parts: Part[] }[];
}

const textOf = (parts: readonly Part[]): string => parts.map(({ text }) => text ?? '').join('');

const a2aMessage = (content: string, contextId: string | null) => ({
  message: {
    messageId: randomUUID(),
    role: 'ROLE_USER',
    parts: [{ text: content }],
    ...(contextId !== null && { contextId }),
  },
});

function toldOf({ contextId, artifacts = [] }: Task): Told {
  return { conversationId: contextId, text: textOf(artifacts.flatMap(({ parts }) => parts)) };
}

const rpc = (method: string, params: object) => ({ jsonrpc: '2.0', id: 1, method, params });

async function a2aRpc(http: HostClient, content: string, contextId: string | null): Promise<Told> {
  const request = rpc('SendMessage', a2aMessage(content, contextId));
  const { result } = await http.json<{ result: { task: Task } }>('POST', '/a2a', request, A2A);
  return toldOf(result.task);
}

async function a2aHttp(http: HostClient, content: string, contextId: string | null): Promise<Told> {
  const path = '/a2a/http/message:send';
  const { task } = await http.json<{ task: Task }>('POST', path, a2aMessage(content, contextId), A2A);
  return toldOf(task);
}

interface StreamResponse {
  task?: Task;
  artifactUpdate?: { append?: boolean; artifact: { parts: Part[] } };
}

async function a2aStream(http: HostClient, content: string, contextId: string | null): Promise<Told> {
  const told: Told = { conversationId: contextId ?? '', text: '' };
  const request = rpc('SendStreamingMessage', a2aMessage(content, contextId));
  await http.events('/a2a', request, A2A, (data) => {
    const { task, artifactUpdate } = (JSON.parse(data) as { result: StreamResponse }).result;
    if (task) Object.assign(told, toldOf(task));
    if (!artifactUpdate) return;
    const text = textOf(artifactUpdate.artifact.parts);
    told.text = artifactUpdate.append ? told.text + text : text;
  });
  return told;
}

interface Kept {
  metadata: { conversation_id: string };
}

async function openaiChat(http: HostClient, content: string, conversationId: string | null): Promise<Told> {
  const { choices, metadata } = await http.json<Kept & { choices: { message: { content: string } }[] }>(
    'POST',
    '/v1/chat/completions',
    { model: 'agent', messages: [{ role: 'user', content }] },
    conversationId === null ? {} : { 'x-conversation-id': conversationId },
  );
  return { conversationId: metadata.conversation_id, text: choices[0]!.message.content };
}

interface OpenaiResponse {
  conversation: { id: string };
  output: { content?: Part[] }[];
}

async function openaiResponse(http: HostClient, input: string, conversation: string | null): Promise<Told> {
  const body = { model: 'agent', input, ...(conversation !== null && { conversation }) };
  const response = await http.json<OpenaiResponse>('POST', '/v1/responses', body);
  const text = textOf(response.output.flatMap(({ content = [] }) => content));
  return { conversationId: response.conversation.id, text };
}

interface ToolResult {
  structuredContent: { conversationId: string; message: string };
}

async function mcp(http: HostClient, content: string, conversationId: string | null): Promise<Told> {
  const args = { content, ...(conversationId !== null && { conversationId }) };
  let result: ToolResult | undefined;
  await http.events(
    '/mcp',
    rpc('tools/call', { name: 'send_message', arguments: args }),
    { accept: 'application/json, text/event-stream', 'mcp-protocol-version': '2025-11-25' },
    (data) => ({ result } = JSON.parse(data) as { result: ToolResult }),
  );
  const { structuredContent } = result!;
  return { conversationId: structuredContent.conversationId, text: structuredContent.message };
}

interface AcpRun {
  session_id: string;
  output: { parts: { content: string }[] }[];
}

async function agentCommunication(
  http: HostClient,
  content: string,
  sessionId: string | null,
): Promise<Told> {
  const run = await http.json<AcpRun>('POST', '/runs', {
    // An agent goes by its id there.
    agent_name: http.place.agentId,
    input: [{ role: 'user', parts: [{ content_type: 'text/plain', content }] }],
    mode: 'sync',
    ...(sessionId !== null && { session_id: sessionId }),
  });
  const parts = run.output.flatMap((message) => message.parts);
  return { conversationId: run.session_id, text: parts.map((part) => part.content).join('') };
}
