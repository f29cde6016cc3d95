import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { connect } from 'node:net';
import { after, before, test } from 'node:test';
import { AgentCard, SendMessageRequest, Task } from '@a2a-js/sdk';
import { A2AService } from '@a2a-js/sdk/server/grpc';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';
import { ClientFactory } from '@a2a-js/sdk/client';
import { status as codes } from '@grpc/grpc-js';
import type { GrpcAsked, GrpcReply } from '../support/a2a-grpc.ts';
import { grpcCallOptions, grpcPort, grpcWire } from '../support/a2a-grpc.ts';
import type { A2aWorld } from '../support/a2a-world.ts';
import { a2aWorld, message } from '../support/a2a-world.ts';
import type { HeldBack } from '../support/held-back.ts';
import { grpcHeldBack, heldBack } from '../support/held-back.ts';
import { until } from '../support/until.ts';

let world: A2aWorld;
let port: number;
let wire: ReturnType<typeof grpcWire>;

before(async () => {
  world = await a2aWorld({ env: { BERTH_A2A_GRPC_PORT: '0', BERTH_DRAIN_SECONDS: '1' } });
  port = grpcPort((await world.request('GET', '/.well-known/agent-card.json')).body);
  wire = grpcWire(port);
});
after(async () => {
  wire?.close();
  await world?.close();
});

const bytes = { 'content-type': 'application/octet-stream' };

type Asked = Partial<GrpcAsked> & Pick<GrpcAsked, 'method' | 'request'>;
const call = (asked: Asked): Promise<GrpcReply> =>
  wire.call({ agentId: world.agent.id, key: world.service.key, ...asked });
const send = (words: string, more: Record<string, unknown> = {}, configuration?: object) =>
  SendMessageRequest.fromJSON({ message: message(words, more), configuration });
const begun = async (words: string): Promise<string> => {
  const reply = await call({ method: 'SendMessage', request: send(words, {}, { returnImmediately: true }) });
  assert.equal(reply.code, codes.OK, reply.details);
  return reply.messages[0].payload.value.id;
};
const stateOf = async (id: string) => (await world.rpc('GetTask', { id })).result.status.state;

test('the card tells of gRPC in both versions, with host and port as its clients take them', async () => {
  const card = (await world.request('GET', '/.well-known/agent-card.json')).body;
  const told = card.supportedInterfaces.filter(
    (one: { protocolBinding: string }) => one.protocolBinding === 'GRPC',
  );
  const url = `${world.agent.id}.localhost:${port}`;
  assert.deepEqual(told, [
    { url, protocolBinding: 'GRPC', protocolVersion: '1.0' },
    { url, protocolBinding: 'GRPC', protocolVersion: '0.3' },
  ]);
});

test('a message with more names and values than the JSON of the other bindings may have is refused before all of it is read', async () => {
  const sent = (count: number) =>
    call({ method: 'SendMessage', request: send('x', { metadata: { a: Array<null>(count).fill(null) } }) });
  const many = await sent(200_000);
  assert.deepEqual([many.code, many.messages], [codes.INVALID_ARGUMENT, []]);
  assert.match(many.details, /has more than 100000 names and values/);
  const fewer = await sent(70_000);
  assert.match(fewer.details, /^metadata: must have at most/);
});

test('a task is the same by JSON-RPC, by HTTP and by gRPC, and so are lists and extended cards', async () => {
  const id = await begun('artifacts');
  await until('the task has ended', async () => (await stateOf(id)) === 'TASK_STATE_COMPLETED');
  const byGrpc = await call({ method: 'GetTask', request: { tenant: '', id } });
  const byRpc = (await world.rpc('GetTask', { id })).result;
  const byHttp = (await world.request('GET', `/a2a/http/tasks/${id}`)).body;
  assert.deepEqual(Task.toJSON(byGrpc.messages[0]), byRpc);
  assert.deepEqual(byHttp, byRpc);
  const list = { tenant: '', contextId: byRpc.contextId, status: 0, pageToken: '', includeArtifacts: true };
  const listed = (await call({ method: 'ListTasks', request: list })).messages[0];
  assert.deepEqual(
    [listed.tasks.map(Task.toJSON), listed.totalSize],
    [[{ ...byRpc, history: undefined }], 1].map((one) => JSON.parse(JSON.stringify(one))),
  );
  const card = (await call({ method: 'GetExtendedAgentCard', request: { tenant: '' } })).messages[0];
  assert.deepEqual(AgentCard.toJSON(card), (await world.rpc('GetExtendedAgentCard')).result);
});

