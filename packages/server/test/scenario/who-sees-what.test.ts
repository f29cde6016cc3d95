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
import { until } from '../support/until.ts';

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
          {
            sessionId,
            ...place,
            prompt: [{ type: 'text', text: 'x' }],
            modeId: 'any',
            configId: 'any',
            value: 'any',
          } as never,
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
      'session/set_config_option',
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

test('a cancel by the Agent Client Protocol reaches no run of another agent, whatever session it names', async () => {
  const begun = await world.as(world.keys.owner)(
    'POST',
    '/api/v1/chat/send',
    { agentId: world.otherAgentId, content: 'hold: theirs' },
    { prefer: 'respond-async' },
  );
  const { runId, conversationId } = begun.body;
  const client = await acpClient(acpStream('websocket', world.service.port, ours.agentId, world.keys.owner));
  const its = await acpClient(
    acpStream('websocket', world.service.port, world.otherAgentId, world.keys.owner),
  );
  try {
    // Nothing is answered to a notification, but what comes after it on the connection is dealt with later.
    for (const sessionId of [conversationId, newId(), runId])
      await client.agent.notify('session/cancel', { sessionId });
    await client.agent.request('session/list', {});
    const { run } = (await world.call('GET', `/v1/runs/${runId}`)).body;
    assert.match(run.status, /^(queued|running)$/);
    // It would be heard at the agent's own host.
    await its.agent.request('session/load', { sessionId: conversationId, ...place });
    await its.agent.notify('session/cancel', { sessionId: conversationId });
    const statusOf = async () => (await world.call('GET', `/v1/runs/${runId}`)).body.run.status;
    await until('its own client has cancelled it', async () => (await statusOf()) === 'cancelled');
  } finally {
    client.close();
    its.close();
    world.release('theirs');
  }
});

test('a cursor of another agent’s list is as good as none that was ever given, on every surface', async () => {
  const { owner } = world.keys;
  // A second one each, so that there is another page.
  const other = await makeRun(world.otherAgentId, owner);
  await makeRun(world.agentId, owner);
  const ask = async (base: string, { method, path, body, headers = {} }: Asked) => {
    const init: RequestInit = {
      method,
      headers: {
        authorization: `Bearer ${owner}`,
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    };
    const reply = await at(`${base}${path}`, init);
    const text = await reply.text();
    const told = /^data: (.*)$/m.exec(text)?.[1] ?? text;
    // A request names itself in what goes wrong.
    return `${reply.status} ${told.replaceAll(/"requestId\\?":\\?"[^"\\]*/g, '')}`;
  };
  const cursorIn = (text: string) =>
    /(?:nextPageToken|nextCursor)\\?":\\?"([^"\\]+)/.exec(text)?.[1] ?? assert.fail(text);
  const lists: [string, (agentId: string, cursor: string | null) => [base: string, asked: Asked]][] = [
    [
      'A2A JSON-RPC',
      (id, pageToken) => [hostOf(id), rpc('ListTasks', { pageSize: 1, ...(pageToken && { pageToken }) })],
    ],
    [
      'A2A HTTP',
      (id, cursor) => [hostOf(id), get(`${a2a}/tasks?pageSize=1${cursor ? `&pageToken=${cursor}` : ''}`, v1)],
    ],
    [
      'MCP',
      (id, cursor) => [hostOf(id), tool('list_conversations', { limit: 1, ...(cursor && { cursor }) })],
    ],
    [
      'MCP 2026-07-28',
      (id, cursor) => [hostOf(id), toolNow('list_conversations', { limit: 1, ...(cursor && { cursor }) })],
    ],
    ...['runs', 'conversations', 'deployments', 'api-keys'].map(
      (noun): [string, (id: string, cursor: string | null) => [string, Asked]] => [
        `REST ${noun}`,
        (id, cursor) => [
          world.service.url,
          get(`/v1/agents/${id}/${noun}?limit=1${cursor ? `&cursor=${cursor}` : ''}`),
        ],
      ],
    ),
  ];
  for (const id of [world.agentId, world.otherAgentId])
    for (const name of ['one', 'two']) {
      await world.call('POST', `/v1/agents/${id}/api-keys`, { name });
      await world.call('POST', `/v1/agents/${id}/deployments`, {});
    }
  const madeUp = Buffer.alloc(60, 7).toString('base64url');
  for (const [name, asked] of lists) {
    const first = await ask(...asked(world.otherAgentId, null));
    const cursor = cursorIn(first);
    const foreign = await ask(...asked(world.agentId, cursor));
    assert.equal(foreign, await ask(...asked(world.agentId, madeUp)), name);
    assert.match(foreign, /cursor|page ?token|-32602/i, name);
    assert.ok(!foreign.includes(other.runId) && !foreign.includes(other.conversationId), name);
    // It is one of its own list.
    assert.doesNotMatch(
      await ask(...asked(world.otherAgentId, cursor)),
      /invalid|-32602|"error":[^n]/i,
      name,
    );
  }
  const wireOf = (agentId: string, pageToken: string) =>
    wire.call({
      method: 'ListTasks',
      request: { tenant: '', contextId: '', status: 0, pageSize: 1, pageToken },
      agentId,
      key: owner,
    });
  const { nextPageToken } = (await wireOf(world.otherAgentId, '')).messages[0];
  const [foreign, unknown] = [
    await wireOf(world.agentId, nextPageToken),
    await wireOf(world.agentId, madeUp),
  ];
  assert.deepEqual([foreign.code, foreign.details], [unknown.code, unknown.details]);
  assert.notEqual(foreign.code, 0);
  assert.equal((await wireOf(world.otherAgentId, nextPageToken)).code, 0);
  // Pages of sessions have fifty.
  await world.db.sql`
    with made as (
      insert into conversations
      select (jsonb_populate_record(c, jsonb_build_object('id', gen_random_uuid()))).*
      from conversations c, generate_series(1, 51) where c.id = ${other.conversationId} returning id)
    insert into lanes select (jsonb_populate_record(l, jsonb_build_object('conversation_id', made.id))).*
    from lanes l, made where l.conversation_id = ${other.conversationId}`;
  const [client, its] = await Promise.all(
    [ours.agentId, world.otherAgentId].map((id) =>
      acpClient(acpStream('websocket', world.service.port, id, owner)),
    ),
  );
  try {
    const { nextCursor } = await its!.agent.request('session/list', {});
    assert.ok(nextCursor, 'there is another page of sessions');
    assert.ok((await its!.agent.request('session/list', { cursor: nextCursor })).sessions.length > 0);
    const listed = async (cursor: string) =>
      client!.agent.request('session/list', { cursor }).then(
        () => 'a list',
        (error: Error & { code?: number }) => `${error.code} ${error.message}`,
      );
    assert.equal(await listed(nextCursor), await listed(madeUp));
    assert.match(await listed(nextCursor), /^-32602/);
  } finally {
    client!.close();
    its!.close();
  }
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
