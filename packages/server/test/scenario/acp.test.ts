import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { after, before, test } from 'node:test';
import { methods } from '@agentclientprotocol/sdk';
import { variedFiles } from '../support/acp-agents.ts';
import {
  acpClient,
  acpStream,
  HostSocket,
  place,
  type AcpClientOptions,
  type Transport,
} from '../support/acp-client.ts';
import { bridgeCommand, bridgeEnv, type Target } from '../support/acp-wire.ts';
import { hostFetch } from '../support/host-fetch.ts';
import { logOf, workshop, type Pushed, type Workshop } from '../support/scenario.ts';
import { startService, type Service } from '../support/service.ts';
import { until } from '../support/until.ts';
import { closed } from '../support/closed.ts';

const { session } = methods.agent;
const run = promisify(execFile);

let service: Service;
let shop: Workshop;
let agent: Pushed;
let varied: Pushed;

before(async () => {
  service = await startService();
  shop = await workshop(service);
  agent = await shop.agent({ 'AGENTS.md': 'x\n' });
  varied = await shop.agent(variedFiles);
});
after(async () => {
  await shop?.close();
  await service?.end();
});

const connect = (transport: Transport, options?: AcpClientOptions, agentId = agent.id, key = service.key) =>
  acpClient(acpStream(transport, service.port, agentId, key), options);

async function mint(input: object): Promise<{ id: string; value: string }> {
  const made = await service.api('POST', '/v1/api-keys', { name: 'test', ...input });
  assert.equal(made.status, 201, made.text);
  return { id: made.body.key.id, value: made.body.value };
}

for (const transport of ['websocket', 'http'] as const) {
  test(`The SDK's client prompts, lists, loads, resumes, closes and deletes a session (${transport}).`, async (t) => {
    const one = await connect(transport);
    t.after(() => one.close());
    const sessionId = await one.open();
    const first = await one.prompt(sessionId, 'say: one two three');
    assert.equal(first.stopReason, 'end_turn');
    assert.equal(one.text(sessionId), 'one two three');
    const second = await one.prompt(sessionId, 'run: echo hello');
    assert.equal(second.stopReason, 'end_turn');
    const kinds = one.updates.map(({ update }) => update.sessionUpdate);
    assert.ok(kinds.includes('tool_call') && kinds.includes('tool_call_update'), kinds.join(' '));

    const { sessions } = await one.agent.request(session.list, { cwd: place.cwd });
    assert.equal(sessions.find((found) => found.sessionId === sessionId)?.title, 'say: one two three');

    const other = await connect(transport);
    t.after(() => other.close());
    assert.deepEqual(await other.agent.request(session.load, { sessionId, ...place }), {});
    const told = other.updates.map(({ update }) => update.sessionUpdate);
    assert.equal(told[0], 'user_message_chunk');
    assert.equal(told.filter((kind) => kind === 'user_message_chunk').length, 2);
    assert.equal(other.text(), one.text());

    const third = await connect(transport);
    t.after(() => third.close());
    await third.agent.request(session.resume, { sessionId, ...place });
    assert.deepEqual(third.updates, []);
    await third.prompt(sessionId, 'say: four');
    assert.equal(third.text(), 'four');
    await until(
      'the other connections saw it too',
      () => one.text().endsWith('four') && other.text().endsWith('four'),
    );

    assert.deepEqual(await third.agent.request(session.close, { sessionId }), {});
    assert.deepEqual(await one.agent.request(session.delete, { sessionId }), {});
    assert.deepEqual(await one.agent.request(session.delete, { sessionId }), {});
    await assert.rejects(other.agent.request(session.load, { sessionId, ...place }), { code: -32002 });
  });
}

