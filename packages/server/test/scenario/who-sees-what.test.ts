import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { hostFetch } from '../support/host-fetch.ts';
import { acpClient, acpStream, place } from '../support/acp-client.ts';
import type { World } from '../support/scenario-world.ts';
import { startWorld } from '../support/scenario-world.ts';

/** What a run of an agent is called on every surface. */
interface Ids {
  agentId: string;
  runId: string;
  conversationId: string;
  /** Of the user's message. */
  messageId: string;
}

interface Asked {
  method: string;
  path: string;
  body?: unknown;
  headers?: Record<string, string>;
}

interface Operation {
  /** The surface and what is done. */
  name: string;
  ask(ids: Ids): Asked;
  /** With an id of the caller's own, another call makes another thing of it: it is asked of others only. */
  isOnce?: boolean;
}

let world: World;
let at: typeof fetch;
let ours: Ids;
let theirs: Ids;

const v1 = { 'a2a-version': '1.0' };
const v03 = { 'a2a-version': '0.3' };
const rpc = (method: string, params: unknown, headers: Record<string, string> = v1): Asked => ({
  method: 'POST',
  path: '/a2a',
  body: { jsonrpc: '2.0', id: 1, method, params },
  headers,
});
const message = (more: object) => ({ messageId: 'm-1', role: 'ROLE_USER', parts: [{ text: 'x' }], ...more });
const message03 = (more: object) => ({
  kind: 'message',
  messageId: 'm-1',
  role: 'user',
  parts: [{ kind: 'text', text: 'x' }],
  ...more,
});
const proto03 = (more: object) => ({
  message: { messageId: 'm-1', role: 'ROLE_USER', content: [{ text: 'x' }], ...more },
});
const push = { url: 'https://example.com/x' };
const response = (runId: string) => `resp_${runId.replaceAll('-', '')}`;
const tool = (name: string, args: object): Asked => ({
  method: 'POST',
  path: '/mcp',
  headers: { accept: 'application/json, text/event-stream', 'mcp-protocol-version': '2025-11-25' },
  body: { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: args } },
});
const get = (path: string, headers = {}): Asked => ({ method: 'GET', path, headers });
const post = (path: string, body: unknown, headers = {}): Asked => ({ method: 'POST', path, body, headers });
const input = [{ role: 'user', parts: [{ content_type: 'text/plain', content: 'x' }] }];

const a2a = '/a2a/http';
/** Every operation at an agent's host that names a run, a conversation or something of them. */
const operations: Operation[] = [
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
    name: 'A2A 0.3 HTTP push list',
    ask: ({ runId }) => get(`${a2a}/v1/tasks/${runId}/pushNotificationConfigs`, v03),
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
const ownOperations: Operation[] = [
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

async function makeRun(agentId: string, key: string): Promise<Ids> {
  const sent = await world.as(key)('POST', '/api/v1/chat/send', { agentId, content: 'secret words' });
  assert.equal(sent.status, 200, sent.text);
  const { runId, conversationId } = sent.body;
  const { body } = await world.as(key)('GET', `/v1/conversations/${conversationId}/messages`);
  return { agentId, runId, conversationId, messageId: body.messages.at(-1).id };
}

before(async () => {
  world = await startWorld();
  at = hostFetch(world.service.port);
  ours = await makeRun(world.agentId, world.keys.owner);
  theirs = await makeRun(world.otherAgentId, world.keys.owner);
});
after(() => world?.end());

const strange = (agentId: string): Ids => ({
  agentId,
  runId: newId(),
  conversationId: newId(),
  messageId: newId(),
});

/** Of an answer, everything that may not differ, with the ids that were asked for left out. */
async function answerOf(operation: Operation, base: string, key: string, ids: Ids): Promise<string> {
  const { method, path, body, headers = {} } = operation.ask(ids);
  const init: RequestInit = { method, headers: { authorization: `Bearer ${key}`, ...headers } };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    (init.headers as Record<string, string>)['content-type'] ??= 'application/json';
  }
  const reply = await at(`${base}${path}`, init);
  const head = [...reply.headers].filter(
    ([name]) => !/^(x-request-id|date|ratelimit|content-length)$/.test(name),
  );
  let text = JSON.stringify([reply.status, head, await reply.text()]);
  for (const id of Object.values(ids)) {
    text = text.replaceAll(id as string, '<id>').replaceAll((id as string).replaceAll('-', ''), '<id>');
  }
  // A request names itself in what goes wrong.
  return text.replaceAll(/"requestId\\?":\\?"[^"\\]*/g, '');
}

const hostOf = (agentId: string) => `http://${agentId}.localhost:${world.service.port}`;