test('errors have the code of the protocol and say why, before anything is done', async () => {
  const done = await begun('echo');
  await until('the task has ended', async () => (await stateOf(done)) === 'TASK_STATE_COMPLETED');
  const part = (content: unknown) => ({ content, metadata: undefined, filename: '', mediaType: '' });
  const sent = (parts: unknown[]) => {
    const request = send('x');
    request.message!.parts = parts as never;
    return request;
  };
  let deep: unknown = 1;
  for (let n = 0; n < 200; n += 1) deep = [deep];
  const table: [string, Asked, codes, string][] = [
    [
      'no task',
      { method: 'GetTask', request: { tenant: '', id: randomUUID() } },
      codes.NOT_FOUND,
      'TASK_NOT_FOUND',
    ],
    [
      'ended',
      { method: 'CancelTask', request: { tenant: '', id: done } },
      codes.FAILED_PRECONDITION,
      'TASK_NOT_CANCELABLE',
    ],
    [
      'ended',
      { method: 'SubscribeToTask', request: { tenant: '', id: done } },
      codes.FAILED_PRECONDITION,
      'UNSUPPORTED_OPERATION',
    ],
    [
      'no id',
      { method: 'GetTask', request: { tenant: '', id: '' } },
      codes.INVALID_ARGUMENT,
      'INVALID_PARAMS',
    ],
    ['no parts', { method: 'SendMessage', request: sent([]) }, codes.INVALID_ARGUMENT, 'INVALID_PARAMS'],
    [
      'an empty part',
      { method: 'SendStreamingMessage', request: sent([part(undefined)]) },
      codes.INVALID_ARGUMENT,
      'INVALID_PARAMS',
    ],
    [
      'NUL',
      { method: 'SendMessage', request: sent([part({ $case: 'text', value: 'a\0b' })]) },
      codes.INVALID_ARGUMENT,
      'INVALID_PARAMS',
    ],
    [
      'a number that JSON cannot hold',
      { method: 'SendMessage', request: sent([part({ $case: 'data', value: [Infinity] })]) },
      codes.INVALID_ARGUMENT,
      'INVALID_PARAMS',
    ],
    [
      'deep',
      { method: 'SendMessage', request: sent([part({ $case: 'data', value: deep })]) },
      codes.INVALID_ARGUMENT,
      'INVALID_PARAMS',
    ],
    [
      'a media type',
      {
        method: 'SendMessage',
        request: sent([{ ...part({ $case: 'raw', value: Buffer.from('x') }), mediaType: 'x/unheard' }]),
      },
      codes.INVALID_ARGUMENT,
      'CONTENT_TYPE_NOT_SUPPORTED',
    ],
    [
      'no message of the schema',
      { method: 'GetTask', request: Buffer.from([0x12, 0xff, 0xff]) },
      codes.INVALID_ARGUMENT,
      'INVALID_PARAMS',
    ],
    [
      'broken UTF-8',
      { method: 'GetTask', request: Buffer.from([0x12, 0x02, 0xc3, 0x28]) },
      codes.INVALID_ARGUMENT,
      'INVALID_PARAMS',
    ],
    [
      'a version',
      { method: 'GetTask', request: { tenant: '', id: done }, headers: { 'a2a-version': '99.0' } },
      codes.FAILED_PRECONDITION,
      'VERSION_NOT_SUPPORTED',
    ],
    [
      'the other version',
      { method: 'GetTask', request: { tenant: '', id: done }, headers: { 'a2a-version': '0.3' } },
      codes.FAILED_PRECONDITION,
      'VERSION_NOT_SUPPORTED',
    ],
    [
      'a page',
      { method: 'ListTasks', request: { tenant: '', contextId: '', status: 0, pageToken: 'x' } },
      codes.INVALID_ARGUMENT,
      'INVALID_CURSOR',
    ],
    [
      'a push target',
      {
        method: 'CreateTaskPushNotificationConfig',
        request: { tenant: '', id: '', taskId: done, url: 'http://127.0.0.1/x', token: '' },
      },
      codes.INVALID_ARGUMENT,
      'INVALID_REQUEST',
    ],
    [
      'no task of 0.3',
      { version: '0.3', method: 'GetTask', request: { name: `tasks/${randomUUID()}`, historyLength: 0 } },
      codes.NOT_FOUND,
      'TASK_NOT_FOUND',
    ],
    [
      'no name of 0.3',
      { version: '0.3', method: 'GetTask', request: { name: 'x', historyLength: 0 } },
      codes.INVALID_ARGUMENT,
      'INVALID_PARAMS',
    ],
  ];
  const before = (await world.rpc('ListTasks', {})).result.totalSize;
  for (const [name, asked, code, reason] of table) {
    const reply = await call(asked);
    assert.deepEqual([reply.code, reply.reason], [code, reason], `${name}: ${reply.details}`);
    const domain =
      reason === 'INVALID_CURSOR' || reason === 'INVALID_REQUEST' ? 'berth.dev' : 'a2a-protocol.org';
    assert.equal(reply.domain, domain, name);
  }
  assert.equal((await world.rpc('ListTasks', {})).result.totalSize, before, 'nothing was begun');
  const big = await call({ method: 'SendMessage', request: Buffer.alloc(6 * 1024 * 1024 + 1) });
  assert.equal(big.code, codes.RESOURCE_EXHAUSTED);
});

