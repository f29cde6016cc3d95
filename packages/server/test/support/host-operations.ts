import { newId } from '../../src/domain/ids.ts';

/** What a run of an agent is called on every surface. */
export interface Ids {
  agentId: string;
  runId: string;
  conversationId: string;
  /** Of the user's message. */
  messageId: string;
}

export interface Asked {
  method: string;
  path: string;
  body?: unknown;
  headers?: Record<string, string>;
}

export interface Operation {
  /** The surface and what is done. */
  name: string;
  ask(ids: Ids): Asked;
  /** With an id of the caller's own, another call makes another thing of it: it is asked of others only. */
  isOnce?: boolean;
}

export const v1 = { 'a2a-version': '1.0' };
export const v03 = { 'a2a-version': '0.3' };
export const rpc = (method: string, params: unknown, headers: Record<string, string> = v1): Asked => ({
  method: 'POST',
  path: '/a2a',
  body: { jsonrpc: '2.0', id: 1, method, params },
  headers,
});
export const message = (more: object) => ({
  messageId: 'm-1',
  role: 'ROLE_USER',
  parts: [{ text: 'x' }],
  ...more,
});
export const message03 = (more: object) => ({
  kind: 'message',
  messageId: 'm-1',
  role: 'user',
  parts: [{ kind: 'text', text: 'x' }],
  ...more,
});
export const proto03 = (more: object) => ({
  message: { messageId: 'm-1', role: 'ROLE_USER', content: [{ text: 'x' }], ...more },
});
const push = { url: 'https://example.com/x' };
const response = (runId: string) => `resp_${runId.replaceAll('-', '')}`;
export const tool = (name: string, args: object): Asked => ({
  method: 'POST',
  path: '/mcp',
  headers: { accept: 'application/json, text/event-stream', 'mcp-protocol-version': '2025-11-25' },
  body: { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: args } },
});
/** The same call by revision 2026-07-28, which says in each request who asks. */
export const toolNow = (name: string, args: object): Asked => ({
  method: 'POST',
  path: '/mcp',
  headers: {
    accept: 'application/json, text/event-stream',
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': 'tools/call',
    'mcp-name': name,
  },
  body: {
    jsonrpc: '2.0',
    id: 1,
    method: 'tools/call',
    params: {
      name,
      arguments: args,
      _meta: {
        'io.modelcontextprotocol/protocolVersion': '2026-07-28',
        'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1' },
        'io.modelcontextprotocol/clientCapabilities': {},
      },
    },
  },
});
export const get = (path: string, headers = {}): Asked => ({ method: 'GET', path, headers });
export const post = (path: string, body: unknown, headers = {}): Asked => ({
  method: 'POST',
  path,
  body,
  headers,
});
const input = [{ role: 'user', parts: [{ content_type: 'text/plain', content: 'x' }] }];

