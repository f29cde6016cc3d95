import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { IncomingHttpHeaders } from 'node:http';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test, type TestContext } from 'node:test';
import { a2aWorld, message, sse } from '../support/a2a-world.ts';
import { openServiceDatabase } from '../support/scenario-world.ts';
import { until } from '../support/until.ts';

interface Received {
  path: string;
  headers: IncomingHttpHeaders;
  // oxlint-disable-next-line no-explicit-any -- tests read into it
  body: any;
}

/** What a path wants to be told by; null: neither field may be there. Others take whatever comes. */
type Wanted = Record<string, { authorization: string | null; token: string | null }>;

async function receiver(
  t: TestContext,
  statusOf: (path: string, count: number) => number,
  wanted: Wanted = {},
) {
  const received: Received[] = [];
  const counts = new Map<string, number>();
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request) text += String(chunk);
    const path = request.url!;
    const count = (counts.get(path) ?? 0) + 1;
    counts.set(path, count);
    const { authorization = null, 'x-a2a-notification-token': token = null } = request.headers;
    const want = wanted[path];
    const isMeant = !want || (want.authorization === authorization && want.token === token);
    const status = isMeant ? statusOf(path, count) : 401;
    if (status < 300) received.push({ path, headers: request.headers, body: JSON.parse(text) });
    response.writeHead(status, status === 302 ? { location: '/elsewhere' } : {}).end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, received, counts };
}

const stateOf = ({ body }: Received) =>
  body.statusUpdate?.status.state ?? body.task?.status.state ?? body.status?.state;

