import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, test } from 'node:test';
import type { A2aWorld, RequestOptions } from '../support/a2a-world.ts';
import { a2aWorld, message, sse } from '../support/a2a-world.ts';
import { wrongTypes } from '../support/a2a-wrong-types.ts';
import type { Pushed } from '../support/scenario.ts';
import { scriptedAgent } from '../support/scripted-agent.ts';
import { until } from '../support/until.ts';

let world: A2aWorld;
let other: Pushed;

before(async () => {
  world = await a2aWorld();
  other = await world.shop.agent(scriptedAgent);
});
after(() => world.close());

const sendRest = (body: unknown, options: RequestOptions = {}) =>
  world.request('POST', '/a2a/http/message:send', { ...options, body });

/** What the events of a stream hold, to its end. */
async function streamed(path: string, body: Record<string, unknown>) {
  const isRpc = path === '/a2a';
  const whole = isRpc ? { jsonrpc: '2.0', id: 1, ...body } : body;
  const told = [];
  for await (const { data } of sse(await world.open('POST', path, { body: whole })))
    told.push(isRpc ? data.result : data);
  return told;
}

async function count(): Promise<number> {
  return (await world.rpc('ListTasks', {})).result.totalSize as number;
}

test('what is wrong with a request is told before anything is done, in the form of its binding', async () => {
  const before = await count();
  const wrong: [unknown, number, string][] = [
    [{}, -32602, 'message'],
    [{ message: message('x', { messageId: '' }) }, -32602, 'message.messageId'],
    [{ message: message('x', { role: undefined }) }, -32602, 'message.role'],
    [{ message: message('x', { role: 'ROLE_AGENT' }) }, -32602, 'message.role'],
    [{ message: message('x', { parts: [] }) }, -32602, 'message.parts'],
    [{ message: message('x', { parts: [{}] }) }, -32602, 'message.parts[0]'],
    [{ message: message('x', { parts: [{ text: 'a', url: 'https://b' }] }) }, -32602, 'message.parts[0]'],
    ...['***', 'dGNrx', 'dG=Nr', '===='].map((raw): [unknown, number, string] => [
      { message: message('x', { parts: [{ raw }] }) },
      -32602,
      'message.parts[0].raw',
    ]),
    [{ message: message('x', { parts: [{ text: 'a' }, { data: null }] }) }, -32602, 'message.parts[1].data'],
    [{ message: message('x'), configuration: { historyLength: -1 } }, -32602, 'configuration.historyLength'],
    [
      { message: message('x', { parts: [{ raw: 'dGNr', mediaType: 'application/x-none' }] }) },
      -32005,
      'mediaType',
    ],
    [{ message: message('x', { taskId: randomUUID() }) }, -32001, 'task'],
    [{ message: message('x\u0000') }, -32602, 'U+0000'],
  ];
  for (const [params, code, word] of wrong) {
    const { error } = await world.rpc('SendMessage', params);
    assert.equal(error?.code, code, JSON.stringify(params));
    assert.ok(error.message.includes(word), error.message);
    assert.equal(error.data[0]['@type'], 'type.googleapis.com/google.rpc.ErrorInfo');
    const rest = await sendRest(params);
    assert.equal(rest.status, code === -32001 ? 404 : 400, rest.text);
    assert.equal(rest.body.error.code, rest.status);
    assert.equal(rest.body.error.details[0].reason, error.data[0].reason);
  }
  for (const query of [
    'pageSize=0',
    'pageSize=101',
    'pageSize=x',
    'pageToken=nonsense',
    'status=DONE',
    'historyLength=-1',
    'statusTimestampAfter=yesterday',
  ])
    assert.equal((await world.request('GET', `/a2a/http/tasks?${query}`)).status, 400, query);
  assert.equal(await count(), before);
});

test('a value of another type is told as that in every method and version, and not as an error of ours', async () => {
  const before = await count();
  for (const [version, cases] of Object.entries(wrongTypes()))
    for (const [method, params, path] of cases) {
      const body = { jsonrpc: '2.0', id: 'mine', method, params };
      const reply = await world.request('POST', '/a2a', { body, headers: { 'a2a-version': version } });
      const told = `${method} ${JSON.stringify(params)}: ${reply.text}`;
      assert.deepEqual([reply.status, reply.body.id, reply.body.error?.code], [200, 'mine', -32602], told);
      assert.ok(reply.body.error.message.startsWith(path), told);
    }
  assert.equal(await count(), before);
});