export const a2a = '/a2a/http';
/** Every operation at an agent's host that names a run, a conversation or something of them. */
export const operations: Operation[] = [
  ...(
    [
      ['GetTask', ({ runId }) => ({ id: runId })],
      ['CancelTask', ({ runId }) => ({ id: runId })],
      ['SubscribeToTask', ({ runId }) => ({ id: runId })],
      ['SendMessage', ({ runId }) => ({ message: message({ taskId: runId }) })],
      ['SendStreamingMessage', ({ runId }) => ({ message: message({ taskId: runId }) })],
      ['CreateTaskPushNotificationConfig', ({ runId }) => ({ taskId: runId, ...push })],
      ['GetTaskPushNotificationConfig', ({ runId }) => ({ taskId: runId, id: 'a' })],
      ['ListTaskPushNotificationConfigs', ({ runId }) => ({ taskId: runId })],
      ['DeleteTaskPushNotificationConfig', ({ runId }) => ({ taskId: runId, id: 'a' })],
      ['ListTasks', ({ conversationId }) => ({ contextId: conversationId })],
    ] as [string, (ids: Ids) => unknown][]
  ).map(([method, params]) => ({
    name: `A2A 1.0 JSON-RPC ${method}`,
    ask: (ids: Ids) => rpc(method, params(ids)),
  })),
  ...(
    [
      ['tasks/get', ({ runId }) => ({ id: runId })],
      ['tasks/cancel', ({ runId }) => ({ id: runId })],
      ['tasks/resubscribe', ({ runId }) => ({ id: runId })],
      ['message/send', ({ runId }) => ({ message: message03({ taskId: runId }) })],
      ['message/stream', ({ runId }) => ({ message: message03({ taskId: runId }) })],
      ['tasks/pushNotificationConfig/set', ({ runId }) => ({ taskId: runId, pushNotificationConfig: push })],
      ['tasks/pushNotificationConfig/get', ({ runId }) => ({ id: runId })],
      ['tasks/pushNotificationConfig/list', ({ runId }) => ({ id: runId })],
      ['tasks/pushNotificationConfig/delete', ({ runId }) => ({ id: runId, pushNotificationConfigId: 'a' })],
    ] as [string, (ids: Ids) => unknown][]
  ).map(([method, params]) => ({
    name: `A2A 0.3 JSON-RPC ${method}`,
    ask: (ids: Ids) => rpc(method, params(ids), v03),
  })),
  { name: 'A2A 1.0 HTTP get', ask: ({ runId }) => get(`${a2a}/tasks/${runId}`, v1) },
  { name: 'A2A 1.0 HTTP cancel', ask: ({ runId }) => post(`${a2a}/tasks/${runId}:cancel`, {}, v1) },
  { name: 'A2A 1.0 HTTP subscribe', ask: ({ runId }) => get(`${a2a}/tasks/${runId}:subscribe`, v1) },
  {
    name: 'A2A 1.0 HTTP subscribe by POST',
    ask: ({ runId }) => post(`${a2a}/tasks/${runId}:subscribe`, {}, v1),
  },
  {
    name: 'A2A 1.0 HTTP send',
    ask: ({ runId }) => post(`${a2a}/message:send`, { message: message({ taskId: runId }) }, v1),
  },
  {
    name: 'A2A 1.0 HTTP stream',
    ask: ({ runId }) => post(`${a2a}/message:stream`, { message: message({ taskId: runId }) }, v1),
  },
  {
    name: 'A2A 1.0 HTTP list',
    ask: ({ conversationId }) => get(`${a2a}/tasks?contextId=${conversationId}`, v1),
  },
  {
    name: 'A2A 1.0 HTTP push create',
    ask: ({ runId }) => post(`${a2a}/tasks/${runId}/pushNotificationConfigs`, push, v1),
  },
  {
    name: 'A2A 1.0 HTTP push get',
    ask: ({ runId }) => get(`${a2a}/tasks/${runId}/pushNotificationConfigs/a`, v1),
  },
  {
    name: 'A2A 1.0 HTTP push list',
    ask: ({ runId }) => get(`${a2a}/tasks/${runId}/pushNotificationConfigs`, v1),
  },
  {
    name: 'A2A 1.0 HTTP push delete',
    ask: ({ runId }) => ({
      method: 'DELETE',
      path: `${a2a}/tasks/${runId}/pushNotificationConfigs/a`,
      headers: v1,
    }),
  },
  { name: 'A2A 0.3 HTTP get', ask: ({ runId }) => get(`${a2a}/v1/tasks/${runId}`, v03) },
  { name: 'A2A 0.3 HTTP cancel', ask: ({ runId }) => post(`${a2a}/v1/tasks/${runId}:cancel`, {}, v03) },
  { name: 'A2A 0.3 HTTP subscribe', ask: ({ runId }) => get(`${a2a}/v1/tasks/${runId}:subscribe`, v03) },
  {
    name: 'A2A 0.3 HTTP send',
    ask: ({ runId }) => post(`${a2a}/v1/message:send`, proto03({ taskId: runId }), v03),
  },
  {
    name: 'A2A 0.3 HTTP stream',
    ask: ({ runId }) => post(`${a2a}/v1/message:stream`, proto03({ taskId: runId }), v03),
  },
  {
    name: 'A2A 0.3 HTTP subscribe by POST',
    ask: ({ runId }) => post(`${a2a}/v1/tasks/${runId}:subscribe`, {}, v03),
  },
  {
    name: 'A2A 0.3 HTTP push set',
    ask: ({ runId }) =>
      post(
        `${a2a}/v1/tasks/${runId}/pushNotificationConfigs`,
        { config: { name: `tasks/${runId}/pushNotificationConfigs/a`, pushNotificationConfig: push } },
        v03,
      ),
  },
  {
    name: 'A2A 0.3 HTTP push get',
    ask: ({ runId }) => get(`${a2a}/v1/tasks/${runId}/pushNotificationConfigs/a`, v03),
  },
  {
    name: 'A2A 0.3 HTTP push list',
    ask: ({ runId }) => get(`${a2a}/v1/tasks/${runId}/pushNotificationConfigs`, v03),
  },
  {
    name: 'A2A 0.3 HTTP push delete',
    ask: ({ runId }) => ({
      method: 'DELETE',
      path: `${a2a}/v1/tasks/${runId}/pushNotificationConfigs/a`,
      headers: v03,
    }),
  },
  { name: 'Agent Communication run', ask: ({ runId }) => get(`/runs/${runId}`) },
  { name: 'Agent Communication events', ask: ({ runId }) => get(`/runs/${runId}/events`) },
  { name: 'Agent Communication cancel', ask: ({ runId }) => post(`/runs/${runId}/cancel`, {}) },
  {
    name: 'Agent Communication resume',
    ask: ({ runId }) =>
      post(`/runs/${runId}`, { run_id: runId, await_resume: { content: 'x' }, mode: 'sync' }),
  },
  { name: 'Agent Communication session', ask: ({ conversationId }) => get(`/session/${conversationId}`) },
  {
    name: 'Agent Communication message',
    ask: ({ conversationId, messageId }) => get(`/session/${conversationId}/messages/${messageId}`),
  },
  {
    name: 'Agent Communication session with a history',
    ask: ({ agentId, conversationId }) =>
      post('/runs', {
        agent_name: agentId,
        input,
        session: { id: conversationId, history: ['https://example.com/1'] },
        mode: 'async',
      }),
    isOnce: true,
  },
  { name: 'MCP get_run', ask: ({ runId }) => tool('get_run', { runId, waitSeconds: 0 }) },
  {
    name: 'MCP send_message',
    ask: ({ conversationId }) => tool('send_message', { content: 'x', conversationId, waitSeconds: 0 }),
    isOnce: true,
  },
  { name: 'MCP 2026-07-28 get_run', ask: ({ runId }) => toolNow('get_run', { runId, waitSeconds: 0 }) },
  {
    name: 'MCP 2026-07-28 send_message',
    ask: ({ conversationId }) => toolNow('send_message', { content: 'x', conversationId, waitSeconds: 0 }),
    isOnce: true,
  },
  { name: 'OpenAI response', ask: ({ runId }) => get(`/v1/responses/${response(runId)}`) },
  {
    name: 'OpenAI response streamed',
    ask: ({ runId }) => get(`/v1/responses/${response(runId)}?stream=true`),
  },
  { name: 'OpenAI cancel', ask: ({ runId }) => post(`/v1/responses/${response(runId)}/cancel`, {}) },
  {
    name: 'OpenAI previous_response_id',
    ask: ({ runId, agentId }) =>
      post('/v1/responses', { model: agentId, input: 'x', previous_response_id: response(runId) }),
    isOnce: true,
  },
  {
    name: 'OpenAI item_reference',
    ask: ({ runId, agentId }) =>
      post('/v1/responses', {
        model: agentId,
        input: [
          { type: 'item_reference', id: `msg_${runId.replaceAll('-', '')}` },
          { role: 'user', content: 'x' },
        ],
      }),
    isOnce: true,
  },
  {
    name: 'OpenAI conversation',
    ask: ({ conversationId, agentId }) =>
      post('/v1/responses', {
        model: agentId,
        input: 'x',
        conversation: `conv_${conversationId.replaceAll('-', '')}`,
      }),
    isOnce: true,
  },
  {
    name: 'OpenAI chat in a conversation',
    ask: ({ conversationId, agentId }) =>
      post(
        '/v1/chat/completions',
        { model: agentId, messages: [{ role: 'user', content: 'x' }] },
        { 'x-conversation-id': conversationId },
      ),
    isOnce: true,
  },
];