test('updates are pushed in order with the credentials of their configuration, again after a refusal and a kill, and once', async (t) => {
  const hook = await receiver(
    t,
    (path, count) => (path === '/flaky' && count <= 2 ? (count === 1 ? 500 : 302) : 204),
    {
      '/basic': { authorization: 'Basic dXNlcjpwYXNz', token: 'of its own' },
      '/scheme': { authorization: 'HMAC-SHA256', token: null },
      '/token': { authorization: null, token: 'only a token' },
      '/bare': { authorization: null, token: null },
      '/old-basic': { authorization: 'Basic b2xkOnBhc3M=', token: 'old' },
      '/stranger': { authorization: 'Bearer what it has not', token: null },
    },
  );
  const world = await a2aWorld({
    env: { BERTH_ALLOW_PRIVATE_NETWORKS: '127.0.0.0/8', BERTH_DETACH: 'auto' },
  });
  t.after(() => world.close());
  const secret = 'a-secret-credential-5f1b';
  const config = (path: string) => ({
    url: hook.url + path,
    token: 'the-token',
    authentication: { scheme: 'Bearer', credentials: secret },
  });
  const taskPushNotificationConfig = { id: 'mine', ...config('/good') };
  const asked = (
    await world.rpc('SendMessage', { message: message('ask'), configuration: { taskPushNotificationConfig } })
  ).result.task;
  const made = await world.request('POST', `/a2a/http/tasks/${asked.id}/pushNotificationConfigs`, {
    body: { id: 'second', ...config('/flaky') },
  });
  assert.equal(made.status, 200, made.text);
  assert.equal(made.body.taskId, asked.id);
  const legacy = await world.request('POST', '/a2a', {
    headers: { 'a2a-version': '' },
    body: {
      jsonrpc: '2.0',
      id: 1,
      method: 'tasks/pushNotificationConfig/set',
      params: { taskId: asked.id, pushNotificationConfig: { id: 'old', url: `${hook.url}/old` } },
    },
  });
  assert.equal(legacy.body.result.pushNotificationConfig.id, 'old', legacy.text);
  // Each is told by the scheme and the token that it was configured with, and by nothing else.
  const meant = {
    '/basic': { token: 'of its own', authentication: { scheme: 'Basic', credentials: 'dXNlcjpwYXNz' } },
    '/scheme': { authentication: { scheme: 'HMAC-SHA256' } },
    '/token': { token: 'only a token' },
    '/bare': {},
    '/stranger': { authentication: { scheme: 'Bearer', credentials: 'wrong' } },
  };
  for (const [path, more] of Object.entries(meant)) {
    const params = { taskId: asked.id, id: path, url: hook.url + path, ...more };
    const { result, error } = await world.rpc('CreateTaskPushNotificationConfig', params);
    assert.equal(error, undefined, path);
    const shown = await world.rpc('GetTaskPushNotificationConfig', { taskId: asked.id, id: path });
    assert.deepEqual(shown.result, result, path);
    assert.deepEqual(result.authentication, 'authentication' in more ? more.authentication : undefined);
  }
  const byOld = await world.request('POST', '/a2a', {
    headers: { 'a2a-version': '' },
    body: {
      jsonrpc: '2.0',
      id: 1,
      method: 'tasks/pushNotificationConfig/set',
      params: {
        taskId: asked.id,
        pushNotificationConfig: {
          id: 'old-basic',
          url: `${hook.url}/old-basic`,
          token: 'old',
          authentication: { schemes: ['Basic', 'Bearer'], credentials: 'b2xkOnBhc3M=' },
        },
      },
    },
  });
  assert.equal(byOld.body.result.pushNotificationConfig.id, 'old-basic', byOld.text);
  for (const [field, config] of [
    ['token', { token: 'two\r\nlines' }],
    ['authentication.scheme', { authentication: { scheme: 'Two Words', credentials: 'x' } }],
    ['authentication.scheme', { authentication: { credentials: 'x' } }],
    ['authentication.credentials', { authentication: { scheme: 'Bearer', credentials: 'ü' } }],
  ] as const) {
    const params = { taskId: asked.id, id: 'never', url: `${hook.url}/never`, ...config };
    const { error } = await world.rpc('CreateTaskPushNotificationConfig', params);
    assert.equal(error.code, -32602, field);
    assert.ok(error.message.includes(field), error.message);
  }
  assert.equal(
    (await world.rpc('ListTaskPushNotificationConfigs', { taskId: asked.id })).result.configs.length,
    9,
  );
  const got = (await world.rpc('GetTaskPushNotificationConfig', { taskId: asked.id, id: 'second' })).result;
  assert.deepEqual(got, made.body);
  assert.ok((await world.rpc('GetTaskPushNotificationConfig', { taskId: asked.id, id: 'none' })).error);
  await world.rpc('SendMessage', {
    message: message('blue', { taskId: asked.id }),
    configuration: { returnImmediately: true },
  });
  // Whatever was under way, another process goes on with it.
  await world.service.kill9();
  await world.service.restart();
  const at = (path: string) => hook.received.filter((one) => one.path === path);
  const isOver = (path: string) =>
    /COMPLETED|completed/.test(String(stateOf(at(path).at(-1) ?? ({ body: {} } as Received))));
  const told = ['/good', '/flaky', '/old', '/basic', '/scheme', '/token', '/bare', '/old-basic'];
  await until('all were told of the end', () => told.every(isOver), 60_000);
  await until('the one with wrong credentials was tried', () => hook.counts.get('/stranger')! > 0);
  assert.deepEqual(at('/stranger'), [], 'and was refused');
  assert.equal(hook.counts.get('/never'), undefined);
  const good = at('/good');
  assert.ok(good[0]!.body.task, 'the first is the task');
  assert.equal(good[0]!.headers.authorization, `Bearer ${secret}`);
  assert.equal(good[0]!.headers['x-a2a-notification-token'], 'the-token');
  assert.match(good[0]!.headers['content-type']!, /^application\/a2a\+json/);
  const states = good.map(stateOf).filter(Boolean);
  assert.equal(states.filter((state) => state === 'TASK_STATE_COMPLETED').length, 1);
  assert.ok(states.includes('TASK_STATE_INPUT_REQUIRED'));
  assert.equal(
    good.find(({ body }) => body.artifactUpdate)!.body.artifactUpdate.artifact.parts[0].text,
    'You said {"colour":"blue"}.',
  );
  assert.equal(at('/flaky')[0]!.body.task, undefined);
  assert.equal(hook.counts.get('/elsewhere'), undefined);
  assert.equal(at('/old').at(-1)!.body.kind, 'task');
  const ended = at('/old').at(-1)!;
  assert.equal(ended.body.status.state, 'completed');
  const removed = await world.request('DELETE', `/a2a/http/tasks/${asked.id}/pushNotificationConfigs/second`);
  assert.equal(removed.status, 204);
  assert.equal(
    (await world.request('DELETE', `/a2a/http/tasks/${asked.id}/pushNotificationConfigs/second`)).status,
    204,
  );
  assert.ok(!world.service.logs().includes(secret), 'credentials are in no log');
  const db = openServiceDatabase(world.service);
  const rows = await db.sql<{ whole: string }[]>`select t::text as whole from a2a_push_configs t`;
  await db.close();
  assert.ok(rows.length > 0);
  for (const form of [secret, Buffer.from(secret).toString('hex'), Buffer.from(secret).toString('base64')])
    assert.ok(!rows.some(({ whole }) => whole.includes(form)), 'and not readable in the database');
});