test('a key is needed, and no key says of an agent that is not its own more than of none', async () => {
  const ask = { method: 'GetTask', request: { tenant: '', id: randomUUID() } };
  const keyless = await call({ ...ask, key: null });
  assert.deepEqual([keyless.code, keyless.reason], [codes.UNAUTHENTICATED, 'KEY_MISSING']);
  const wrong = await call({ ...ask, key: 'berth_wrong' });
  assert.deepEqual([wrong.code, wrong.reason], [codes.UNAUTHENTICATED, 'KEY_INVALID']);
  // Not a byte of a message is read before the key is known.
  const huge = await call({ method: 'SendMessage', request: Buffer.alloc(8 * 1024 * 1024), key: null });
  assert.equal(huge.code, codes.UNAUTHENTICATED);
  const missing = await call({ ...ask, agentId: randomUUID() });
  assert.deepEqual(
    [missing.code, missing.reason, missing.domain],
    [codes.NOT_FOUND, 'NOT_FOUND', 'berth.dev'],
  );
  const elsewhere = await call({ ...ask, options: { host: 'example.com' } });
  assert.deepEqual([elsewhere.code, elsewhere.details], [missing.code, missing.details]);
  assert.ok(missing.trailing.get('x-request-id').length === 1);
});

test('a client that goes away, or whose deadline passes, ends its stream and not the task', async () => {
  const id = await begun('hold go-on');
  const left = await call({
    method: 'SubscribeToTask',
    request: { tenant: '', id },
    onMessage: (_, cancel) => cancel(),
  });
  assert.equal(left.code, codes.CANCELLED);
  const late = await call({
    method: 'SubscribeToTask',
    request: { tenant: '', id },
    options: { deadline: Date.now() + 100 },
  });
  assert.equal(late.code, codes.DEADLINE_EXCEEDED);
  let gone: Promise<unknown> | undefined;
  const rest = await call({
    method: 'SubscribeToTask',
    request: { tenant: '', id },
    onMessage: () =>
      void (gone ??= world.service.api('PUT', `/sandbox/${world.agent.id}/files/go-on`, 'now', bytes)),
  });
  await gone;
  assert.equal(rest.code, codes.OK);
  assert.equal(rest.messages[0].payload.$case, 'task');
  assert.equal(await stateOf(id), 'TASK_STATE_COMPLETED');
  const ends = () =>
    world.service
      .logs()
      .split('\n')
      .filter((line) => line.includes('A2AService/SubscribeToTask') && line.includes(world.agent.id)).length;
  await until('the service has let go of all four subscriptions', () => ends() >= 4);
});

