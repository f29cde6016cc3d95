import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, test } from 'node:test';
import { a2aWorld, sse, type A2aWorld } from '../support/a2a-world.ts';
import { conformanceFiles } from '../support/conformance-agent.ts';
import { logOf } from '../support/scenario.ts';

// What the public compatibility kit of A2A 1.0 looks at, against the agent that knows its words. Like the kit, it sends one
// and the same message, under one id, whenever it wants another task.

let world: A2aWorld;
before(async () => {
  world = await a2aWorld({}, await conformanceFiles());
});
after(() => world?.close());

// oxlint-disable-next-line no-explicit-any -- tests read into answers of all operations
type Told = any;

interface Answer {
  /** Null: it was refused. */
  result: Told;
  /** By JSON-RPC its code, over HTTP the status. */
  code: number | null;
  reason: string | null;
}

type Ask = (operation: string, params: Record<string, unknown>) => Promise<Answer>;

const askByRpc: Ask = async (operation, params) => {
  const { result = null, error, id } = await world.rpc(operation, params);
  assert.equal(id, 1);
  if (!error) return { result, code: null, reason: null };
  assert.deepEqual(Object.keys(error).sort(), ['code', 'data', 'message']);
  return { result: null, code: error.code, reason: error.data[0].reason };
};

const configs = (params: Record<string, unknown>) => `/tasks/${params['taskId']}/pushNotificationConfigs`;
const paths: Record<string, (params: Record<string, unknown>) => [method: string, path: string]> = {
  SendMessage: () => ['POST', '/message:send'],
  GetTask: ({ id, ...query }) => ['GET', `/tasks/${id}?${new URLSearchParams(query as {})}`],
  ListTasks: (query) => ['GET', `/tasks?${new URLSearchParams(query as {})}`],
  CancelTask: ({ id }) => ['POST', `/tasks/${id}:cancel`],
  SubscribeToTask: ({ id }) => ['POST', `/tasks/${id}:subscribe`],
  CreateTaskPushNotificationConfig: (params) => ['POST', configs(params)],
  GetTaskPushNotificationConfig: (params) => ['GET', `${configs(params)}/${params['id']}`],
  ListTaskPushNotificationConfigs: (params) => ['GET', configs(params)],
  DeleteTaskPushNotificationConfig: (params) => ['DELETE', `${configs(params)}/${params['id']}`],
};

const askByHttp: Ask = async (operation, params) => {
  const [method, path] = paths[operation]!(params);
  const reply = await world.request(method, `/a2a/http${path}`, method === 'POST' ? { body: params } : {});
  if (reply.status < 300) return { result: reply.body, code: null, reason: null };
  assert.match(reply.headers.get('content-type')!, /^application\/json/);
  assert.equal(reply.body.error.code, reply.status);
  return { result: null, code: reply.status, reason: reply.body.error.details[0].reason };
};

async function open(binding: string, operation: string, params: Record<string, unknown>): Promise<Response> {
  const isRpc = binding === 'JSON-RPC';
  const path = operation === 'SubscribeToTask' ? paths[operation]!(params)[1] : '/message:stream';
  const body = isRpc ? { jsonrpc: '2.0', id: 1, method: operation, params } : params;
  return world.open('POST', isRpc ? '/a2a' : `/a2a/http${path}`, { body });
}

/** Every event of a stream, to its end. */
async function eventsOf(binding: string, response: Response): Promise<Told[]> {
  assert.match(response.headers.get('content-type')!, /^text\/event-stream/);
  const events: Told[] = [];
  for await (const { data } of sse(response)) {
    if (binding === 'JSON-RPC') assert.deepEqual([data.jsonrpc, data.id], ['2.0', 1]);
    events.push(binding === 'JSON-RPC' ? data.result : data);
  }
  return events;
}

const bindings: [string, Ask][] = [
  ['JSON-RPC', askByRpc],
  ['HTTP+JSON', askByHttp],
];
const ended = 'TASK_STATE_COMPLETED';