test('acpx prompts through the bridge, and over a WebSocket with a pipe of ours as it has none itself, and approves what the agent asks.', async () => {
  // It starts a program and speaks to that alone. When it has learnt to open a socket, it is to do so here.
  const dist = fileURLToPath(new URL('../../../../node_modules/acpx/dist/', import.meta.url));
  const code = readdirSync(dist).filter((name) => name.endsWith('.js'));
  assert.ok(code.length > 0);
  for (const name of code)
    assert.doesNotMatch(readFileSync(dist + name, 'utf8'), /WebSocket|wss?:\/\//, name);
  const acpx = fileURLToPath(new URL('../../../../node_modules/acpx/dist/cli.js', import.meta.url));
  const pipe = fileURLToPath(new URL('../support/acp-socket-pipe.ts', import.meta.url));
  const target: Target = { port: service.port, agentId: varied.id, key: service.key, home: shop.home };
  const socket = [process.execPath, pipe, `ws://${varied.id}.localhost:${service.port}/acp`];
  for (const command of [bridgeCommand(target), socket]) {
    const args = ['--approve-all', '--format', 'json', '--cwd', shop.home, '--agent', command.join(' ')];
    const { stdout } = await run(process.execPath, [acpx, ...args, 'exec', 'ask me'], {
      env: bridgeEnv(target),
      cwd: shop.home,
      timeout: 60_000,
    });
    assert.match(stdout, /before, /);
    assert.match(stdout, /heard yes/);
    assert.match(stdout, /end_turn/);
  }
});

test('A run that REST began is watched by a session, with the same text and the same end, and cancelled from it.', async (t) => {
  const viewer = await connect('websocket');
  t.after(() => viewer.close());
  const { conversationId } = await agent.say('say: before');
  await viewer.agent.request(session.load, { sessionId: conversationId, ...place });
  const second = await agent.say('slow: 5 20', conversationId);
  const endOf = (runId: string) =>
    viewer.updates.find(({ update }) => JSON.stringify(update._meta ?? {}).includes(runId));
  await until('the viewer saw the end', () => endOf(second.runId) !== undefined);
  assert.equal(viewer.text(), `before${second.message.content}`);
  const third = await agent.ask('slow: 500 50', conversationId);
  await until('it has begun', () => viewer.text().length > `before${second.message.content}`.length);
  await viewer.agent.notify(session.cancel, { sessionId: conversationId });
  await until('it is cancelled', () => JSON.stringify(endOf(third.runId) ?? {}).includes('cancelled'));
});

test('A question that REST answers first is taken back from the client, whose prompt ends as it should.', async (t) => {
  const client = await connect('websocket', { onPermission: () => new Promise(() => {}) }, varied.id);
  t.after(() => client.close());
  const sessionId = await client.open();
  const answer = client.prompt(sessionId, 'ask');
  await until('it is asked', () => client.permissions.length === 1);
  const asked = client.permissions[0]!._meta!['berth.dev'] as { runId: string; requestId: string };
  const { runId, requestId } = asked;
  const answered = await service.api('POST', `/v1/runs/${runId}/respond`, { requestId, optionId: 'no' });
  assert.equal(answered.status, 200, answered.text);
  assert.equal((await answer).stopReason, 'end_turn');
  assert.match(client.text(sessionId), /heard no/);
  const late = await service.api('POST', `/v1/runs/${runId}/respond`, { requestId, optionId: 'yes' });
  assert.equal(late.status, 409);
});

test('A failed run is an error of its prompt that says why; the session goes on.', async (t) => {
  const broken = await shop.agent({ 'agent.json': JSON.stringify({ command: ['false'] }) });
  const client = await connect('websocket', {}, broken.id);
  t.after(() => client.close());
  const sessionId = await client.open();
  await assert.rejects(client.prompt(sessionId, 'x'), (error: { code: number; data: { code: string } }) => {
    assert.equal(error.code, -32603);
    assert.match(error.data.code, /^(harness_exit|harness_error|sandbox_unavailable)$/);
    return true;
  });
  await client.agent.request(session.list, {});
});

test('Nothing is upgraded or answered without a key that may see the agent, and what it may not see is missing.', async () => {
  const fetch = hostFetch(service.port);
  const url = `http://${agent.id}.localhost:${service.port}/acp`;
  const other = await mint({ scope: 'use', binding: 'agent-bound', agentId: varied.id });
  for (const [key, status] of [
    ['', 401],
    ['nonsense', 401],
    [other.value, 404],
  ] as const) {
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
    const body = JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method: 'initialize',
      params: { protocolVersion: 1 },
    });
    const sent = await fetch(url, { method: 'POST', headers, body });
    assert.equal(sent.status, status);
    assert.ok(((await sent.json()) as { error: { code: number } }).error.code < 0);
    const socket = new HostSocket(url.replace('http', 'ws'), [], { headers });
    socket.on('error', () => undefined);
    const [, answer] = await once(socket, 'unexpected-response');
    assert.equal(answer.statusCode, status);
    socket.terminate();
  }
});

