import { REST_PATH } from '../a2a/paths.ts';

export const protocols = {
  'Agent card': 'https://a2a-protocol.org/latest/specification/',
  'A2A over JSON-RPC': 'https://a2a-protocol.org/latest/specification/',
  'A2A over HTTP': 'https://a2a-protocol.org/latest/specification/',
  'A2A 0.3 over HTTP': 'https://a2a-protocol.org/v0.3.0/specification/',
  'Agent Client Protocol': 'https://agentclientprotocol.com/',
  'Agent Communication Protocol': 'https://agentcommunicationprotocol.dev/',
  OpenAI: 'https://platform.openai.com/docs/api-reference',
  MCP: 'https://modelcontextprotocol.io/',
} as const;

export interface HostOperation {
  protocol: keyof typeof protocols;
  method: 'get' | 'post' | 'delete';
  path: string;
  summary: string;
  /** Without a key. */
  isPublic?: true;
  /** Answered by server-sent events, always or when the request says so. */
  streams?: 'always' | 'asked';
  /** Status of the answer; 200 when absent. */
  status?: number;
}

const a2aHttp = (base: string, protocol: 'A2A over HTTP' | 'A2A 0.3 over HTTP'): HostOperation[] => [
  { protocol, method: 'post', path: `${base}/message:send`, summary: 'Send a message' },
  {
    protocol,
    method: 'post',
    path: `${base}/message:stream`,
    summary: 'Send a message, streamed',
    streams: 'always',
  },
  { protocol, method: 'get', path: `${base}/tasks/{taskId}`, summary: 'Get a task' },
  { protocol, method: 'post', path: `${base}/tasks/{taskId}:cancel`, summary: 'Cancel a task' },
  {
    protocol,
    method: 'get',
    path: `${base}/tasks/{taskId}:subscribe`,
    summary: 'Follow a task',
    streams: 'always',
  },
  {
    protocol,
    method: 'post',
    path: `${base}/tasks/{taskId}:subscribe`,
    summary: 'Follow a task',
    streams: 'always',
  },
  {
    protocol,
    method: 'post',
    path: `${base}/tasks/{taskId}/pushNotificationConfigs`,
    summary: 'Have updates pushed',
    ...(protocol === 'A2A 0.3 over HTTP' && { status: 201 }),
  },
  {
    protocol,
    method: 'get',
    path: `${base}/tasks/{taskId}/pushNotificationConfigs`,
    summary: 'List push configurations',
  },
  {
    protocol,
    method: 'get',
    path: `${base}/tasks/{taskId}/pushNotificationConfigs/{configId}`,
    summary: 'Get a push configuration',
  },
  {
    protocol,
    method: 'delete',
    path: `${base}/tasks/{taskId}/pushNotificationConfigs/{configId}`,
    summary: 'Have no more updates pushed',
    ...(protocol === 'A2A 0.3 over HTTP' && { status: 204 }),
  },
];

/** Every call at an agent's host, as its protocol names it; a test compares with what the mounts answer. */
export const hostOperations: HostOperation[] = [
  {
    protocol: 'Agent card',
    method: 'get',
    path: '/.well-known/agent-card.json',
    summary: 'What the agent is and speaks',
    isPublic: true,
  },
  {
    protocol: 'A2A over JSON-RPC',
    method: 'post',
    path: '/a2a',
    summary: 'Call a method, of 1.0 or 0.3',
    streams: 'asked',
  },
  ...a2aHttp(REST_PATH, 'A2A over HTTP'),
  { protocol: 'A2A over HTTP', method: 'get', path: `${REST_PATH}/tasks`, summary: 'List tasks' },
  {
    protocol: 'A2A over HTTP',
    method: 'get',
    path: `${REST_PATH}/extendedAgentCard`,
    summary: 'The card for those with a key',
  },
  ...a2aHttp(`${REST_PATH}/v1`, 'A2A 0.3 over HTTP'),
  {
    protocol: 'A2A 0.3 over HTTP',
    method: 'get',
    path: `${REST_PATH}/v1/card`,
    summary: 'The card for those with a key',
  },
  {
    protocol: 'Agent Client Protocol',
    method: 'get',
    path: '/acp',
    summary: 'Open a WebSocket, or follow a connection',
    streams: 'always',
  },
  {
    protocol: 'Agent Client Protocol',
    method: 'post',
    path: '/acp',
    summary: 'Send a message of a connection',
  },
  {
    protocol: 'Agent Client Protocol',
    method: 'delete',
    path: '/acp',
    summary: 'End a connection',
    status: 202,
  },
  {
    protocol: 'Agent Communication Protocol',
    method: 'get',
    path: '/ping',
    summary: 'Whether the agent is reached',
    isPublic: true,
  },
  { protocol: 'Agent Communication Protocol', method: 'get', path: '/agents', summary: 'List the agent' },
  {
    protocol: 'Agent Communication Protocol',
    method: 'get',
    path: '/agents/{name}',
    summary: 'Get the manifest',
  },
  {
    protocol: 'Agent Communication Protocol',
    method: 'post',
    path: '/runs',
    summary: 'Begin a run',
    streams: 'asked',
  },
  { protocol: 'Agent Communication Protocol', method: 'get', path: '/runs/{runId}', summary: 'Get a run' },
  {
    protocol: 'Agent Communication Protocol',
    method: 'post',
    path: '/runs/{runId}',
    summary: 'Resume a run that waits',
    streams: 'asked',
  },
  {
    protocol: 'Agent Communication Protocol',
    method: 'post',
    path: '/runs/{runId}/cancel',
    summary: 'Cancel a run',
    status: 202,
  },
  {
    protocol: 'Agent Communication Protocol',
    method: 'get',
    path: '/runs/{runId}/events',
    summary: 'List the events of a run',
  },
  {
    protocol: 'Agent Communication Protocol',
    method: 'get',
    path: '/session/{sessionId}',
    summary: 'Get a session',
  },
  {
    protocol: 'Agent Communication Protocol',
    method: 'get',
    path: '/session/{sessionId}/messages/{messageId}',
    summary: 'Get a message of a session',
  },
  { protocol: 'OpenAI', method: 'get', path: '/v1/models', summary: 'List the agent as a model' },
  { protocol: 'OpenAI', method: 'get', path: '/v1/models/{model}', summary: 'Get the agent as a model' },
  { protocol: 'OpenAI', method: 'post', path: '/v1/chat/completions', summary: 'Chat', streams: 'asked' },
  {
    protocol: 'OpenAI',
    method: 'post',
    path: '/v1/responses',
    summary: 'Create a response',
    streams: 'asked',
  },
  {
    protocol: 'OpenAI',
    method: 'get',
    path: '/v1/responses/{responseId}',
    summary: 'Get a response',
    streams: 'asked',
  },
  {
    protocol: 'OpenAI',
    method: 'post',
    path: '/v1/responses/{responseId}/cancel',
    summary: 'Cancel a response',
  },
  { protocol: 'MCP', method: 'post', path: '/mcp', summary: 'Call a method', streams: 'asked' },
];