test('no push notification goes to a private network, an address of the service, or without TLS to the public', async (t) => {
  const world = await a2aWorld();
  t.after(() => world.close());
  const total = async () => (await world.rpc('ListTasks')).result.totalSize as number;
  for (const url of [
    'http://127.0.0.1:1/',
    'https://127.0.0.1/',
    'https://10.0.0.1/x',
    'https://169.254.169.254/latest',
    'https://[::1]/',
    'https://localhost/',
    'http://8.8.8.8/',
    'ftp://example.com/',
    'https://user:pass@example.com/',
    'nonsense',
  ]) {
    const before = await total();
    const inline = await world.rpc('SendMessage', {
      message: message('x'),
      configuration: { taskPushNotificationConfig: { url } },
    });
    assert.equal(inline.error?.code, -32602, `${url}: ${JSON.stringify(inline)}`);
    assert.equal(await total(), before, url);
  }
  const { task } = (await world.rpc('SendMessage', { message: message('x') })).result;
  const refused = await world.rpc('CreateTaskPushNotificationConfig', {
    taskId: task.id,
    url: 'https://192.168.1.1/',
  });
  assert.equal(refused.error.code, -32602);
  const kept = await world.rpc('CreateTaskPushNotificationConfig', {
    taskId: task.id,
    url: 'https://example.com/hook',
  });
  assert.equal(kept.result.id, task.id);
});

test('a stream that is cut by a kill of the service is taken up by a subscription, with every word once', async (t) => {
  const world = await a2aWorld({ env: { BERTH_DETACH: 'auto' } });
  t.after(() => world.close());
  const bearer = { authorization: `Bearer ${world.service.key}`, 'content-type': 'application/json' };
  // A stream of OpenAI's form is cut by the same kill.
  const asked = { model: world.agent.id, input: 'hold', stream: true };
  const begun = {
    method: 'POST',
    headers: { ...bearer, 'idempotency-key': 'cut' },
    body: JSON.stringify(asked),
  };
  const cut = sse(await world.fetch(`${world.origin}/v1/responses`, begun));
  let responseId = '';
  let said = '';
  let seen = -1;
  while (said === '') {
    const { data } = (await cut.next()).value!;
    responseId ||= data.response?.id ?? '';
    if (data.type === 'response.output_text.delta') said += data.delta;
    seen = data.sequence_number;
  }
  const response = await world.fetch(`${world.origin}/a2a/http/message:stream`, {
    method: 'POST',
    headers: { ...bearer, 'a2a-version': '1.0' },
    body: JSON.stringify({ message: message('hold') }),
  });
  let taskId = '';
  let pieces = 0;
  try {
    for await (const { data } of sse(response)) {
      taskId ||= data.task?.id ?? '';
      if (data.artifactUpdate && (pieces += 1) === 2) await world.service.kill9();
    }
  } catch {
    // The connection was cut.
  }
  assert.ok(pieces >= 2);
  await world.service.restart();
  const again = await world.fetch(`${world.origin}/a2a`, {
    method: 'POST',
    headers: { ...bearer, 'a2a-version': '1.0' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 'sub', method: 'SubscribeToTask', params: { id: taskId } }),
  });
  let text = '';
  let state = '';
  for await (const { data, id } of sse(again)) {
    assert.equal(data.id, 'sub');
    assert.ok(Number(id) > 0);
    const { task, artifactUpdate, statusUpdate } = data.result;
    if (task) {
      text = task.artifacts?.[0]?.parts[0].text ?? '';
      const go = await world.service.api('PUT', `/sandbox/${world.agent.id}/files/go`, 'now', {
        'content-type': 'application/octet-stream',
      });
      assert.ok(go.status < 300, go.text);
    }
    if (artifactUpdate) text = (artifactUpdate.append ? text : '') + artifactUpdate.artifact.parts[0].text;
    if (statusUpdate) state = statusUpdate.status.state;
  }
  assert.equal(state, 'TASK_STATE_COMPLETED');
  assert.equal(text, '1 2 3 4 5 6 ');

  await assert.rejects(async () => {
    for await (const _ of cut);
  });
  const rest = await world.fetch(
    `${world.origin}/v1/responses/${responseId}?stream=true&starting_after=${seen}`,
    { headers: bearer },
  );
  for await (const { data } of sse(rest)) {
    assert.equal(data.sequence_number, (seen += 1), 'nothing is missing and nothing told twice');
    if (data.type === 'response.output_text.delta') said += data.delta;
  }
  assert.equal(said, '1 2 3 4 5 6 ');
  // Sent again with its key it is the same response, not another run.
  const same = await (await world.fetch(`${world.origin}/v1/responses`, begun)).text();
  assert.match(same, new RegExp(responseId));
});
