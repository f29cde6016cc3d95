import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { grpcPort, grpcWire } from '../support/a2a-grpc.ts';
import { grpcOperations } from '../support/a2a-grpc-operations.ts';
import { hostFetch } from '../support/host-fetch.ts';
import {
  a2a,
  get,
  message,
  message03,
  operations,
  ownOperations,
  post,
  proto03,
  rpc,
  tool,
  toolNow,
  v03,
  v1,
  type Asked,
  type Ids,
  type Operation,
} from '../support/host-operations.ts';
import { acpClient, acpStream, place } from '../support/acp-client.ts';
import type { World } from '../support/scenario-world.ts';
import { startWorld } from '../support/scenario-world.ts';

let world: World;
let at: typeof fetch;
let wire: ReturnType<typeof grpcWire>;
let ours: Ids;
let theirs: Ids;

async function makeRun(agentId: string, key: string): Promise<Ids> {
  const sent = await world.as(key)('POST', '/api/v1/chat/send', { agentId, content: 'secret words' });
  assert.equal(sent.status, 200, sent.text);
  const { runId, conversationId } = sent.body;
  const { body } = await world.as(key)('GET', `/v1/conversations/${conversationId}/messages`);
  return { agentId, runId, conversationId, messageId: body.messages.at(-1).id };
}

before(async () => {
  world = await startWorld({ BERTH_A2A_GRPC_PORT: '0' });
  at = hostFetch(world.service.port);
  const card = await at(`${hostOf(world.agentId)}/.well-known/agent-card.json`, { headers: v1 });
  wire = grpcWire(grpcPort(await card.json()));
  ours = await makeRun(world.agentId, world.keys.owner);
  theirs = await makeRun(world.otherAgentId, world.keys.owner);
});
after(async () => {
  wire?.close();
  await world?.end();
});

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

/** The same of an operation of gRPC, asked of the host of an agent. */
async function grpcAnswerOf(
  { version, method, request }: (typeof grpcOperations)[number],
  agentId: string,
  key: string,
  ids: Ids,
): Promise<string> {
  const reply = await wire.call({ version, method, request: request(ids), agentId, key });
  const { trailing, initial, ...told } = reply;
  const heads = [initial, trailing].map((one) =>
    Object.keys(one.getMap()).map((name) => [
      name,
      /^(x-request-id|ratelimit|date)$/.test(name) ? '' : one.get(name),
    ]),
  );
  let text = JSON.stringify([told, heads]);
  for (const id of Object.values(ids)) text = text.replaceAll(id as string, '<id>');
  return text;
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

test('every operation of A2A over gRPC answers for what is another agent’s as for what there is not', async () => {
  for (const operation of grpcOperations) {
    const ask = (key: string, ids: Ids) => grpcAnswerOf(operation, ours.agentId, key, ids);
    const missing = await ask(world.keys.owner, strange(ours.agentId));
    const foreign = await ask(world.keys.owner, { ...theirs, agentId: ours.agentId });
    assert.equal(foreign, missing, operation.name);
    assert.ok(!/secret/i.test(foreign), operation.name);
    const own = await ask(world.keys.agentUse, ours);
    assert.notEqual(own, missing, `${operation.name} says nothing of what there is: ${own}`);
  }
});

test('a key of another agent or organisation gets over gRPC what it gets where there is no agent', async () => {
  const { otherAgent, foreign } = world.keys;
  for (const operation of grpcOperations) {
    for (const key of [otherAgent, foreign]) {
      const missing = await grpcAnswerOf(operation, randomUUID(), key, ours);
      assert.match(missing, /^\[\{"code":5,/, operation.name);
      assert.equal(await grpcAnswerOf(operation, ours.agentId, key, ours), missing, operation.name);
    }
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
      'MCP 2026-07-28 get_run',
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
    toolNow('list_conversations', { limit: 100 }),
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

test('the id of another agent’s conversation is a name like any other for a context of this one, and leads to nothing of it', async () => {
  const { contextId } = { contextId: theirs.conversationId };
  const sends: [string, Asked][] = [
    ['1.0 by JSON-RPC', rpc('SendMessage', { message: message({ messageId: 'f-1', contextId }) })],
    ['1.0 over HTTP', post(`${a2a}/message:send`, { message: message({ messageId: 'f-2', contextId }) }, v1)],
    ['0.3 by JSON-RPC', rpc('message/send', { message: message03({ messageId: 'f-3', contextId }) }, v03)],
    ['0.3 over HTTP', post(`${a2a}/v1/message:send`, proto03({ messageId: 'f-4', contextId }), v03)],
  ];
  const before = await world.call('GET', `/v1/conversations/${contextId}/events?limit=100`);
  const ask = async ({ method, path, body, headers }: Asked) => {
    const init = {
      method,
      headers: {
        authorization: `Bearer ${world.keys.owner}`,
        'content-type': 'application/json',
        ...headers,
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    };
    return (await at(`${hostOf(ours.agentId)}${path}`, init)).text();
  };
  for (const [name, asked] of sends) {
    const text = await ask(asked);
    assert.ok(text.includes(contextId), `${name}: ${text}`);
    assert.ok(!/secret words/i.test(text) && !text.includes(theirs.runId), `${name}: ${text}`);
  }
  const listed = JSON.parse(await ask(rpc('ListTasks', { contextId }))) as { result: { totalSize: number } };
  assert.equal(listed.result.totalSize, sends.length, 'the tasks of this agent, in one context');
  assert.deepEqual(
    (await world.call('GET', `/v1/conversations/${contextId}/events?limit=100`)).body,
    before.body,
    'the other conversation is as it was',
  );
});