for (const [binding, ask] of bindings) {
  const session = randomUUID().slice(0, 8);
  const said = (word: string, more = {}) => ({
    role: 'ROLE_USER',
    parts: [{ text: 'Make a task' }],
    messageId: `tck-${word}-${session}`,
    ...more,
  });
  const send = async (word: string, more = {}, configuration = {}): Promise<Told> => {
    const { result, code } = await ask('SendMessage', { message: said(word, more), configuration });
    assert.equal(code, null, word);
    return result.task ?? result.message;
  };
  const refused = async (operation: string, params: Record<string, unknown>, rpc: number, http: number) => {
    const { code, reason } = await ask(operation, params);
    assert.equal(code, binding === 'JSON-RPC' ? rpc : http, `${operation} ${JSON.stringify(params)}`);
    return reason;
  };

  test(`each word of the kit has its effect over ${binding}`, async () => {
    const made: [string, object][] = [
      ['artifact-text', { text: 'Generated text content', mediaType: 'text/plain' }],
      ['artifact-file', { raw: 'dGNr', filename: 'output.txt', mediaType: 'text/plain' }],
      [
        'artifact-file-url',
        { url: 'https://example.com/output.txt', filename: 'output.txt', mediaType: 'text/plain' },
      ],
      ['artifact-data', { data: { key: 'value', count: 42 }, mediaType: 'application/json' }],
    ];
    for (const [word, part] of made) {
      const task = await send(word);
      assert.equal(task.status.state, ended, word);
      assert.match(task.status.timestamp, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
      assert.deepEqual(task.artifacts[0].parts, [part], word);
      const keys = JSON.stringify(task).match(/"([a-z]+(_[a-z]+)+)":/g);
      assert.equal(keys, null, 'names are in camelCase');
    }
    const message = await send('message-response');
    assert.deepEqual(
      [message.role, message.parts],
      ['ROLE_AGENT', [{ text: 'Direct message response', mediaType: 'text/plain' }]],
    );
    assert.equal((await send('reject-task')).status.state, 'TASK_STATE_REJECTED');
    assert.equal((await send('auth-required')).status.state, 'TASK_STATE_AUTH_REQUIRED');
    // Fields that nobody knows, and extensions, do no harm.
    const { result } = await ask('SendMessage', {
      message: said('complete-task', { unknown: 1 }),
      extra: 42,
    });
    assert.equal(result.task.status.state, ended);
  });

  test(`a task that has ended stays as it is over ${binding}, and the same message makes the next one`, async () => {
    const first = await send('complete-task');
    const { id, contextId } = first;
    assert.equal((await ask('GetTask', { id })).result.id, id);
    assert.equal(await refused('CancelTask', { id }, -32002, 400), 'TASK_NOT_CANCELABLE');
    const next = await send('complete-task');
    assert.notEqual(next.id, id);
    assert.notEqual(next.contextId, contextId);
    const more = said('terminal', { taskId: id });
    assert.equal(await refused('SendMessage', { message: more }, -32004, 400), 'UNSUPPORTED_OPERATION');
    assert.equal(await refused('SubscribeToTask', { id }, -32004, 400), 'UNSUPPORTED_OPERATION');
    await refused('SendMessage', { message: { ...more, contextId: 'tck-wrong-context' } }, -32602, 400);
    const strange = `tck-nonexistent-${session}`;
    for (const operation of ['GetTask', 'CancelTask', 'SubscribeToTask'])
      assert.equal(await refused(operation, { id: strange }, -32001, 404), 'TASK_NOT_FOUND', operation);
    assert.equal(
      await refused('SendMessage', { message: said('multi-004', { taskId: strange }) }, -32001, 404),
      'TASK_NOT_FOUND',
    );
    const mine = await send('complete-task', { contextId: `tck-context-${session}` });
    assert.equal(mine.contextId, `tck-context-${session}`);
  });

  test(`a task that waits goes on with a message that names it alone, for all who watch, over ${binding}`, async () => {
    const task = await send('input-required');
    assert.equal(task.status.state, 'TASK_STATE_INPUT_REQUIRED');
    const streams = await Promise.all([1, 2, 3].map(() => open(binding, 'SubscribeToTask', { id: task.id })));
    await streams.pop()!.body!.cancel();
    const watched = Promise.all(streams.map((stream) => eventsOf(binding, stream)));
    const done = await send('complete-task', { taskId: task.id });
    assert.deepEqual([done.id, done.contextId, done.status.state], [task.id, task.contextId, ended]);
    const [one, other] = await watched;
    assert.deepEqual(one, other);
    assert.ok(one!.length > 1 && one![0].task.id === task.id);
    assert.equal(one!.at(-1).statusUpdate.status.state, ended);
    for (const [historyLength, most] of [
      ['0', 0],
      ['1', 1],
      ['10', 3],
    ] as const) {
      const { result } = await ask('GetTask', { id: task.id, historyLength: Number(historyLength) });
      assert.equal((result.history ?? []).length, most, historyLength);
      if (most > 1)
        assert.deepEqual(
          result.history.map(({ role }: Told) => role),
          ['ROLE_USER', 'ROLE_AGENT', 'ROLE_USER'],
        );
    }
    const waiting = await send('input-required');
    const bare = await send('complete-task', { taskId: waiting.id }, { historyLength: 0 });
    assert.deepEqual(bare.history ?? [], []);
    const cancelled = (await ask('CancelTask', { id: (await send('input-required')).id })).result;
    assert.equal(cancelled.status.state, 'TASK_STATE_CANCELED');
  });

  test(`a send waits unless it is told not to, and one message under one id may be sent both ways, over ${binding}`, async () => {
    const waited = await send('delayed-complete', {}, { returnImmediately: false });
    assert.equal(waited.status.state, ended);
    const at = await send('delayed-complete', {}, { returnImmediately: true });
    assert.match(at.status.state, /SUBMITTED|WORKING/);
    await ask('CancelTask', { id: at.id });
  });

  test(`a stream begins with its task and ends with it over ${binding}`, async () => {
    for (const [word, texts] of [
      ['stream-001', ['Stream hello from TCK']],
      ['stream-002', []],
      ['stream-003', ['Stream task lifecycle']],
      ['stream-ordering-001', ['Ordered output']],
      ['stream-artifact-text', ['Streamed text content']],
      ['stream-artifact-file', ['dGNr']],
      ['stream-artifact-chunked', ['chunk-1 ', 'chunk-2']],
    ] as [string, string[]][]) {
      const events = await eventsOf(
        binding,
        await open(binding, 'SendStreamingMessage', { message: said(word) }),
      );
      assert.ok(events[0].task.id, word);
      const { artifacts = [] } = events[0].task;
      const parts = [
        ...artifacts,
        ...events.flatMap((event) => event.artifactUpdate?.artifact ?? []),
      ].flatMap((artifact: Told) => artifact.parts);
      assert.deepEqual(
        parts.map((part: Told) => part.text ?? part.raw),
        texts,
        word,
      );
      assert.equal(events.at(-1).statusUpdate.status.state, ended, word);
    }
  });

  test(`configurations of push notifications are kept, listed and deleted, of a task that has ended too, over ${binding}`, async () => {
    const { id: taskId } = await send('complete-task');
    const config = { id: `tck-push-${session}`, url: 'https://example.com/tck-push-webhook' };
    const named = { taskId, id: config.id };
    const made = await ask('CreateTaskPushNotificationConfig', { taskId, ...config });
    assert.deepEqual([made.result?.id, made.result?.url], [config.id, config.url]);
    assert.equal((await ask('GetTaskPushNotificationConfig', named)).result.url, config.url);
    const listed = await ask('ListTaskPushNotificationConfigs', { taskId });
    assert.deepEqual(
      listed.result.configs.map(({ id }: Told) => id),
      [config.id],
    );
    assert.notEqual((await ask('GetTaskPushNotificationConfig', { taskId, id: 'tck-none' })).code, null);
    for (let times = 0; times < 2; times += 1)
      assert.equal((await ask('DeleteTaskPushNotificationConfig', named)).code, null);
    assert.notEqual((await ask('GetTaskPushNotificationConfig', named)).code, null);
  });

  test(`lists have the newest first, no artifacts unless asked for, and say where they end, over ${binding}`, async () => {
    const contextId = `tck-list-${session}`;
    const ids: string[] = [];
    for (let count = 0; count < 3; count += 1)
      ids.unshift((await send('artifact-text', { contextId, messageId: `tck-artifact-text-${count}` })).id);
    const { result: page } = await ask('ListTasks', { contextId, pageSize: 2 });
    assert.deepEqual([page.pageSize, page.totalSize, page.tasks.length], [2, 3, 2]);
    assert.ok(page.tasks.every((task: Told) => !('artifacts' in task)));
    const { result: rest } = await ask('ListTasks', {
      contextId,
      pageSize: 2,
      pageToken: page.nextPageToken,
    });
    assert.equal(rest.nextPageToken, '');
    assert.deepEqual(
      [...page.tasks, ...rest.tasks].map(({ id }: Told) => id),
      ids,
    );
    const { result: whole } = await ask('ListTasks', { contextId, includeArtifacts: true });
    assert.ok(whole.tasks.every((task: Told) => task.artifacts.length === 1));
  });
}

test('the word for subscribing anew keeps its task at work for four seconds, over each binding', async () => {
  await Promise.all(
    bindings.map(async ([binding], index) => {
      const message = {
        role: 'ROLE_USER',
        parts: [{ text: 'Make a task' }],
        messageId: `test-resubscribe-message-id-${index}`,
      };
      const stream = await open(binding, 'SendStreamingMessage', { message });
      const [first, ...rest] = await eventsOf(binding, stream);
      assert.equal(rest.at(-1).statusUpdate.status.state, ended, binding);
      // A machine with other work makes it longer, never shorter.
      const log = await logOf(world.service, { runId: first.task.id });
      const atOf = (type: string) => Date.parse(log.find((event) => event.type === type)!.at);
      const workedMs = atOf('run.completed') - atOf('run.started');
      assert.ok(workedMs >= 4_000, `${binding}: ${workedMs} ms`);
    }),
  );
});

test('a client that says no version finds the interfaces of 1.0 first, and a card without a default value that a signature could be read differently by', async () => {
  const { body: card } = await world.request('GET', '/.well-known/agent-card.json', {
    key: null,
    headers: { 'a2a-version': '' },
  });
  assert.deepEqual(
    card.supportedInterfaces
      .slice(0, 2)
      .map(({ protocolBinding, protocolVersion }: Told) => [protocolBinding, protocolVersion]),
    [
      ['JSONRPC', '1.0'],
      ['HTTP+JSON', '1.0'],
    ],
  );
  const current = (await world.request('GET', '/.well-known/agent-card.json', { key: null })).body;
  for (const one of [card, current]) {
    for (const field of ['name', 'description', 'version', 'capabilities', 'defaultInputModes', 'skills'])
      assert.ok(one[field], field);
    assert.ok(one.capabilities.extendedAgentCard, 'what is there is declared in either shape');
    // 0.3 alone knows this one, and it says nothing with an empty list.
    const { security: _, ...known } = one;
    assert.doesNotMatch(JSON.stringify(known), /:""|:\[\]|:0[,}]|:false/);
    for (const { protected: head } of one.signatures) {
      const { alg, kid } = JSON.parse(Buffer.from(head, 'base64url').toString());
      assert.ok(alg && kid);
    }
  }
});