test('every operation of every surface answers for what is another agent’s as for what there is not, also to a key that sees both', async () => {
  for (const operation of operations) {
    const missing = await answerOf(operation, hostOf(ours.agentId), world.keys.owner, strange(ours.agentId));
    const foreign = await answerOf(operation, hostOf(ours.agentId), world.keys.owner, {
      ...theirs,
      agentId: ours.agentId,
    });
    assert.equal(foreign, missing, operation.name);
    assert.ok(!foreign.includes('secret') && !foreign.includes('SECRET'), operation.name);
    if (operation.isOnce) continue;
    // Each can tell: asked for the agent's own, it says something else.
    const own = await answerOf(operation, hostOf(ours.agentId), world.keys.agentUse, ours);
    assert.notEqual(own, missing, `${operation.name} says nothing of what there is: ${own}`);
  }
});

test('a key of another agent or organisation gets at an agent’s host what it gets where there is no agent, in every operation', async () => {
  const { otherAgent, foreign } = world.keys;
  for (const operation of operations) {
    for (const key of [otherAgent, foreign]) {
      const nowhere = randomUUID();
      const missing = await answerOf(operation, hostOf(nowhere), key, ours);
      assert.match(missing, /^\[404,/, operation.name);
      assert.equal(await answerOf(operation, hostOf(ours.agentId), key, ours), missing, operation.name);
    }
  }
});

test('the API has nothing of another agent or organisation for any key, byte for byte as if there were nothing', async () => {
  const { otherAgent, foreign } = world.keys;
  for (const operation of ownOperations) {
    for (const key of [otherAgent, foreign]) {
      const missing = await answerOf(operation, world.service.url, key, strange(newId()));
      assert.match(missing, /^\[404,/, operation.name);
      assert.equal(await answerOf(operation, world.service.url, key, ours), missing, operation.name);
    }
  }
});

test('who may see the agent sees its runs on every surface, whoever began them', async () => {
  const host = hostOf(ours.agentId);
  const seen = async (name: string, key: string) => {
    const operation = operations.find((one) => one.name === name)!;
    const { method, path, body, headers } = operation.ask(ours);
    const init: RequestInit = {
      method,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers },
    };
    if (body !== undefined) init.body = JSON.stringify(body);
    return (await at(`${host}${path}`, init)).text();
  };
  for (const key of [world.keys.agentUse, world.keys.agentEdit, world.keys.orgUse]) {
    for (const name of [
      'A2A 1.0 JSON-RPC GetTask',
      'A2A 0.3 HTTP get',
      'Agent Communication run',
      'MCP get_run',
      'OpenAI response',
    ])
      assert.match(await seen(name, key), /SECRET WORDS/, name);
  }
});

test('sessions of the Agent Client Protocol are those of the agent alone', async () => {
  const client = await acpClient(acpStream('websocket', world.service.port, ours.agentId, world.keys.owner));
  try {
    const failure = async (method: string, sessionId: string) =>
      client.agent
        .request(
          method as 'session/load',
          { sessionId, ...place, prompt: [{ type: 'text', text: 'x' }] } as never,
        )
        .then(
          (result) => JSON.stringify(result),
          (error: Error & { code?: number; data?: unknown }) =>
            JSON.stringify([error.code, error.message, error.data]).replaceAll(sessionId, '<id>'),
        );
    for (const method of [
      'session/load',
      'session/resume',
      'session/prompt',
      'session/close',
      'session/delete',
      'session/set_mode',
    ])
      assert.equal(await failure(method, theirs.conversationId), await failure(method, newId()), method);
    const listed = JSON.stringify(await client.agent.request('session/list', {}));
    assert.ok(listed.includes(ours.conversationId) && !listed.includes(theirs.conversationId));
    assert.equal(await failure('session/load', ours.conversationId), '{}');
  } finally {
    client.close();
  }
  assert.equal((await world.call('GET', `/v1/conversations/${theirs.conversationId}`)).status, 200);
});

test('lists of every surface have the agent’s own alone', async () => {
  const host = hostOf(ours.agentId);
  const lists: Asked[] = [
    rpc('ListTasks', {}),
    get(`${a2a}/tasks`, v1),
    tool('list_conversations', { limit: 100 }),
  ];
  for (const { method, path, body, headers } of lists) {
    const init: RequestInit = {
      method,
      headers: {
        authorization: `Bearer ${world.keys.owner}`,
        'content-type': 'application/json',
        ...headers,
      },
    };
    if (body !== undefined) init.body = JSON.stringify(body);
    const text = await (await at(`${host}${path}`, init)).text();
    assert.ok(text.includes(ours.conversationId), text);
    assert.ok(!text.includes(theirs.conversationId) && !text.includes(theirs.runId), path);
  }
});