test('whatever is sent, the answer is JSON: no body, no JSON, a list, a large body, a wrong type, a wrong path or method', async () => {
  const big = JSON.stringify({ message: message('x'.repeat(7 * 1024 * 1024)) });
  const cases: [string, string, RequestOptions, number, number | null][] = [
    ['POST', '/a2a', { body: '{"jsonrpc":' }, 200, -32700],
    ['POST', '/a2a', { body: '[]' }, 200, -32600],
    ['POST', '/a2a', { body: '"text"' }, 200, -32600],
    ['POST', '/a2a', {}, 200, -32600],
    ['POST', '/a2a', { body: { jsonrpc: '1.0', id: 1, method: 'GetTask' } }, 200, -32600],
    ['POST', '/a2a', { body: { jsonrpc: '2.0', id: {}, method: 'GetTask' } }, 200, -32600],
    ['POST', '/a2a', { body: { jsonrpc: '2.0', id: 1, method: 'NoSuch', params: {} } }, 200, -32601],
    ['POST', '/a2a', { body: { jsonrpc: '2.0', id: 1, method: 'constructor', params: {} } }, 200, -32601],
    ['POST', '/a2a', { body: { jsonrpc: '2.0', id: 1, method: 'GetTask', params: [] } }, 200, -32602],
    ['POST', '/a2a', { body: big }, 413, -32600],
    ['POST', '/a2a', { body: 'x', headers: { 'content-type': 'text/plain' } }, 415, -32005],
    ['GET', '/a2a', {}, 405, -32601],
    ['POST', '/a2a', { key: null, body: {} }, 401, -32000],
    ['POST', '/a2a/http/message:send', { body: big }, 413, null],
    ['POST', '/a2a/http/message:send', { body: '{' }, 400, null],
    ['POST', '/a2a/http/message:send', { body: '[]' }, 400, null],
    ['POST', '/a2a/http/message:send', { body: 'x', headers: { 'content-type': 'text/plain' } }, 415, null],
    ['GET', '/a2a/http/message:send', {}, 405, null],
    ['GET', '/a2a/http/nothing', {}, 404, null],
    ['GET', '/a2a/http/tasks', { key: null }, 401, null],
    ['GET', '/a2a/http/tasks', { key: 'svc_live_wrong' }, 401, null],
    ['POST', '/.well-known/agent-card.json', {}, 405, null],
  ];
  for (const [method, path, options, status, code] of cases) {
    const reply = await world.request(method, path, options);
    const told = `${method} ${path} ${String(options.body).slice(0, 60)}: ${reply.text.slice(0, 300)}`;
    assert.equal(reply.status, status, told);
    assert.match(reply.headers.get('content-type')!, /^application\/json/, told);
    if (code === null) assert.equal(reply.body.error.code, status, told);
    else assert.equal(reply.body.error.code, code, told);
    assert.doesNotMatch(reply.text, /\.ts:|node_modules|at async/, told);
  }
});

test('an error of JSON-RPC has the id of its request wherever that can be read, and one over HTTP of 0.3 the shape of 0.3', async () => {
  const deep = `${'['.repeat(600)}${']'.repeat(600)}`;
  for (const [body, code] of [
    ['{"jsonrpc":"2.0","id":"mine","method":"GetTask","params":{"id":"\\u0000"}}', -32602],
    ['{"jsonrpc":"2.0","id":"mine","method":"GetTask","params":{"id":"x","metadata":{"n":1e400}}}', -32602],
    ['{"jsonrpc":"2.0","id":"mine","method":"GetTask","params":{"id":"\\ud800"}}', -32602],
    [`{"jsonrpc":"2.0","id":"mine","method":"GetTask","params":{"id":${deep}}}`, -32602],
    ['{"jsonrpc":"1.0","id":"mine","method":"GetTask","params":{}}', -32600],
    ['{"jsonrpc":"2.0","id":"mine"}', -32600],
  ] as const)
    for (const version of ['1.0', '0.3']) {
      const reply = await world.request('POST', '/a2a', { body, headers: { 'a2a-version': version } });
      assert.deepEqual([reply.body.id, reply.body.error.code], ['mine', code], `${version} ${body}`);
    }
  for (const [path, version, isOld] of [
    ['/a2a/http/v1/tasks/x', '0.3', true],
    ['/a2a/http/v1/tasks/x', '', true],
    ['/a2a/http/v1/tasks/x?A2A-Version=0.3', '', true],
    ['/a2a/http/tasks/x', '1.0', false],
    ['/a2a/http/v1/tasks/x', '1.0', false],
    ['/a2a/http/v1/tasks/x', '7.0', false],
  ] as const) {
    const reply = await world.request('GET', path, { key: null, headers: { 'a2a-version': version } });
    assert.equal(reply.status, 401);
    assert.match(reply.headers.get('www-authenticate')!, /^Bearer/);
    const { code, message, error } = reply.body;
    if (isOld) assert.ok(Number.isInteger(code) && message !== '' && error === undefined, reply.text);
    else assert.equal(error.status, 'UNAUTHENTICATED', reply.text);
  }
});