test('a key that is revoked ends its streams, and not as if the task had ended', async () => {
  const made = await world.service.api('POST', '/v1/api-keys', {
    name: 'short',
    scope: 'use',
    binding: 'org-bound',
  });
  assert.equal(made.status, 201, made.text);
  const { value, key } = made.body;
  const id = await begun('hold for-ever');
  let revoked: Promise<unknown> | undefined;
  const asked = {
    method: 'SubscribeToTask',
    request: { tenant: '', id },
    key: value,
    onMessage: () => void (revoked ??= world.service.api('DELETE', `/v1/api-keys/${key.id}`)),
  };
  const reply = await call(asked);
  assert.deepEqual([reply.code, reply.reason], [codes.UNAVAILABLE, 'UNAVAILABLE'], reply.details);
  await revoked;
  assert.equal((await call(asked)).code, codes.UNAUTHENTICATED);
  assert.equal(await stateOf(id), 'TASK_STATE_WORKING');
  await world.rpc('CancelTask', { id });
});

test('the client of 1.0 speaks to the service of 0.3 too', async () => {
  const card = AgentCard.fromJSON((await world.request('GET', '/.well-known/agent-card.json')).body);
  card.supportedInterfaces = card.supportedInterfaces
    .filter(({ protocolBinding, protocolVersion }) => protocolBinding === 'GRPC' && protocolVersion === '0.3')
    .map((one) => ({ ...one, url: `127.0.0.1:${port}` }));
  const options = grpcCallOptions(`${world.agent.id}.localhost`, world.service.key);
  const factory = new GrpcTransportFactory({ grpcCallOptions: options, legacyCompat: { enabled: true } });
  const client = await new ClientFactory({ transports: [factory] }).createFromAgentCard(card);
  const task = (await client.sendMessage(send('over the old wire'))) as Task;
  assert.deepEqual(task.artifacts[0]?.parts[0]?.content, { $case: 'text', value: 'over the old wire' });
  assert.deepEqual((await client.getTask({ tenant: '', id: task.id })).status, task.status);
  const cases: unknown[] = [];
  for await (const { payload } of client.sendMessageStream(send('slow 3 20'))) cases.push(payload?.$case);
  assert.deepEqual([cases[0], cases.at(-1)], ['task', 'statusUpdate']);
  const running = (await client.sendMessage(send('slow 200 50', {}, { returnImmediately: true }))) as Task;
  assert.equal(
    (await client.cancelTask({ tenant: '', id: running.id, metadata: undefined })).status?.state,
    5,
  );
});

/** A call by each protocol whose answer is waited for, and what is told of one that goes on. */
const waitingCalls = (): [
  name: string,
  path: string,
  body: object,
  tells: (reply: HeldBack) => unknown,
  told: unknown,
][] => {
  const model = world.agent.id;
  const said = [{ role: 'user', parts: [{ content_type: 'text/plain', content: 'hold' }] }];
  const tool = { name: 'send_message', arguments: { content: 'hold' } };
  const goesOn = (state: string) => /^TASK_STATE_(WORKING|SUBMITTED)$/.test(state);
  return [
    [
      'JSON-RPC',
      '/a2a',
      { jsonrpc: '2.0', id: 1, method: 'SendMessage', params: { message: message('hold') } },
      ({ body }) => goesOn(body.result.task.status.state),
      true,
    ],
    [
      'HTTP',
      '/a2a/http/message:send',
      { message: message('hold') },
      ({ body }) => [goesOn(body.task.status.state), body.task.history.length],
      [true, 1],
    ],
    [
      'Agent Communication',
      '/runs',
      { agent_name: model, input: said, mode: 'sync' },
      ({ status, body }) => [status, /^(in-progress|created)$/.test(body.status)],
      [202, true],
    ],
    [
      'MCP',
      '/mcp',
      { jsonrpc: '2.0', id: 1, method: 'tools/call', params: tool },
      ({ text }) => JSON.parse(/^data: (.*)$/m.exec(text)![1]!).result.structuredContent.message,
      null,
    ],
    [
      'chat completions',
      '/v1/chat/completions',
      { model, messages: [{ role: 'user', content: 'hold' }] },
      ({ status, body }) => [status, body.error.code],
      [504, 'timeout'],
    ],
    [
      'responses',
      '/v1/responses',
      { model, input: 'hold' },
      ({ status, body }) => [status, body.output.length],
      [200, 0],
    ],
    ['REST', '/api/v1/chat/send', { agentId: model, content: 'hold' }, ({ status }) => status, 202],
  ];
};

