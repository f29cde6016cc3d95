import assert from 'node:assert/strict';
import { createPublicKey, randomUUID, verify } from 'node:crypto';
import { after, before, test } from 'node:test';
import { AgentCard, Role, TaskState, verifyAgentCardSignature } from '@a2a-js/sdk';
import type { Message, StreamResponse, Task } from '@a2a-js/sdk';
import type { Client } from '@a2a-js/sdk/client';
import { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';
import { TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError } from '@a2a-js/sdk/errors';
import * as old from 'a2a-js-sdk-0.3/client';
import { a2a } from 'a2a-ai-provider';
import { generateText, streamText } from 'ai';
import { grpcCallOptions, grpcPort } from '../support/a2a-grpc.ts';
import type { A2aWorld } from '../support/a2a-world.ts';
import { a2aWorld } from '../support/a2a-world.ts';
import { wireTests } from '../support/a2a-wire-tests.ts';
import { keyedProxy } from '../support/keyed-proxy.ts';

let world: A2aWorld;
let keyed: typeof fetch;

before(async () => {
  world = await a2aWorld({ env: { BERTH_A2A_GRPC_PORT: '0' } });
  keyed = (input, init) => {
    const request = new Request(input, init);
    request.headers.set('authorization', `Bearer ${world.service.key}`);
    return world.fetch(request);
  };
});
after(() => world.close());

wireTests(() => world);

function sent(text: string, more: Partial<Message> = {}): Message {
  return {
    messageId: randomUUID(),
    contextId: '',
    taskId: '',
    role: Role.ROLE_USER,
    parts: [{ content: { $case: 'text', value: text }, metadata: undefined, filename: '', mediaType: '' }],
    metadata: undefined,
    extensions: [],
    referenceTaskIds: [],
    ...more,
  };
}

const request = (message: Message, returnImmediately = false) => ({
  tenant: '',
  message,
  configuration: {
    acceptedOutputModes: [],
    taskPushNotificationConfig: undefined,
    returnImmediately,
  },
  metadata: undefined,
});

async function clientOf(binding: 'JSONRPC' | 'HTTP+JSON' | 'GRPC'): Promise<Client> {
  const reply = await world.request('GET', '/.well-known/agent-card.json');
  const card = AgentCard.fromJSON(reply.body);
  const host = new URL(world.origin).hostname;
  const transports = [
    new JsonRpcTransportFactory({ fetchImpl: keyed }),
    new RestTransportFactory({ fetchImpl: keyed }),
    new GrpcTransportFactory({ grpcCallOptions: grpcCallOptions(host, world.service.key) }),
  ];
  // Names below localhost are found by browsers, not by every resolver.
  for (const one of card.supportedInterfaces)
    if (one.protocolBinding === 'GRPC') one.url = `127.0.0.1:${grpcPort(reply.body)}`;
  return new ClientFactory({ transports, preferredTransports: [binding] }).createFromAgentCard(card);
}

function textOf(task: Task): string {
  return task.artifacts
    .flatMap(({ parts }) => parts)
    .map(({ content }) => (content?.$case === 'text' ? content.value : ''))
    .join('');
}

const caseOf = ({ payload }: StreamResponse) => payload?.$case;

for (const binding of ['JSONRPC', 'HTTP+JSON', 'GRPC'] as const) {
  test(`the A2A SDK's client does everything over ${binding}`, async () => {
    const client = await clientOf(binding);
    const done = (await client.sendMessage(request(sent('hello there')))) as Task;
    assert.equal(done.status?.state, TaskState.TASK_STATE_COMPLETED);
    assert.equal(textOf(done), 'hello there');
    assert.deepEqual(await client.getTask({ tenant: '', id: done.id }), done);
    await assert.rejects(
      client.cancelTask({ tenant: '', id: done.id, metadata: undefined }),
      TaskNotCancelableError,
    );
    await assert.rejects(client.getTask({ tenant: '', id: randomUUID() }), TaskNotFoundError);
    await assert.rejects(
      client.sendMessage(request(sent('more', { taskId: done.id }))),
      UnsupportedOperationError,
    );

    const events: StreamResponse[] = [];
    for await (const event of client.sendMessageStream(request(sent('slow 4 30')))) events.push(event);
    assert.equal(caseOf(events[0]!), 'task');
    const pieces = events.flatMap(({ payload }) =>
      payload?.$case === 'artifactUpdate' ? payload.value.artifact!.parts : [],
    );
    assert.equal(pieces.map(({ content }) => content?.value).join(''), '1 2 3 4 ');
    const last = events.at(-1)!.payload;
    assert.equal(last?.$case === 'statusUpdate' && last.value.status?.state, TaskState.TASK_STATE_COMPLETED);

    const asked = (await client.sendMessage(request(sent('ask')))) as Task;
    assert.equal(asked.status?.state, TaskState.TASK_STATE_INPUT_REQUIRED);
    const answered = (await client.sendMessage(request(sent('blue', { taskId: asked.id })))) as Task;
    assert.equal(answered.id, asked.id);
    assert.equal(textOf(answered), 'You said {"colour":"blue"}.');
    assert.deepEqual(
      answered.history.map(({ role }) => role),
      [Role.ROLE_USER, Role.ROLE_AGENT, Role.ROLE_USER],
    );

    const running = (await client.sendMessage(request(sent('slow 200 50'), true))) as Task;
    const subscribed = client.resubscribeTask({ tenant: '', id: running.id })[Symbol.asyncIterator]();
    assert.equal(caseOf((await subscribed.next()).value as StreamResponse), 'task');
    const cancelled = await client.cancelTask({ tenant: '', id: running.id, metadata: undefined });
    assert.equal(cancelled.status?.state, TaskState.TASK_STATE_CANCELED);
    let end: StreamResponse | undefined;
    for (let item = await subscribed.next(); !item.done; item = await subscribed.next()) end = item.value;
    assert.equal(
      end?.payload?.$case === 'statusUpdate' && end.payload.value.status?.state,
      TaskState.TASK_STATE_CANCELED,
    );

    const listed = await client.listTasks({
      tenant: '',
      contextId: done.contextId,
      status: TaskState.TASK_STATE_UNSPECIFIED,
      pageToken: '',
      statusTimestampAfter: undefined,
    });
    assert.deepEqual(
      listed.tasks.map(({ id, artifacts }) => [id, artifacts.length]),
      [[done.id, 0]],
    );
    const plain = (await client.sendMessage(request(sent('plain only said')))) as Message;
    assert.equal(plain.role, Role.ROLE_AGENT);
    assert.equal(plain.parts[0]?.content?.value, 'only said');
  });

  test(`artifacts of every kind come as such over ${binding}, streamed and not`, async () => {
    const client = await clientOf(binding);
    const task = (await client.sendMessage(request(sent('artifacts')))) as Task;
    const kinds = task.artifacts.map(({ parts }) => parts[0]!.content);
    assert.deepEqual(kinds, [
      { $case: 'text', value: 'a text' },
      { $case: 'data', value: { key: 'value', count: 42 } },
      { $case: 'raw', value: Buffer.from('tck') },
      { $case: 'url', value: 'https://example.com/output.txt' },
    ]);
    const chunks: [unknown, boolean, boolean][] = [];
    for await (const { payload } of client.sendMessageStream(request(sent('chunks'))))
      if (payload?.$case === 'artifactUpdate') {
        const { artifact, append, lastChunk } = payload.value;
        chunks.push([artifact!.parts[0]!.content!.value, append, lastChunk]);
      }
    assert.deepEqual(chunks, [
      ['chunk-1 ', false, false],
      ['chunk-2', true, true],
    ]);
  });
}

test('the client of 0.3 sends, streams, answers, cancels and gets the extended card', async () => {
  const factory = new old.ClientFactory({
    transports: [new old.JsonRpcTransportFactory({ fetchImpl: keyed })],
    cardResolver: new old.DefaultAgentCardResolver({ fetchImpl: keyed }),
  });
  const client = await factory.createFromUrl(world.origin);
  const say = (text: string, more: Record<string, unknown> = {}) => ({
    message: {
      kind: 'message' as const,
      messageId: randomUUID(),
      role: 'user' as const,
      parts: [{ kind: 'text' as const, text }],
      ...more,
    },
  });
  const done = await client.sendMessage(say('hello'));
  assert.ok(done.kind === 'task');
  assert.equal(done.status.state, 'completed');
  assert.deepEqual(done.artifacts?.[0]?.parts, [{ kind: 'text', text: 'hello' }]);
  const kinds: string[] = [];
  for await (const event of client.sendMessageStream(say('slow 3 30'))) kinds.push(event.kind);
  assert.equal(kinds[0], 'task');
  assert.equal(kinds.at(-1), 'status-update');
  assert.ok(kinds.includes('artifact-update'));
  const asked = await client.sendMessage(say('ask'));
  assert.ok(asked.kind === 'task');
  assert.equal(asked.status.state, 'input-required');
  const answered = await client.sendMessage(say('red', { taskId: asked.id, contextId: asked.contextId }));
  assert.equal(answered.kind === 'task' && answered.status.state, 'completed');
  const running = await client.sendMessage({ ...say('slow 200 50'), configuration: { blocking: false } });
  assert.ok(running.kind === 'task');
  assert.equal((await client.cancelTask({ id: running.id })).status.state, 'canceled');
  const card = await client.getAgentCard();
  assert.equal(card.protocolVersion, '0.3');
  // What the public card does not tell shows that it is the extended one.
  const isExtended = (one: Pick<typeof card, 'skills'>) =>
    one.skills[0]!.tags.some((tag) => tag.startsWith('model:'));
  assert.ok(isExtended(card));
  const headers = { 'a2a-version': '' };
  assert.ok(!isExtended((await world.request('GET', '/.well-known/agent-card.json', { headers })).body));
  const body = { jsonrpc: '2.0', id: 1, method: 'agent/getAuthenticatedExtendedCard' };
  const byRpc = (await world.request('POST', '/a2a', { headers, body })).body.result;
  const byHttp = (await world.request('GET', '/a2a/http/v1/card', { headers })).body;
  assert.ok(isExtended(byRpc));
  assert.deepEqual(byHttp, byRpc);
  for (const [method, path] of [
    ['POST', '/a2a'],
    ['GET', '/a2a/http/v1/card'],
  ] as const) {
    const keyless = { headers, key: null, ...(method === 'POST' && { body }) };
    assert.equal((await world.request(method, path, keyless)).status, 401);
  }
});

test('the HTTP+JSON binding of 0.3 speaks the JSON of its schema', async () => {
  const transport = new old.RestTransport({ endpoint: `${world.origin}/a2a/http`, fetchImpl: keyed });
  const message = {
    kind: 'message' as const,
    messageId: randomUUID(),
    role: 'user' as const,
    parts: [{ kind: 'text' as const, text: 'over the wire' }],
  };
  const body = {
    message: { messageId: message.messageId, role: 'ROLE_USER', content: [{ text: 'over the wire' }] },
  };
  const reply = await world.request('POST', '/a2a/http/v1/message:send', {
    body,
    headers: { 'a2a-version': '' },
  });
  assert.equal(reply.status, 200, reply.text);
  assert.equal(reply.body.task.status.state, 'TASK_STATE_COMPLETED');
  assert.equal(reply.body.task.artifacts[0].parts[0].text, 'over the wire');
  assert.equal(reply.body.task.history[0].content[0].text, 'over the wire');
  const sentTask = await transport.sendMessage({ message: { ...message, messageId: randomUUID() } });
  assert.ok(sentTask.kind === 'task');
  assert.equal((await transport.getTask({ id: sentTask.id })).status.state, 'completed');
  const kinds: string[] = [];
  for await (const event of transport.sendMessageStream({ message: { ...message, messageId: randomUUID() } }))
    kinds.push(event.kind);
  assert.equal(kinds[0], 'task');
  assert.equal(kinds.at(-1), 'status-update');
  const set = await transport.setTaskPushNotificationConfig({
    taskId: sentTask.id,
    pushNotificationConfig: { id: 'mine', url: 'https://example.com/hook' },
  });
  assert.equal(set.pushNotificationConfig.id, 'mine');
  const missing = await world.request('GET', `/a2a/http/v1/tasks/${randomUUID()}`, {
    headers: { 'a2a-version': '' },
  });
  assert.deepEqual([missing.status, missing.body.code], [404, -32001]);
});

test('the AI SDK with its A2A provider gets the text, generated and streamed', async () => {
  const proxy = await keyedProxy(world, world.service.key);
  try {
    const model = a2a(`${proxy.url}/.well-known/agent-card.json`);
    const { text } = await generateText({ model, prompt: 'what a day' });
    assert.equal(text, 'what a day');
    const streamed: string[] = [];
    for await (const piece of streamText({ model, prompt: 'slow 3 30' }).textStream) streamed.push(piece);
    assert.equal(streamed.join(''), '1 2 3 ');
  } finally {
    await proxy.close();
  }
});

const base64url = (text: string) => Buffer.from(text).toString('base64url');

/** With the fields of each object in order, as canonical JSON has them. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return value;
  const fields = Object.entries(value).map(([name, field]) => [name, sorted(field)] as const);
  return Object.fromEntries(fields.sort(([a], [b]) => (a < b ? -1 : 1)));
}

test('cards are public, cached, of the version that was asked for, and their signature holds', async () => {
  const path = '/.well-known/agent-card.json';
  const card = await world.request('GET', path, { key: null });
  assert.equal(card.status, 200);
  assert.match(card.headers.get('cache-control')!, /^public, max-age=\d+$/);
  assert.match(card.headers.get('vary')!, /A2A-Version/);
  assert.ok(card.headers.get('last-modified'));
  const etag = card.headers.get('etag')!;
  assert.equal(
    (await world.request('GET', path, { key: null, headers: { 'if-none-match': etag } })).status,
    304,
  );
  assert.equal(
    (await world.request('GET', path, { key: null, headers: { 'if-none-match': '"x"' } })).status,
    200,
  );
  const legacy = await world.request('GET', path, { key: null, headers: { 'a2a-version': '' } });
  assert.notEqual(legacy.headers.get('etag'), etag);
  assert.equal(legacy.body.protocolVersion, '0.3');
  assert.equal(legacy.body.url, `${world.origin}/a2a`);
  assert.equal(legacy.body.supportedInterfaces[0].protocolVersion, '1.0');
  const jwks = await world.service.api('GET', '/.well-known/jwks.json', undefined, { authorization: '' });
  await verifyAgentCardSignature(async (kid, jku) => {
    assert.equal(new URL(jku!).pathname, '/.well-known/jwks.json');
    return jwks.body.keys.find((key: { kid: string }) => key.kid === kid);
  })(AgentCard.fromJSON(card.body));
  // That of 0.3 is over the canonical JSON (RFC 8785) of the card without its signatures.
  const { signatures, ...signed } = legacy.body;
  const { kid } = JSON.parse(Buffer.from(signatures[0].protected, 'base64url').toString());
  const key = jwks.body.keys.find((one: { kid: string }) => one.kid === kid);
  const holds = (content: object) =>
    verify(
      'sha256',
      Buffer.from(`${signatures[0].protected}.${base64url(JSON.stringify(sorted(content)))}`),
      { key: createPublicKey({ key, format: 'jwk' }), dsaEncoding: 'ieee-p1363' },
      Buffer.from(signatures[0].signature, 'base64url'),
    );
  assert.deepEqual([holds(signed), holds({ ...signed, name: 'Another' })], [true, false]);
  const forged = AgentCard.fromJSON({ ...card.body, name: 'Another' });
  await assert.rejects(
    verifyAgentCardSignature(async (kid) => jwks.body.keys.find((key: { kid: string }) => key.kid === kid))(
      forged,
    ),
  );
  assert.equal(
    (await world.request('GET', path, { key: null, origin: world.originOf(randomUUID()) })).status,
    404,
  );
  assert.equal((await world.request('GET', '/a2a/http/extendedAgentCard', { key: null })).status, 401);
  const extended = await world.request('GET', '/a2a/http/extendedAgentCard');
  assert.deepEqual(extended.body, (await world.rpc('GetExtendedAgentCard')).result);
});