/** The same of the service's own API, where the agent is in the path or nowhere. */
export const ownOperations: Operation[] = [
  { name: 'run', ask: ({ runId }) => get(`/v1/runs/${runId}`) },
  { name: 'cancel', ask: ({ runId }) => post(`/v1/runs/${runId}/cancel`, {}) },
  {
    name: 'respond',
    ask: ({ runId }) => post(`/v1/runs/${runId}/respond`, { requestId: newId(), optionId: 'a' }),
  },
  { name: 'events of a run', ask: ({ runId }) => get(`/v1/runs/${runId}/events`) },
  {
    name: 'stream of a run',
    ask: ({ runId }) => get(`/v1/runs/${runId}/events`, { accept: 'text/event-stream' }),
  },
  { name: 'conversation', ask: ({ conversationId }) => get(`/v1/conversations/${conversationId}`) },
  { name: 'messages', ask: ({ conversationId }) => get(`/v1/conversations/${conversationId}/messages`) },
  {
    name: 'events of a conversation',
    ask: ({ conversationId }) => get(`/v1/conversations/${conversationId}/events`),
  },
  { name: 'runs of an agent', ask: ({ agentId }) => get(`/v1/agents/${agentId}/runs`) },
  { name: 'conversations of an agent', ask: ({ agentId }) => get(`/v1/agents/${agentId}/conversations`) },
  { name: 'send', ask: ({ agentId }) => post('/api/v1/chat/send', { agentId, content: 'x' }), isOnce: true },
];