test('at the end of the service streams are told to come again, calls that wait or come late get what there is and cancel nothing, and no connection is taken any more', async () => {
  const headersOf = (path: string) => ({
    host: path.startsWith('/api/') ? `127.0.0.1:${world.service.port}` : new URL(world.origin).host,
    authorization: `Bearer ${world.service.key}`,
    'a2a-version': '1.0',
    accept: path === '/mcp' ? 'application/json, text/event-stream' : 'application/json',
  });
  const held = (path: string, body: object) => heldBack(world.service.port, path, headersOf(path), body);
  const waiting = await Promise.all(
    waitingCalls().map(async ([name, path, body, tells, told]) => {
      const go = await held(path, body);
      return { name, told, reply: go().then(tells) };
    }),
  );
  const stateIn = (task: Task) => (Task.toJSON(task) as { status: { state: string } }).status.state;
  const byGrpc = call({ method: 'SendMessage', request: send('hold') });
  const runs = async () =>
    (await world.service.api('GET', `/v1/agents/${world.agent.id}/runs?limit=100`)).body.runs as {
      id: string;
      status: string;
    }[];
  const isOpen = ({ status }: { status: string }) => status === 'running' || status === 'queued';
  await until('all of them wait', async () => (await runs()).filter(isOpen).length === waiting.length + 1);
  const id = await begun('hold');
  const late = await Promise.all(
    waitingCalls().map(async ([name, path, body, tells, told]) => {
      return { name, told, tells, go: await held(path, body) };
    }),
  );
  const { path, requestSerialize, responseDeserialize } = A2AService.sendMessage;
  const { host, ...lateHeaders } = headersOf('/');
  const lateByGrpc = await grpcHeldBack(
    port,
    path,
    { ...lateHeaders, ':authority': host },
    requestSerialize(send('hold')),
  );
  const before = await runs();
  let stopped: Promise<number | null> | undefined;
  const reply = await call({
    method: 'SubscribeToTask',
    request: { tenant: '', id },
    // A second signal would end it at once.
    onMessage: () => void (stopped ??= world.service.stop()),
  });
  assert.deepEqual([reply.code, reply.reason], [codes.UNAVAILABLE, 'UNAVAILABLE'], reply.details);
  const lateReplies = late.map(({ name, told, tells, go }) => ({ name, told, reply: go().then(tells) }));
  const lateTask = lateByGrpc().then((bytes) => responseDeserialize(bytes).payload!.value as Task);
  for (const one of waiting) assert.deepEqual(await one.reply, one.told, one.name);
  const goesOn = /^TASK_STATE_(WORKING|SUBMITTED)$/;
  assert.match(stateIn((await byGrpc).messages[0].payload.value as Task), goesOn);
  for (const one of lateReplies) assert.deepEqual(await one.reply, one.told, `${one.name}, late`);
  assert.match(stateIn(await lateTask), goesOn);
  assert.equal((await lateTask).history.length, 1);
  assert.equal(await stopped, 0);
  const socket = connect(port, '127.0.0.1');
  const refused = await new Promise((resolve) => socket.once('error', resolve).once('connect', resolve));
  socket.destroy();
  assert.match(String(refused), /ECONNREFUSED/);
  await world.service.restart();
  const after = await runs();
  assert.equal(after.length, before.length + late.length + 1);
  const ids = new Set(before.filter(isOpen).map((one) => one.id));
  for (const one of after.filter(
    (each) => ids.has(each.id) || !before.some(({ id: known }) => known === each.id),
  ))
    assert.notEqual(one.status, 'cancelled');
});