test('The HTTP transport answers as its description says, and a connection is found by its own key alone.', async () => {
  const fetch = hostFetch(service.port);
  const url = `http://${agent.id}.localhost:${service.port}/acp`;
  const use = await mint({ scope: 'use', binding: 'agent-bound', agentId: agent.id });
  const send = (method: string, headers: Record<string, string>, body?: unknown, key = service.key) =>
    fetch(url, {
      method,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers },
      ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
  const initialize = { jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: 1 } };
  const list = { jsonrpc: '2.0', id: 2, method: 'session/list', params: {} };
  const made = await send('POST', {}, initialize);
  assert.equal(made.status, 200);
  const id = made.headers.get('acp-connection-id')!;
  assert.ok(id.length > 20);
  const named = { 'acp-connection-id': id };
  const expected: [string, Record<string, string>, unknown, number, string?][] = [
    ['POST', named, list, 202],
    ['POST', named, initialize, 400],
    ['POST', {}, list, 400],
    ['POST', {}, { ...initialize, id: [] }, 400],
    ['POST', {}, { ...initialize, id: {} }, 400],
    ['POST', {}, { ...initialize, id: true }, 400],
    ['POST', {}, JSON.stringify(initialize).replace('"id":1', '"id":1e400'), 400],
    ['POST', { 'acp-connection-id': 'unknown' }, list, 404],
    ['POST', named, [list], 400],
    ['POST', named, '{"jsonrpc"', 400],
    ['POST', { ...named, 'content-type': 'text/plain' }, 'x', 415],
    ['POST', named, 'x'.repeat(7 * 1024 * 1024), 413],
    ['POST', named, { jsonrpc: '2.0', id: 3, method: 'session/prompt', params: { sessionId: 'a' } }, 400],
    ['GET', { ...named, accept: 'application/json' }, undefined, 406],
    ['GET', { accept: 'text/event-stream' }, undefined, 400],
    ['PUT', named, {}, 405],
    // A key that may see the agent too, but has not opened it.
    ['POST', named, list, 404, use.value],
    ['DELETE', named, undefined, 404, use.value],
    ['DELETE', named, undefined, 202],
    ['POST', named, list, 404],
  ];
  for (const [method, headers, body, status, key] of expected) {
    const answer = await send(method, headers, body, key);
    const text = await answer.text();
    assert.equal(answer.status, status, `${method} ${JSON.stringify(headers)} ${text.slice(0, 200)}`);
    if (status >= 400) assert.ok((JSON.parse(text) as { error: object }).error, text);
  }
});

test('What comes over HTTP and is no message in UTF-8 is refused with the code of JSON-RPC, and with its id where it can be read.', async () => {
  const fetch = hostFetch(service.port);
  const url = `http://${agent.id}.localhost:${service.port}/acp`;
  const json = { 'content-type': 'application/json' };
  const initialize = '{"jsonrpc":"2.0","id":"one","method":"initialize","params":{"protocolVersion":1}}';
  const latin = Buffer.from(initialize.replace('one', 'ön'), 'latin1');
  const wide = Buffer.from(initialize, 'utf16le');
  const faults: [Record<string, string>, string | Buffer, number, number, string | null][] = [
    [json, '', 400, -32700, null],
    [json, '{"jsonrpc"', 400, -32700, null],
    [json, `\ufeff${initialize}`, 400, -32700, null],
    [json, latin, 400, -32700, null],
    [json, wide, 400, -32700, null],
    [{ 'content-type': 'application/json; charset=utf-16' }, wide, 415, -32600, null],
    [{ 'content-type': 'application/json; charset=latin1' }, latin, 415, -32600, null],
    [{ ...json, 'content-encoding': 'gzip' }, initialize, 415, -32600, null],
    [json, `[${initialize}]`, 400, -32600, null],
    [json, '7', 400, -32600, null],
    [json, '{"jsonrpc":"2.0","id":"one"}', 400, -32600, 'one'],
    [json, '{"jsonrpc":"2.0","id":"one","method":"session/list","params":{}}', 400, -32600, 'one'],
    [
      json,
      `{"jsonrpc":"2.0","id":"one","method":"session/load","params":{"sessionId":"${'x'.repeat(257)}"}}`,
      400,
      -32602,
      'one',
    ],
    [json, initialize.replace('"2.0"', '2'), 400, -32600, 'one'],
    [json, initialize.replace('"one"', 'null'), 400, -32600, null],
    [json, initialize.replace('Version":1', 'Version":"1"'), 400, -32602, 'one'],
    [json, initialize.replace('Version":1', 'Version":1,"a":"\\u0000"'), 400, -32602, 'one'],
    [json, initialize.replace('Version":1', 'Version":1,"a":1e400'), 400, -32602, 'one'],
  ];
  for (const [headers, body, status, code, id] of faults) {
    const authorization = `Bearer ${service.key}`;
    const answer = await fetch(url, { method: 'POST', headers: { authorization, ...headers }, body });
    const told = (await answer.json()) as { jsonrpc: string; id: unknown; error: { code: number } };
    assert.deepEqual(
      [answer.status, told.error.code, told.id, answer.headers.get('acp-connection-id')],
      [status, code, id, null],
      `${JSON.stringify(headers)} ${String(body)}`,
    );
  }
  const answer = await fetch(url, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json; charset="UTF-8"' },
    body: initialize,
  });
  assert.equal(answer.status, 200);
});

