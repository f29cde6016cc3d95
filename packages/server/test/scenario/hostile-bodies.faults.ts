import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { after, before, test } from 'node:test';
import { WebSocket } from 'ws';
import type { A2aWorld } from '../support/a2a-world.ts';
import { a2aWorld, message } from '../support/a2a-world.ts';
import { until } from '../support/until.ts';
import { closed } from '../support/closed.ts';

let world: A2aWorld;
before(async () => {
  world = await a2aWorld({ env: { BERTH_RATE_LIMIT: '100000/60' } });
});
after(() => world?.close());

interface Target {
  method: string;
  path: string;
  headers?: Record<string, string>;
  /** A request that it takes. */
  good: Record<string, unknown>;
  /** Whether an error has the form of its protocol. */
  isError(body: Record<string, never>, status: number): boolean;
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null;
const rpcError = (body: Record<string, unknown>) =>
  body['jsonrpc'] === '2.0' &&
  (isObject(body['error']) ? Number.isInteger(body['error']['code']) : 'result' in body);
const restError = (body: Record<string, unknown>, status: number) =>
  isObject(body['error']) && body['error']['code'] === status && typeof body['error']['message'] === 'string';
const openaiError = (body: Record<string, unknown>) =>
  isObject(body['error']) && typeof body['error']['message'] === 'string';
const acpError = (body: Record<string, unknown>) =>
  ['server_error', 'invalid_input', 'not_found'].includes(body['code'] as string) &&
  typeof body['message'] === 'string';
const ownError = (body: Record<string, unknown>) =>
  typeof body['error'] === 'string' && typeof body['code'] === 'string';

function targets(): Target[] {
  const v1 = { 'a2a-version': '1.0' };
  const rpc = (method: string, params: object) => ({ jsonrpc: '2.0', id: 1, method, params });
  const input = [{ role: 'user', parts: [{ content_type: 'text/plain', content: 'x' }] }];
  const id = world.agent.id;
  const none = '0197c2b9-2c10-7d31-9a44-5b6c7d8e9f01';
  const mcp = { accept: 'application/json, text/event-stream' };
  return [
    { method: 'POST', path: '/a2a', headers: v1, good: rpc('GetTask', { id: none }), isError: rpcError },
    {
      method: 'POST',
      path: '/a2a',
      headers: v1,
      good: rpc('SendMessage', { message: message('x', { taskId: none }) }),
      isError: rpcError,
    },
    { method: 'POST', path: '/a2a', good: rpc('tasks/get', { id: none }), isError: rpcError },
    {
      method: 'POST',
      path: '/a2a/http/message:send',
      headers: v1,
      good: { message: message('x', { taskId: none }) },
      isError: restError,
    },
    {
      method: 'POST',
      path: '/a2a/http/message:stream',
      headers: v1,
      good: { message: message('x', { taskId: none }) },
      isError: restError,
    },
    {
      method: 'POST',
      path: `/a2a/http/tasks/${none}/pushNotificationConfigs`,
      headers: v1,
      good: { url: 'https://example.com' },
      isError: restError,
    },
    {
      method: 'POST',
      path: '/a2a/http/v1/message:send',
      headers: { 'a2a-version': '0.3' },
      good: { message: { messageId: 'm', role: 'ROLE_USER', taskId: none, content: [{ text: 'x' }] } },
      isError: isObject,
    },
    {
      method: 'POST',
      path: '/acp',
      good: rpc('initialize', { protocolVersion: 1, clientCapabilities: {} }),
      isError: isObject,
    },
    { method: 'POST', path: '/runs', good: { agent_name: 'nobody', input }, isError: acpError },
    {
      method: 'POST',
      path: `/runs/${none}`,
      good: { run_id: none, await_resume: {}, mode: 'sync' },
      isError: acpError,
    },
    {
      method: 'POST',
      path: '/mcp',
      headers: mcp,
      good: rpc('tools/call', { name: 'get_run', arguments: { runId: none } }),
      isError: rpcError,
    },
    {
      method: 'POST',
      path: '/v1/chat/completions',
      good: { model: 'none', messages: [{ role: 'user', content: 'x' }] },
      isError: openaiError,
    },
    {
      method: 'POST',
      path: '/v1/responses',
      good: { model: id, input: 'x', previous_response_id: 'resp_none' },
      isError: openaiError,
    },
    { method: 'POST', path: '/anything/else', good: {}, isError: ownError },
  ];
}

/** What is done to a body: JSON that is odd, no JSON, or too much of it. */
function spoiled(
  good: Record<string, unknown>,
): [name: string, body: string | Buffer, headers?: Record<string, string>][] {
  const text = JSON.stringify(good);
  const everywhere = (value: string) => text.replaceAll('"x"', value);
  const swapped = Object.keys(good).flatMap((name) =>
    ['null', '[]', '{}', '"\\u0000"', '"\\ud800"', '1e400', '-1', 'true', '{"__proto__":{"a":1}}'].map(
      (value): [string, string] => [
        `${name}=${value}`,
        JSON.stringify({ ...good, [name]: 0 }).replace(`"${name}":0`, `"${name}":${value}`),
      ],
    ),
  );
  return [
    ['nothing', ''],
    ['no JSON', '{"a":'],
    ['a text', '"x"'],
    ['a number', '7'],
    ['null', 'null'],
    ['a list', '[]'],
    ['a list of it', `[${text}]`],
    ['NUL', everywhere('"a\\u0000b"')],
    ['a lone surrogate', everywhere('"\\ud800"')],
    [
      'bytes that are no UTF-8',
      Buffer.concat([Buffer.from('{"a":"'), Buffer.from([0xff, 0xc0, 0x80]), Buffer.from('"}')]),
    ],
    ['UTF-16', Buffer.from(text, 'utf16le')],
    ['a byte order mark', `\ufeff${text}`],
    ['names twice', text.replace(/^\{/, `{${text.slice(1, -1)},`)],
    ['__proto__', text.replace(/^\{/, '{"__proto__":{"isAdmin":true},"constructor":{"prototype":1},')],
    ['depth', `{"params":${'['.repeat(50_000)}${']'.repeat(50_000)}}`],
    ['depth of objects', `${'{"a":'.repeat(20_000)}1${'}'.repeat(20_000)}`],
    ['depth in place', everywhere(`${'[{"a":'.repeat(5_000)}1${'}]'.repeat(5_000)}`)],
    ['many names', `{${Array.from({ length: 50_000 }, (_, at) => `"k${at}":1`).join(',')}}`],
    ['a long name', `{"${'n'.repeat(500_000)}":1}`],
    ['a huge number', `{"id":${'9'.repeat(10_000)}}`],
    ['7 MB', JSON.stringify({ ...good, filler: 'x'.repeat(7 * 1024 * 1024) })],
    ['text/plain', text, { 'content-type': 'text/plain' }],
    ['a form', 'a=1', { 'content-type': 'application/x-www-form-urlencoded' }],
    ['multipart', text, { 'content-type': 'multipart/form-data; boundary=x' }],
    ['gzip that is none', text, { 'content-encoding': 'gzip' }],
    ['another charset', text, { 'content-type': 'application/json; charset=utf-16' }],
    ['an odd type', text, { 'content-type': ';;;' }],
    ...swapped,
  ];
}

test('whatever is sent to a surface, it answers with its protocol’s own error: never 5xx, never anything but JSON', async () => {
  const faults: string[] = [];
  for (const target of targets()) {
    for (const [name, body, headers = {}] of spoiled(target.good)) {
      const response = await world.fetch(`${world.origin}${target.path}`, {
        method: target.method,
        headers: {
          authorization: `Bearer ${world.service.key}`,
          'content-type': 'application/json',
          ...target.headers,
          ...headers,
        },
        body: body as string,
      });
      const text = await response.text();
      const what = `${target.path} ${JSON.stringify(target.good).slice(0, 60)} with ${name}: ${response.status} ${text.slice(0, 200)}`;
      const type = response.headers.get('content-type') ?? '';
      if (response.status >= 500) faults.push(what);
      else if (response.status >= 400 || /"error":(?!null)/.test(text)) {
        let told: unknown = null;
        try {
          told = JSON.parse(type.startsWith('text/event-stream') ? /^data: (.*)$/m.exec(text)![1]! : text);
        } catch {
          faults.push(`no JSON: ${what}`);
          continue;
        }
        if (!isObject(told) || !target.isError(told as never, response.status))
          faults.push(`odd form: ${what}`);
      } else await response.body?.cancel().catch(() => {});
      if (/\.ts:\d|node_modules|at async|ZodError/.test(text)) faults.push(`tells too much: ${what}`);
    }
  }
  assert.deepEqual(faults, []);
  assert.equal((await world.service.api('GET', '/readyz')).status, 200);
});

test('what is nested too deeply to be written again is refused wherever JSON of any form is taken', async () => {
  const deep = `${'[{"a":'.repeat(5_000)}1${'}]'.repeat(5_000)}`;
  const a2a = message('x', { metadata: 'DEEP' });
  const data = message('x', { parts: [{ data: 'DEEP' }] });
  const rpc = (method: string, params: object) => ({ jsonrpc: '2.0', id: 1, method, params });
  const cases: [string, object, Record<string, string>?][] = [
    ['/a2a', rpc('SendMessage', { message: a2a }), { 'a2a-version': '1.0' }],
    ['/a2a', rpc('SendMessage', { message: data }), { 'a2a-version': '1.0' }],
    ['/a2a/http/message:send', { message: data }, { 'a2a-version': '1.0' }],
    ['/v1/responses', { model: world.agent.id, input: 'x', metadata: { a: 'DEEP' } }],
    ['/acp', rpc('initialize', { protocolVersion: 1, _meta: { a: 'DEEP' } })],
  ];
  for (const [path, body, headers = {}] of cases) {
    const response = await world.fetch(`${world.origin}${path}`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${world.service.key}`,
        'content-type': 'application/json',
        ...headers,
      },
      body: JSON.stringify(body).replace('"DEEP"', deep),
    });
    const text = await response.text();
    assert.ok(
      response.status < 500 && text.includes('deeper than 128'),
      `${path}: ${response.status} ${text}`,
    );
  }
  const sent = await world.service.api(
    'POST',
    '/api/v1/chat/send',
    `{"agentId":"${world.agent.id}","content":"x","metadata":${deep}}`,
  );
  assert.equal(sent.status, 400, sent.text);
});

test('odd paths and queries at an agent’s host are missing or wrong, never a fault of the service', async () => {
  const faults: string[] = [];
  const odd = [
    '%',
    '%00',
    '%ff',
    '%2e%2e%2f',
    '..',
    'a%2Fb',
    '\u{1F980}',
    'x'.repeat(4_000),
    "'",
    '%25',
    ';',
    ':cancel',
    '-1',
    'null',
    '__proto__',
  ];
  const places = [
    '/a2a/http/tasks/',
    '/a2a/http/v1/tasks/',
    '/runs/',
    '/session/',
    '/agents/',
    '/v1/responses/',
    '/v1/models/',
    '/a2a/http/tasks?pageToken=',
    '/a2a/http/tasks?pageSize=',
    '/agents?limit=',
    '/a2a/http/tasks?contextId=',
  ];
  for (const place of places) {
    for (const piece of odd) {
      for (const version of ['1.0', '0.3']) {
        const path = `${place}${piece.length === 2 && piece > '\u{1F000}' ? encodeURIComponent(piece) : piece}`;
        const { status, text } = await rawGet(path, version);
        if (status >= 500 || status === 0) faults.push(`${path} ${version}: ${status} ${text.slice(0, 200)}`);
      }
    }
  }
  assert.deepEqual(faults, []);
});

/** As it is written: `fetch` would tidy the path up. */
async function rawGet(path: string, version: string): Promise<{ status: number; text: string }> {
  const socket = connect({ host: '127.0.0.1', port: world.service.port });
  const chunks: Buffer[] = [];
  socket.on('data', (chunk) => chunks.push(chunk)).on('error', () => {});
  socket.write(
    `GET ${path} HTTP/1.1\r\nHost: ${new URL(world.origin).host}\r\nAuthorization: Bearer ${world.service.key}\r\nA2A-Version: ${version}\r\nConnection: close\r\n\r\n`,
  );
  await closed(socket);
  const text = Buffer.concat(chunks).toString();
  return { status: Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1] ?? 0), text };
}

test('frames of nonsense over a WebSocket of ACP are answered or end that connection alone', async () => {
  const url = `ws://127.0.0.1:${world.service.port}/acp`;
  const headers = { host: new URL(world.origin).host, authorization: `Bearer ${world.service.key}` };
  const rpc = (method: string, params: unknown) => JSON.stringify({ jsonrpc: '2.0', id: 1, method, params });
  const frames = [
    '',
    '{',
    '[]',
    'null',
    '7',
    '"x"',
    rpc('initialize', null),
    rpc('initialize', []),
    rpc('initialize', { protocolVersion: 'x' }),
    rpc('initialize', { protocolVersion: -1 }),
    rpc('session/new', { cwd: '\u0000', mcpServers: [] }),
    rpc('session/new', { cwd: 7, mcpServers: {} }),
    rpc('session/prompt', { sessionId: '\ud800', prompt: [{ type: 'text', text: '\ud800' }] }),
    rpc('session/load', { sessionId: '__proto__', cwd: '/', mcpServers: [] }),
    rpc('constructor', {}),
    rpc('__proto__', {}),
    `{"jsonrpc":"2.0","id":1,"method":"session/list","params":${'['.repeat(20_000)}${']'.repeat(20_000)}}`,
    JSON.stringify({ jsonrpc: '2.0', id: { a: 1 }, method: 'initialize', params: {} }),
    JSON.stringify({ jsonrpc: '2.0', id: 99, result: {} }),
  ];
  for (const frame of frames) {
    const socket = new WebSocket(url, { headers });
    socket.on('error', () => {});
    let isOver = false;
    const answers: string[] = [];
    socket.on('message', (data) => answers.push(String(data))).on('close', () => (isOver = true));
    await once(socket, 'open');
    socket.send(rpc('initialize', { protocolVersion: 1, clientCapabilities: {} }));
    await until('it is initialized', () => answers.length > 0);
    answers.length = 0;
    socket.send(frame);
    socket.send(JSON.stringify({ jsonrpc: '2.0', id: 'after', method: 'session/list', params: {} }));
    await until(
      `${frame.slice(0, 80)} was borne`,
      () => isOver || answers.some((text) => text.includes('"after"')),
    );
    for (const text of answers)
      assert.doesNotMatch(text, /-32603|\.ts:\d|node_modules/, `${frame.slice(0, 80)}: ${text}`);
    socket.terminate();
  }
});

test('clients that go away within a request or read nothing leave the service as it was', async () => {
  const host = new URL(world.origin).host;
  const head = (path: string, length: number) =>
    `POST ${path} HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${world.service.key}\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n`;
  const body = JSON.stringify({ message: message('slow 20 5') });
  for (const path of ['/a2a', '/a2a/http/message:stream', '/v1/responses', '/runs', '/mcp', '/acp']) {
    for (const cut of [0, 10]) {
      const socket = connect({ host: '127.0.0.1', port: world.service.port });
      socket.on('error', () => {});
      await once(socket, 'connect');
      socket.write(head(path, body.length) + body.slice(0, cut));
      socket.resetAndDestroy();
    }
  }
  const deaf = connect({ host: '127.0.0.1', port: world.service.port });
  deaf.on('error', () => {});
  deaf.pause();
  deaf.write(head('/a2a/http/message:stream', body.length) + body);
  await until('the task is done, though its client reads nothing', async () => {
    const { body: page } = await world.service.api('GET', `/v1/agents/${world.agent.id}/runs?limit=5`);
    return page.runs.length > 0 && page.runs.every((run: { status: string }) => run.status === 'completed');
  });
  deaf.destroy();
  assert.deepEqual(
    world.service
      .logs()
      .split('\n')
      .filter((line) => line.includes('"level":"error"')),
    [],
  );
  assert.equal((await world.service.api('GET', '/readyz')).status, 200);
});
