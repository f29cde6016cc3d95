import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { connect } from 'node:net';
import { test } from 'node:test';
import { SendMessageRequest, Task } from '@a2a-js/sdk';
import { status as codes } from '@grpc/grpc-js';
import { grpcPort, grpcWire } from './a2a-grpc.ts';
import type { A2aWorld } from './a2a-world.ts';
import { message } from './a2a-world.ts';
import { message03, proto03 } from './host-operations.ts';
import { until } from './until.ts';

// oxlint-disable-next-line no-explicit-any -- tests read into answers of all operations
type Told = any;

const bindings = ['JSON-RPC', 'HTTP+JSON', 'gRPC'] as const;
type Binding = (typeof bindings)[number];

/** What no client of a kit shows: how requests and answers look on the wire of each binding. The world serves gRPC too. */
export function wireTests(worldOf: () => A2aWorld): void {
  const octets = { 'content-type': 'application/octet-stream' };

  async function overGrpc<T>(work: (wire: ReturnType<typeof grpcWire>) => Promise<T>): Promise<T> {
    const card = await worldOf().request('GET', '/.well-known/agent-card.json');
    const wire = grpcWire(grpcPort(card.body));
    try {
      return await work(wire);
    } finally {
      wire.close();
    }
  }

  /** A send by a binding; the task, or the reason of its refusal. */
  async function send(binding: Binding, said: Told, key = worldOf().service.key): Promise<Told> {
    const world = worldOf();
    if (binding === 'JSON-RPC') {
      const { result, error } = await world.rpc('SendMessage', { message: said }, { key });
      return error ? { refused: error.data[0].reason } : result.task;
    }
    if (binding === 'HTTP+JSON') {
      const { body } = await world.request('POST', '/a2a/http/message:send', {
        key,
        body: { message: said },
      });
      return body.error ? { refused: body.error.details[0].reason } : body.task;
    }
    return overGrpc(async (wire) => {
      const request = SendMessageRequest.fromJSON({ message: said });
      const { code, reason, messages } = await wire.call({
        method: 'SendMessage',
        request,
        agentId: world.agent.id,
        key,
      });
      return code === codes.OK ? Task.toJSON(messages[0].payload.value) : { refused: reason };
    });
  }

  /** A page of tasks by a binding: its tasks and the token of the next, or the reason of its refusal. */
  async function page(binding: Binding, params: Record<string, Told>): Promise<Told> {
    const world = worldOf();
    if (binding === 'JSON-RPC') {
      const { result, error } = await world.rpc('ListTasks', params);
      return error ? { refused: error.code } : result;
    }
    if (binding === 'HTTP+JSON') {
      const { status, body } = await world.request('GET', `/a2a/http/tasks?${new URLSearchParams(params)}`);
      return body.error ? { refused: status } : body;
    }
    return overGrpc(async (wire) => {
      const request = { tenant: '', contextId: '', status: 0, pageToken: '', ...params };
      const key = world.service.key;
      const asked = { method: 'ListTasks', request, agentId: world.agent.id, key };
      const { code, messages } = await wire.call(asked);
      return code === codes.OK ? messages[0] : { refused: code };
    });
  }

  test('the version of a request is told by the query of every binding over HTTP, and a header wins', async () => {
    const world = worldOf();
    const id = randomUUID();
    const ask = async (method: string, path: string, body?: unknown, version = '') => {
      const reply = await world.request(method, path, { body, headers: { 'a2a-version': version } });
      const { error = reply.body } = reply.body ?? {};
      return `${reply.status} ${error?.details?.[0].reason ?? error?.data?.[0].reason ?? error?.code ?? ''}`;
    };
    const rpc = (method: string, params: unknown) => ({ jsonrpc: '2.0', id: 1, method, params });
    const http = '/a2a/http';
    for (const [method, path, body, told] of [
      ['POST', '/a2a?A2A-Version=1.0', rpc('GetTask', { id }), '200 TASK_NOT_FOUND'],
      ['POST', '/a2a?A2A-Version=0.3', rpc('tasks/get', { id }), '200 -32001'],
      ['POST', '/a2a?A2A-Version=1.0', rpc('SubscribeToTask', { id }), '200 TASK_NOT_FOUND'],
      ['GET', `${http}/tasks/${id}?A2A-Version=1.0.3`, undefined, '404 TASK_NOT_FOUND'],
      ['GET', `${http}/tasks?pageSize=1&A2A-Version=1.0`, undefined, '200 '],
      ['GET', `${http}/tasks/${id}:subscribe?A2A-Version=1.0`, undefined, '404 TASK_NOT_FOUND'],
      ['POST', `${http}/tasks/${id}:cancel?A2A-Version=1.0`, {}, '404 TASK_NOT_FOUND'],
      ['POST', `${http}/message:send?A2A-Version=1.0`, { message: message('x') }, '200 '],
      ['POST', `${http}/message:stream?A2A-Version=1.0`, { message: message('x') }, '200 '],
      ['GET', `${http}/extendedAgentCard?A2A-Version=1.0`, undefined, '200 '],
      ['GET', `${http}/v1/tasks/${id}?A2A-Version=0.3`, undefined, '404 -32001'],
      ['POST', `${http}/v1/message:send?A2A-Version=0.3`, proto03({ messageId: randomUUID() }), '200 '],
      ['POST', '/a2a?A2A-Version=7.0', rpc('GetTask', { id }), '200 VERSION_NOT_SUPPORTED'],
      ['GET', `${http}/tasks/${id}?A2A-Version=7.0`, undefined, '400 VERSION_NOT_SUPPORTED'],
      ['POST', `${http}/message:stream?A2A-Version=7.0`, {}, '400 VERSION_NOT_SUPPORTED'],
      ['GET', `${http}/v1/tasks/${id}?A2A-Version=7.0`, undefined, '400 VERSION_NOT_SUPPORTED'],
      ['GET', `${http}/tasks/${id}`, undefined, '400 VERSION_NOT_SUPPORTED'],
    ] as const)
      assert.equal(await ask(method, path, body), told, `${method} ${path}`);
    const both = `${http}/tasks/${id}?A2A-Version=1.0`;
    assert.equal(await ask('GET', both, undefined, '7.0'), '400 VERSION_NOT_SUPPORTED');
    assert.equal(
      await ask('GET', `${http}/tasks/${id}?A2A-Version=7.0`, undefined, '1.0'),
      '404 TASK_NOT_FOUND',
    );
  });

  test('HTTP+JSON takes application/a2a+json and application/json and answers with the former, JSON-RPC speaks application/json', async () => {
    const world = worldOf();
    const http = '/a2a/http';
    const post = (path: string, body: unknown, type: string, version = '1.0') =>
      world.request('POST', path, { body, headers: { 'content-type': type, 'a2a-version': version } });
    let taskId = '';
    for (const type of ['application/a2a+json', 'application/a2a+json; charset=utf-8', 'application/json']) {
      const sent = await post(`${http}/message:send`, { message: message('x') }, type);
      assert.deepEqual([sent.status, sent.headers.get('content-type')], [200, 'application/a2a+json'], type);
      taskId = sent.body.task.id;
      const stream = await post(`${http}/message:stream`, { message: message('x') }, type);
      assert.match(stream.headers.get('content-type')!, /^text\/event-stream/, type);
      const config = { url: 'https://example.com/x' };
      const made = await post(`${http}/tasks/${taskId}/pushNotificationConfigs`, config, type);
      assert.deepEqual([made.status, made.headers.get('content-type')], [200, 'application/a2a+json'], type);
      const cancelled = await post(`${http}/tasks/${taskId}:cancel`, {}, type);
      assert.deepEqual([cancelled.status, cancelled.headers.get('content-type')], [400, 'application/json']);
      const rpc = { jsonrpc: '2.0', id: 1, method: 'GetTask', params: { id: taskId } };
      const called = await post('/a2a', rpc, type);
      assert.deepEqual(
        [called.body.result.id, called.headers.get('content-type')],
        [taskId, 'application/json'],
      );
      const old = await post(`${http}/v1/message:send`, proto03({ messageId: randomUUID() }), type, '0.3');
      assert.deepEqual([old.status, old.headers.get('content-type')], [200, 'application/json'], type);
    }
    const configs = `${http}/tasks/${taskId}/pushNotificationConfigs`;
    for (const path of [`${http}/tasks/${taskId}`, `${http}/tasks`, configs, `${http}/extendedAgentCard`])
      for (const accept of ['application/a2a+json', 'application/json', '*/*']) {
        const read = await world.request('GET', path, { headers: { accept } });
        assert.deepEqual(
          [read.status, read.headers.get('content-type')],
          [200, 'application/a2a+json'],
          path,
        );
      }
    for (const type of ['text/plain', 'application/a2a', 'application/xml'])
      assert.equal((await post(`${http}/message:send`, '{}', type)).status, 415, type);
  });

  test('a token of a page belongs to its list: another context, state or time, or none, is told so by every binding', async () => {
    const contextId = randomUUID();
    const other = randomUUID();
    for (const context of [contextId, contextId, contextId, other, other])
      await worldOf().rpc('SendMessage', { message: message('listed', { contextId: context }) });
    for (const binding of bindings) {
      const wrong = { 'JSON-RPC': -32602, 'HTTP+JSON': 400, gRPC: codes.INVALID_ARGUMENT }[binding];
      const first = await page(binding, { contextId, pageSize: 2 });
      const pageToken = first.nextPageToken as string;
      assert.ok(pageToken, JSON.stringify(first));
      const rest = await page(binding, { contextId, pageToken, pageSize: 1, historyLength: 1 });
      assert.deepEqual([rest.tasks.length, rest.nextPageToken], [1, ''], binding);
      for (const filters of [
        {},
        { contextId: other },
        { contextId: 'never seen' },
        { contextId, status: binding === 'gRPC' ? 3 : 'TASK_STATE_COMPLETED' },
        { contextId: 'never seen', status: binding === 'gRPC' ? 3 : 'TASK_STATE_COMPLETED' },
      ])
        assert.deepEqual(
          await page(binding, { ...filters, pageToken }),
          { refused: wrong },
          `${binding} ${JSON.stringify(filters)}`,
        );
    }
  });

  test('pages of tasks neither repeat nor skip one while others come between, by every binding', async () => {
    const world = worldOf();
    const contextId = randomUUID();
    const begin = async () =>
      (await world.rpc('SendMessage', { message: message('listed', { contextId }) })).result.task
        .id as string;
    const ids: string[] = [];
    for (let count = 0; count < 5; count += 1) ids.unshift(await begin());
    for (const binding of bindings) {
      const seen: string[] = [];
      const between: string[] = [];
      for (let pageToken = '', pages = 0; pages === 0 || pageToken !== ''; pages += 1) {
        const { tasks, nextPageToken, totalSize } = await page(binding, {
          contextId,
          pageSize: 2,
          pageToken,
        });
        assert.equal(totalSize, ids.length + between.length, binding);
        seen.push(...tasks.map(({ id }: Told) => id));
        pageToken = nextPageToken;
        between.unshift(await begin());
      }
      assert.deepEqual(seen, ids, binding);
      ids.unshift(...between);
    }
  });

  test('a task whose state changes comes first in the list, whenever it began, by every binding', async () => {
    const contextId = randomUUID();
    const asked = await send('JSON-RPC', message('ask', { contextId }));
    const later = await send('JSON-RPC', message('listed'));
    const ids = async (binding: Binding) =>
      (await page(binding, { pageSize: 100 })).tasks
        .map(({ id }: Told) => id)
        .filter((id: string) => [asked.id, later.id].includes(id));
    for (const binding of bindings) assert.deepEqual(await ids(binding), [later.id, asked.id], binding);
    await send('JSON-RPC', message('blue', { taskId: asked.id }));
    for (const binding of bindings) assert.deepEqual(await ids(binding), [asked.id, later.id], binding);
  });

  test('an answer to a question that comes again is the same answer, by whatever binding, also when the next question is there or the task has ended', async () => {
    const world = worldOf();
    const answersOf = async (id: string) =>
      (await world.rpc('GetTask', { id })).result.history
        .filter(({ role }: Told) => role === 'ROLE_USER')
        .map(({ messageId, parts }: Told) => [messageId, parts[0].text]);
    const asks = ({ status }: Told) => `${status.state} ${status.message.parts[0].text}`;
    const asked = await send('JSON-RPC', message('interview'));
    assert.equal(asks(asked), 'TASK_STATE_INPUT_REQUIRED What colour?');
    const blue = message('blue', { taskId: asked.id });
    // Sent twice at once, as a client does that has lost patience.
    const both = await Promise.all([send('JSON-RPC', blue), send('HTTP+JSON', blue)]);
    for (const task of both) assert.equal(task.id, asked.id);
    for (const binding of bindings)
      assert.equal(asks(await send(binding, blue)), 'TASK_STATE_INPUT_REQUIRED What size?', binding);
    const streamed = await world.request('POST', '/a2a/http/message:stream', { body: { message: blue } });
    const events = streamed.text.split('\n').filter((line) => line.startsWith('data: '));
    assert.equal(events.length, 1, streamed.text);
    assert.equal(asks(JSON.parse(events[0]!.slice(6)).task), 'TASK_STATE_INPUT_REQUIRED What size?');
    assert.equal((await answersOf(asked.id)).length, 2, 'the message that began it and one answer');

    // Another content under the same id is another message.
    const large = { ...blue, parts: [{ text: 'large' }] };
    const done = await send('gRPC', large);
    assert.equal(done.artifacts[0].parts[0].text, 'You said blue and large.');
    for (const binding of bindings)
      for (const again of [blue, large]) {
        const { id, status } = await send(binding, again);
        assert.deepEqual([id, status.state], [asked.id, 'TASK_STATE_COMPLETED'], binding);
      }
    assert.deepEqual((await answersOf(asked.id)).slice(1), [
      [blue['messageId'], 'blue'],
      [blue['messageId'], 'large'],
    ]);
    assert.deepEqual(await send('JSON-RPC', message('more', { taskId: asked.id })), {
      refused: 'UNSUPPORTED_OPERATION',
    });

    // Of another key the same words are its own answer, and to another task too.
    const minted = await world.service.api('POST', `/v1/agents/${world.agent.id}/api-keys`, {
      name: 'theirs',
    });
    const second = await send('JSON-RPC', message('interview'));
    const mine = message('same', { taskId: second.id });
    assert.equal(asks(await send('JSON-RPC', mine)), 'TASK_STATE_INPUT_REQUIRED What size?');
    const theirs = await send('HTTP+JSON', mine, minted.body.value as string);
    assert.equal(theirs.artifacts[0].parts[0].text, 'You said same and same.');

    const permission = await send('JSON-RPC', message('permission'));
    const yes = message('Allow', { taskId: permission.id });
    const allowed = await send('JSON-RPC', yes);
    assert.equal(allowed.status.state, 'TASK_STATE_COMPLETED');
    assert.deepEqual(await send('HTTP+JSON', yes), allowed);
  });

  test('a task that asks closes its streams on the wire, new ones and subscriptions of both versions, and the connection goes on', async () => {
    const world = worldOf();
    const host = new URL(world.origin).host;
    const file = `go-${randomUUID()}`;
    const { id } = (
      await world.rpc('SendMessage', {
        message: message(`interview ${file}`),
        configuration: { returnImmediately: true },
      })
    ).result.task;
    const rpc = (method: string, params: unknown) => ({ jsonrpc: '2.0', id: 1, method, params });
    const text = (more = {}) => message03({ messageId: randomUUID(), ...more });
    const ask03 = text({ parts: [{ kind: 'text', text: 'ask' }] });
    const streams: [version: string, path: string, body: unknown][] = [
      ['1.0', '/a2a', rpc('SendStreamingMessage', { message: message('ask') })],
      ['1.0', '/a2a/http/message:stream', { message: message('ask') }],
      ['0.3', '/a2a', rpc('message/stream', { message: ask03 })],
      [
        '0.3',
        '/a2a/http/v1/message:stream',
        proto03({ messageId: randomUUID(), content: [{ text: 'ask' }] }),
      ],
      ['1.0', '/a2a', rpc('SubscribeToTask', { id })],
      ['1.0', `/a2a/http/tasks/${id}:subscribe`, {}],
      ['0.3', '/a2a', rpc('tasks/resubscribe', { id })],
      ['0.3', `/a2a/http/v1/tasks/${id}:subscribe`, {}],
    ];
    const heads = (version: string, more: string) =>
      `HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${world.service.key}\r\n` +
      `A2A-Version: ${version}\r\n${more}\r\n`;
    const clients = streams.map(([version, path, body]) => {
      const socket = connect(world.service.port, '127.0.0.1');
      const client = { name: `${version} ${path}`, socket, heard: '' };
      socket.on('data', (chunk) => (client.heard += chunk.toString()));
      const json = JSON.stringify(body);
      const fields = `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(json)}\r\n`;
      socket.write(`POST ${path} ${heads(version, fields)}${json}`);
      return client;
    });
    try {
      await until('all have begun', () => clients.every(({ heard }) => heard.includes('data: ')));
      const put = await world.service.api('PUT', `/sandbox/${world.agent.id}/files/${file}`, 'now', octets);
      assert.ok(put.status < 300, put.text);
      // The last chunk is how an answer says that it is whole (RFC 9112, section 7.1).
      await until('all are whole', () => clients.every(({ heard }) => heard.endsWith('\r\n0\r\n\r\n')));
      for (const { name, heard } of clients) {
        const last = heard.split('\n').findLast((line) => line.startsWith('data: '))!;
        assert.match(last, /"state":"(TASK_STATE_INPUT_REQUIRED|input-required)"/, name);
      }
      for (const client of clients) {
        client.heard = '';
        client.socket.write(`GET /.well-known/agent-card.json ${heads('1.0', '')}`);
        await until(`${client.name} goes on`, () => client.heard.includes('supportedInterfaces'));
        assert.match(client.heard, /^HTTP\/1\.1 200 /, client.name);
      }
    } finally {
      for (const { socket } of clients) socket.destroy();
    }
    await world.rpc('CancelTask', { id });
  });

  test('an extension that no card declares, and a tenant that none names, change nothing', async () => {
    const world = worldOf();
    const headers = { 'a2a-extensions': 'https://example.com/unheard-of' };
    const body = {
      tenant: 'somebody',
      message: message('x', { extensions: ['https://example.com/unheard-of'] }),
    };
    for (const path of ['/a2a/http/message:send', '/a2a/http/somebody/message:send']) {
      const reply = await world.request('POST', path, { headers, body });
      assert.equal(reply.body.task.status.state, 'TASK_STATE_COMPLETED', reply.text);
      assert.equal(reply.headers.get('a2a-extensions'), null);
    }
    const { result } = await world.rpc('SendMessage', body, { headers });
    assert.equal(result.task.status.state, 'TASK_STATE_COMPLETED');
  });
}