test('versions: by header or query, none is 0.3, a patch number counts for nothing, another is refused', async () => {
  const get = (headers: Record<string, string>, query = '') =>
    world.request('POST', `/a2a${query}`, {
      headers,
      body: { jsonrpc: '2.0', id: 7, method: 'GetTask', params: { id: randomUUID() } },
    });
  const codeOf = async (headers: Record<string, string>, query = '') =>
    (await get(headers, query)).body.error.code;
  assert.equal(await codeOf({ 'a2a-version': '1.0' }), -32001);
  assert.equal(await codeOf({ 'a2a-version': '1.0.7' }), -32001);
  assert.equal(await codeOf({ 'a2a-version': '' }, '?A2A-Version=1.0'), -32001);
  assert.equal(await codeOf({ 'a2a-version': '' }), -32601);
  assert.equal(await codeOf({ 'a2a-version': '99.0' }), -32009);
  assert.equal((await get({ 'a2a-version': '99.0' })).body.id, 7);
  const rest = await world.request('GET', '/a2a/http/tasks', { headers: { 'a2a-version': '99.0' } });
  assert.equal(rest.status, 400);
  assert.equal(rest.body.error.details[0].reason, 'VERSION_NOT_SUPPORTED');
});

test('contexts: an id of the client is kept, joins its messages, and never becomes another', async () => {
  const contextId = `client's own ${randomUUID()}`;
  const first = (await world.rpc('SendMessage', { message: message('one', { contextId }) })).result.task;
  const second = (await sendRest({ message: message('two', { contextId }) })).body.task;
  assert.deepEqual([first.contextId, second.contextId], [contextId, contextId]);
  const listed = (await world.rpc('ListTasks', { contextId, historyLength: 5 })).result;
  assert.deepEqual(
    listed.tasks.map((task: { id: string }) => task.id),
    [second.id, first.id],
  );
  const runs = await Promise.all([first, second].map(({ id }) => world.service.api('GET', `/v1/runs/${id}`)));
  const [one, two] = runs.map(({ body }) => body.run.conversationId as string);
  assert.equal(one, two);
  assert.equal((await world.rpc('ListTasks', { contextId: one })).result.totalSize, 2);
  const asked = (await world.rpc('SendMessage', { message: message('ask') })).result.task;
  const mismatch = message('blue', { taskId: asked.id, contextId });
  assert.equal((await world.rpc('SendMessage', { message: mismatch })).error.code, -32602);
  assert.equal(
    (await world.rpc('GetTask', { id: asked.id })).result.status.state,
    'TASK_STATE_INPUT_REQUIRED',
  );
  const inferred = (await sendRest({ message: message('blue', { taskId: asked.id }) })).body.task;
  assert.deepEqual([inferred.contextId, inferred.status.state], [asked.contextId, 'TASK_STATE_COMPLETED']);
  assert.equal((await world.rpc('ListTasks', { contextId: 'never seen' })).result.totalSize, 0);
  const uuid = randomUUID();
  assert.equal(
    (await world.rpc('SendMessage', { message: message('x', { contextId: uuid }) })).result.task.contextId,
    uuid,
  );
});

test('contexts: one whose conversation was deleted begins anew by its id, also when it was in use a moment before', async () => {
  const conversationOf = async (contextId: string) => {
    const { task } = (await world.rpc('SendMessage', { message: message('one', { contextId }) })).result;
    assert.equal(task.contextId, contextId);
    const { body } = await world.service.api('GET', `/v1/runs/${task.id}`);
    return body.run.conversationId as string;
  };
  const begun = (await world.rpc('SendMessage', { message: message('one') })).result.task.contextId as string;
  for (const contextId of [`a name ${randomUUID()}`, randomUUID(), begun]) {
    const conversations = new Set<string>();
    for (let round = 0; round < 3; round += 1) {
      const conversationId = await conversationOf(contextId);
      assert.equal(await conversationOf(contextId), conversationId);
      conversations.add(conversationId);
      const deleted = await world.service.api('DELETE', `/v1/conversations/${conversationId}`);
      assert.equal(deleted.status, 204, deleted.text);
    }
    assert.equal(conversations.size, 3);
  }
});

