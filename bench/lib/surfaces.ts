import { a2aExchanges, textOf, type Part } from './a2a-exchanges.ts';
import { openHttpLane, openSocketLane } from './acp-lane.ts';
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

/** What came of a message. */
export interface Told {
  conversationId: string;
  text: string;
}

export type Exchange = (content: string, conversationId: string | null) => Promise<Told>;

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

/**
 * The same agent by each surface that it has; REST's JSON is the first. The world serves gRPC too. `close` ends the
 * connections of all.
 */
export async function surfacesOf(world: World): Promise<{ surfaces: Surface[]; close(): void }> {
  const { client, agentId, service } = world;
  const http = new HostClient({ agentId, port: service.port, key: service.key });
  const a2a = await a2aExchanges(http);
  const surfaces = [
    byRequests(REST_JSON, async (content, conversationId) => {
      const answer = await client.send(agentId, conversationId, content);
      return { conversationId: answer.conversationId, text: answer.content };
    }),
    byRequests('REST, stream', (content, conversationId) => client.stream(agentId, conversationId, content)),
    byRequests('A2A, JSON-RPC', a2a.rpc),
    byRequests('A2A, HTTP', a2a.http),
    byRequests('A2A, stream', a2a.stream),
    byRequests('A2A, gRPC', a2a.grpc),
    byRequests('A2A 0.3, JSON-RPC', a2a.rpc03),
    { name: 'ACP, WebSocket', open: () => openSocketLane(http) },
    { name: 'ACP, HTTP', open: () => openHttpLane(http) },
    byRequests('OpenAI, chat', (content, conversationId) => openaiChat(http, content, conversationId)),
    byRequests('OpenAI, responses', (content, conversation) => openaiResponse(http, content, conversation)),
    byRequests('MCP, send_message', (content, conversationId) => mcp(http, content, conversationId)),
    byRequests('Agent Communication Protocol', (content, session) =>
      agentCommunication(http, content, session),
    ),
  ];
  const close = () => {
    a2a.close();
    http.close();
  };
  return { surfaces, close };
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
    'POST',
    '/mcp',
    { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'send_message', arguments: args } },
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