test('The answer to an upgrade names the connection, pings are answered, and binary frames, floods and large messages end it.', async () => {
  const open = async () => {
    const socket = new HostSocket(`ws://${agent.id}.localhost:${service.port}/acp`, [
      'x',
      `berth.key.${service.key}`,
    ]);
    const upgraded = once(socket, 'upgrade');
    await once(socket, 'open');
    const [answer] = await upgraded;
    assert.ok(answer.headers['acp-connection-id']);
    assert.equal(socket.protocol, 'x');
    return socket;
  };
  const pinged = await open();
  pinged.ping('are you there');
  assert.equal(String((await once(pinged, 'pong'))[0]), 'are you there');
  pinged.close();
  const endings: [(socket: HostSocket) => void, number][] = [
    [(socket) => socket.send(Buffer.from('{}')), 1003],
    [(socket) => socket.send(JSON.stringify({ a: 'x'.repeat(7 * 1024 * 1024) })), 1009],
    [(socket) => Array.from({ length: 1000 }, () => socket.send('{}')), 1008],
  ];
  for (const [act, code] of endings) {
    const socket = await open();
    const ended = closed(socket);
    act(socket);
    assert.equal((await ended)[0], code);
  }
});

test('A revoked key ends its connection, and a key that only uses may do all but delete what was said.', async (t) => {
  const use = await mint({ scope: 'use', binding: 'agent-bound', agentId: agent.id });
  const client = await connect('websocket', {}, agent.id, use.value);
  t.after(() => client.close());
  const sessionId = await client.open();
  assert.equal((await client.prompt(sessionId, 'say: x')).stopReason, 'end_turn');
  await assert.rejects(client.agent.request(session.delete, { sessionId }), { code: -32011 });
  const unused = await client.open();
  assert.deepEqual(await client.agent.request(session.delete, { sessionId: unused }), {});
  assert.equal((await service.api('DELETE', `/v1/api-keys/${use.id}`)).status, 204);
  await client.connection.closed;
});

test('Sessions of another agent are not there, also for a key that may see both.', async (t) => {
  const [one, other] = [await connect('websocket'), await connect('http', {}, varied.id)];
  t.after(() => {
    one.close();
    other.close();
  });
  const sessionId = await one.open();
  await one.prompt(sessionId, 'say: secret');
  for (const method of [session.load, session.resume] as const)
    await assert.rejects(other.agent.request(method, { sessionId, ...place }), { code: -32002 });
  await assert.rejects(other.prompt(sessionId, 'x'), { code: -32002 });
  const { sessions } = await other.agent.request(session.list, {});
  assert.equal(
    sessions.some((found) => found.sessionId === sessionId),
    false,
  );
  assert.deepEqual(await other.agent.request(session.delete, { sessionId }), {});
  assert.equal((await service.api('GET', `/v1/conversations/${sessionId}`)).status, 200);
});

test('A prompt that comes again with its key is the same run, and one run in the log.', async (t) => {
  const client = await connect('websocket');
  t.after(() => client.close());
  const sessionId = await client.open();
  const prompt = [{ type: 'text' as const, text: 'say: once' }];
  const _meta = { 'berth.dev': { idempotencyKey: `key of ${sessionId}` } };
  const once = () => client.agent.request(session.prompt, { sessionId, prompt, _meta });
  const answers = await Promise.all([once(), once()]);
  answers.push(await once());
  assert.equal(new Set(answers.map((answer) => JSON.stringify((answer as { _meta: object })._meta))).size, 1);
  assert.equal(client.text(sessionId), 'once');
  const log = await logOf(service, { conversationId: sessionId });
  assert.equal(log.filter((event) => event.type === 'run.queued').length, 1);
});