test('a permission is answered by the words of its options, and anything else changes nothing', async () => {
  const asked = (await world.rpc('SendMessage', { message: message('permission') })).result.task;
  const answer = (text: string) => world.rpc('SendMessage', { message: message(text, { taskId: asked.id }) });
  assert.equal((await answer('perhaps')).error.code, -32602);
  assert.equal((await answer('Allow')).result.task.artifacts[0].parts[0].text, 'Then yes.');
});

test('a refusal is a rejected task with its reason, and lists tell it from a failure', async () => {
  const contextId = randomUUID();
  const task = (await world.rpc('SendMessage', { message: message('refuse', { contextId }) })).result.task;
  assert.equal(task.status.state, 'TASK_STATE_REJECTED');
  assert.equal(task.status.message.parts[0].text, 'I do not do that.');
  const of = async (status: string) => (await world.rpc('ListTasks', { contextId, status })).result.totalSize;
  assert.deepEqual([await of('TASK_STATE_REJECTED'), await of('TASK_STATE_FAILED')], [1, 0]);
});

test('the same message again is one task until the client names the task; then it is a new one', async () => {
  const again = message('once');
  const first = (await world.rpc('SendMessage', { message: again })).result.task;
  const repeated = (await world.rpc('SendMessage', { message: again })).result.task;
  assert.equal(repeated.id, first.id);
  assert.deepEqual(repeated, first);
  const changed = (await world.rpc('SendMessage', { message: { ...again, parts: [{ text: 'else' }] } }))
    .result.task;
  assert.notEqual(changed.id, first.id);
  await world.rpc('GetTask', { id: first.id });
  assert.notEqual((await world.rpc('SendMessage', { message: again })).result.task.id, first.id);
});

test('a message is one task however its answer is asked for, but for what returns at once', async () => {
  const contextId = randomUUID();
  const data = { one: 1, two: { three: 3, four: 4 } };
  const again = message('once', { contextId, parts: [{ text: 'once' }, { data }] });
  const ordered = { ...again, parts: [{ text: 'once' }, { data: { two: { four: 4, three: 3 }, one: 1 } }] };
  const first = (await world.rpc('SendMessage', { message: again })).result.task;
  assert.equal(first.status.state, 'TASK_STATE_COMPLETED');
  assert.ok(first.history.length > 0);
  const bare = { message: again, configuration: { historyLength: 0 } };
  const short = (await world.rpc('SendMessage', bare)).result.task;
  assert.deepEqual([short.id, short.history ?? []], [first.id, []]);
  const waiting = { message: again, configuration: { returnImmediately: false } };
  assert.equal((await world.rpc('SendMessage', waiting)).result.task.id, first.id);
  assert.equal((await sendRest({ message: ordered })).body.task.id, first.id);
  for (const configuration of [{}, { returnImmediately: true }]) {
    const streams = [
      await streamed('/a2a', { method: 'SendStreamingMessage', params: { message: again, configuration } }),
      await streamed('/a2a/http/message:stream', { message: again, configuration }),
    ];
    for (const events of streams) {
      assert.equal(events.length, 1);
      assert.deepEqual([events[0].task.id, events[0].task.status.state], [first.id, 'TASK_STATE_COMPLETED']);
    }
  }
  const at = { message: again, configuration: { returnImmediately: true } };
  const immediate = (await world.rpc('SendMessage', at)).result.task.id;
  assert.notEqual(immediate, first.id);
  const once = { message: ordered, configuration: { returnImmediately: true, historyLength: 0 } };
  assert.equal((await sendRest(once)).body.task.id, immediate);
  assert.equal((await world.rpc('SendMessage', { message: again })).result.task.id, first.id);
  assert.equal((await world.rpc('ListTasks', { contextId })).result.totalSize, 2);
});

test('a send that was cut and is streamed then goes on as the same task', async () => {
  const contextId = randomUUID();
  const again = message('hold', { contextId });
  const cut = new AbortController();
  const sent = world.open('POST', '/a2a', {
    body: { jsonrpc: '2.0', id: 1, method: 'SendMessage', params: { message: again } },
    signal: cut.signal,
  });
  sent.catch(() => {});
  const list = async () => (await world.rpc('ListTasks', { contextId })).result;
  await until('the task is there', async () => (await list()).totalSize === 1);
  cut.abort();
  await assert.rejects(sent);
  const stream = await world.open('POST', '/a2a/http/message:stream', { body: { message: again } });
  const events = sse(stream);
  const { task } = (await events.next()).value!.data;
  assert.equal(task.id, (await list()).tasks[0].id);
  assert.match(task.status.state, /SUBMITTED|WORKING/);
  await world.rpc('CancelTask', { id: task.id });
  let last;
  for await (const { data } of events) last = data;
  assert.equal(last.statusUpdate.status.state, 'TASK_STATE_CANCELED');
  assert.equal((await list()).totalSize, 1);
});

test('both bindings and REST tell the same of a task, whichever it began by, and lists page without a gap', async () => {
  const contextId = randomUUID();
  const viaRpc = (await world.rpc('SendMessage', { message: message('a', { contextId }) })).result.task;
  const viaHttp = (await sendRest({ message: message('artifacts', { contextId }) })).body.task;
  const said = await world.agent.say('by REST');
  for (const id of [viaRpc.id, viaHttp.id, said.runId]) {
    const rest = (await world.request('GET', `/a2a/http/tasks/${id}`)).body;
    assert.deepEqual((await world.rpc('GetTask', { id })).result, rest);
    const bare = (await world.request('GET', `/a2a/http/tasks/${id}?historyLength=0`)).body;
    assert.equal(bare.history, undefined);
  }
  const seen: string[] = [];
  let pageToken = '';
  do {
    const page = (await world.request('GET', `/a2a/http/tasks?pageSize=3&pageToken=${pageToken}`)).body;
    assert.deepEqual(Object.keys(page).sort(), ['nextPageToken', 'pageSize', 'tasks', 'totalSize']);
    for (const task of page.tasks) {
      assert.equal(task.artifacts, undefined);
      seen.push(task.id);
    }
    pageToken = page.nextPageToken;
    if (pageToken === '') assert.equal(seen.length, page.totalSize);
  } while (pageToken !== '');
  assert.equal(new Set(seen).size, seen.length);
  const whole = (await world.rpc('ListTasks', { pageSize: 100 })).result.tasks as {
    id: string;
    status: { timestamp: string };
  }[];
  assert.deepEqual(
    seen,
    whole.map(({ id }) => id),
  );
  const times = whole.map(({ status }) => status.timestamp);
  assert.deepEqual(times, times.toSorted().toReversed());
  const since = times[1]!;
  const recent = (await world.rpc('ListTasks', { statusTimestampAfter: since })).result.tasks as {
    id: string;
  }[];
  assert.deepEqual(recent.map(({ id }) => id).slice(0, 2), seen.slice(0, 2));
  const withArtifacts = (await world.rpc('ListTasks', { contextId, includeArtifacts: true })).result.tasks;
  assert.deepEqual(withArtifacts[0].artifacts, viaHttp.artifacts);
});

test('nothing of an agent is found at the host of another one, nor with a key of another one', async () => {
  const task = (await world.rpc('SendMessage', { message: message('mine') })).result.task;
  const minted = await world.service.api('POST', `/v1/agents/${other.id}/api-keys`, { name: 'theirs' });
  const theirs = minted.body.value as string;
  assert.equal((await world.request('POST', '/a2a', { key: theirs, body: {} })).status, 404);
  assert.equal((await world.request('GET', '/a2a/http/tasks', { key: theirs })).status, 404);
  const unknown = randomUUID();
  const hook = { url: 'https://example.com/x' };
  const operations: [string, (id: string) => Record<string, unknown>][] = [
    ['GetTask', (id) => ({ id })],
    ['CancelTask', (id) => ({ id })],
    ['SubscribeToTask', (id) => ({ id })],
    ['SendMessage', (taskId) => ({ message: message('x', { taskId }) })],
    ['CreateTaskPushNotificationConfig', (taskId) => ({ taskId, ...hook })],
    ['GetTaskPushNotificationConfig', (taskId) => ({ taskId, id: 'a' })],
    ['ListTaskPushNotificationConfigs', (taskId) => ({ taskId })],
    ['DeleteTaskPushNotificationConfig', (taskId) => ({ taskId, id: 'a' })],
  ];
  const origin = world.originOf(other.id);
  for (const key of [theirs, world.service.key]) {
    for (const [method, params] of operations) {
      const foreign = await world.rpc(method, params(task.id), { key, origin });
      assert.equal(foreign.error?.code, -32001, `${method}: ${JSON.stringify(foreign)}`);
      assert.deepEqual(foreign, await world.rpc(method, params(unknown), { key, origin }), method);
    }
    const theirList = await world.rpc('ListTasks', { contextId: task.contextId }, { key, origin });
    assert.ok(theirList.result.tasks.every(({ id }: { id: string }) => id !== task.id));
    const theirOwn = (
      await world.rpc(
        'SendMessage',
        { message: message('x', { contextId: task.contextId }) },
        { key, origin },
      )
    ).result.task;
    assert.equal((await world.rpc('ListTasks', { contextId: task.contextId })).result.totalSize, 1);
    assert.equal((await world.rpc('GetTask', { id: theirOwn.id })).error.code, -32001);
  }
});

test('an authorization: the task says what it needs, its stream stays open, and a follow-up message reaches the agent', async () => {
  const stream = (body: unknown) => world.open('POST', '/a2a/http/message:stream', { body });
  const reader = sse(await stream({ message: message('access') }));
  const seen: { state: string; text: string | undefined }[] = [];
  let id = '';
  const read = async (until: string | null) => {
    for (let next = await reader.next(); !next.done; next = await reader.next()) {
      const { task, statusUpdate } = next.value.data;
      id = task?.id ?? id;
      const status = (task ?? statusUpdate)?.status;
      if (status) seen.push({ state: status.state, text: status.message?.parts?.[0]?.text });
      if (status?.state === until) return;
    }
  };
  await read('TASK_STATE_AUTH_REQUIRED');
  assert.equal(seen.at(-1)!.text, 'Open the door for me.');
  const ids = async (status: string) =>
    (await world.rpc('ListTasks', { status, pageSize: 100 })).result.tasks.map(
      (task: { id: string }) => task.id,
    );
  assert.deepEqual(await ids('TASK_STATE_AUTH_REQUIRED'), [id]);
  assert.ok(!(await ids('TASK_STATE_INPUT_REQUIRED')).includes(id));

  const followUp = message('it is open', { taskId: id, metadata: { by: 'the keeper' } });
  const ended = (await world.rpc('SendMessage', { message: followUp })).result.task;
  assert.equal(ended.status.state, 'TASK_STATE_COMPLETED');
  assert.deepEqual(JSON.parse(ended.artifacts[0].parts[0].text), {
    said: 'it is open',
    message: { source: 'a2a', clientMessageId: followUp['messageId'], metadata: { by: 'the keeper' } },
  });
  assert.equal(ended.history.at(-1).messageId, followUp['messageId']);
  await read(null);
  assert.deepEqual(
    seen.slice(-3).map(({ state }) => state),
    ['TASK_STATE_AUTH_REQUIRED', 'TASK_STATE_WORKING', 'TASK_STATE_COMPLETED'],
  );
  assert.deepEqual(await ids('TASK_STATE_AUTH_REQUIRED'), []);
});

test('streams: several readers get the same, one that leaves disturbs nobody, and each ends with the task', async () => {
  const { task } = (await world.rpc('SendMessage', { message: message('ask') })).result;
  const open = (method: string) =>
    world.fetch(`${world.origin}/a2a/http/tasks/${task.id}:subscribe`, {
      method,
      headers: { 'a2a-version': '1.0', authorization: `Bearer ${world.service.key}` },
    });
  const readers = [await open('GET'), await open('POST')].map((response) => sse(response));
  const leaver = sse(await open('POST'));
  assert.ok((await leaver.next()).value!.data.task);
  await leaver.return(undefined);
  const firsts = await Promise.all(readers.map((reader) => reader.next()));
  assert.ok(firsts.every(({ value }) => value!.data.task.status.state === 'TASK_STATE_INPUT_REQUIRED'));
  await world.rpc('SendMessage', { message: message('green', { taskId: task.id }) });
  const rests = await Promise.all(
    readers.map(async (reader) => {
      const seen: unknown[] = [];
      for await (const { data } of reader) seen.push(data);
      return seen;
    }),
  );
  assert.deepEqual(rests[0], rests[1]);
  assert.equal(
    (rests[0]!.at(-1) as { statusUpdate: { status: { state: string } } }).statusUpdate.status.state,
    'TASK_STATE_COMPLETED',
  );
  assert.equal((await world.rpc('SubscribeToTask', { id: task.id })).error.code, -32004);
});
