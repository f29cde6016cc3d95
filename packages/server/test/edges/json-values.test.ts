import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { after, before, test } from 'node:test';
import type { WebSocket } from 'ws';
import { z } from 'zod';
import type { DomainError } from '../../src/domain/errors.ts';
import { limits } from '../../src/domain/limits.ts';
import { BoundedReader, TooManyFields } from '../../src/edges/a2a/grpc/bounded-reader.ts';
import { guarded } from '../../src/edges/acp/socket.ts';
import { validate } from '../../src/edges/http/validate.ts';
import { HostSocket } from '../support/acp-client.ts';
import { edgeWorld, type EdgeWorld } from '../support/edge-world.ts';
import { holdLane } from '../support/held-lane.ts';
import { hostFetch } from '../support/host-fetch.ts';
import { until } from '../support/until.ts';
import { uncounted } from '../support/uncounted.ts';

let world: EdgeWorld;
let port: number;
before(async () => {
  world = await edgeWorld();
  port = Number(new URL(await world.listen()).port);
});
after(() => world.close());

/** A list of so many names and values, itself among them. */
const list = (values: number): string => `[${'{},'.repeat(values - 2)}{}]`;
const tooMany = list(limits.jsonValues);
const told = /has more than 100000 names and values/;

// oxlint-disable-next-line no-explicit-any -- the test reads into the errors of all protocols
async function post(path: string, body: string, headers = {}): Promise<{ status: number; json: any }> {
  const response = await hostFetch(port)(`http://${world.agent.id}.agents.localhost:${port}${path}`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      'a2a-version': '1.0',
      accept: 'application/json, text/event-stream',
      authorization: `Bearer ${world.keys.owner}`,
      ...headers,
    },
    body,
  });
  return { status: response.status, json: await response.json() };
}

test('a body with too many names and values is refused on every surface, in the form of its errors and before anything knows its id', async () => {
  const made = await world.call('POST', '/v1/agents', { body: `{"name":${tooMany}}` });
  assert.deepEqual([made.status, (made.json as { code: string }).code], [400, 'invalid_request']);
  assert.match((made.json as { error: string }).error, told);
  const body = `{"jsonrpc":"2.0","id":7,"method":"GetTask","params":${tooMany}}`;
  for (const [path, headers] of [
    ['/a2a', {}],
    ['/a2a', { 'a2a-version': '0.3' }],
    ['/mcp', {}],
    ['/acp', {}],
  ] as const) {
    const { json } = await post(path, body, headers);
    assert.deepEqual([json.id, json.error.code], [null, -32600], path);
    assert.match(json.error.message, told, path);
  }
  for (const [path, messageOf] of [
    ['/a2a/http/message:send', (json) => json.error.message],
    ['/v1/chat/completions', (json) => json.error.message],
    ['/v1/responses', (json) => json.error.message],
    ['/runs', (json) => json.message],
    // oxlint-disable-next-line no-explicit-any -- as above
  ] as const satisfies [string, (json: any) => string][]) {
    const { status, json } = await post(path, `{"input":${tooMany}}`);
    assert.equal(status, 400, path);
    assert.match(messageOf(json), told, path);
  }
});

test('one that has as many as it may is read, and its errors know its id', async () => {
  const fields = '{"jsonrpc":"2.0","id":7,"method":"Nothing","params":';
  // The object, three names with their values, and the name of the list.
  const { json } = await post('/a2a', `${fields}${list(limits.jsonValues - 8)}}`);
  assert.deepEqual([json.id, json.error.code], [7, -32601]);
  const { json: over } = await post('/a2a', `${fields}${list(limits.jsonValues - 7)}}`);
  assert.deepEqual([over.id, over.error.code], [null, -32600]);
  // Depth is told with the id, as before.
  const deep = await post('/a2a', `${fields}${'['.repeat(200)}${']'.repeat(200)}}`);
  assert.equal(deep.json.id, 7);
  assert.match(deep.json.error.message, /nested deeper/);
});

test('JSON in the texts of a run counts together', async () => {
  const part = (values: number) => ({ content_type: 'application/json', content: list(values) });
  const input = [{ role: 'user', parts: [part(60_000), part(60_000)] }];
  const agentName = world.agent.name.toLowerCase();
  const { status, json } = await post(
    '/runs',
    JSON.stringify({ agent_name: agentName, input, mode: 'async' }),
  );
  assert.equal(status, 400);
  assert.match(json.message, /input\.0\.parts\.1\.content: The JSON in texts has more than 100000/);
});

test('over a WebSocket such a message is refused alone, and what comes behind a large one is answered behind it', async (t) => {
  const socket = new HostSocket(`ws://${world.agent.id}.agents.localhost:${port}/acp`, [], {
    headers: { authorization: `Bearer ${world.keys.owner}` },
  });
  t.after(() => socket.terminate());
  await once(socket, 'open');
  // oxlint-disable-next-line no-explicit-any -- as above
  const answers: any[] = [];
  socket.on('message', (data: Buffer) => answers.push(JSON.parse(String(data))));
  const send = (id: number, method: string, params: string) =>
    socket.send(`{"jsonrpc":"2.0","id":${id},"method":"${method}","params":${params}}`);
  send(1, 'initialize', `{"protocolVersion":1,"_meta":{"x":"${'x'.repeat(3_000_000)}"}}`);
  send(2, 'session/list', tooMany);
  send(3, 'session/list', '{}');
  await until('all are answered', () => answers.length === 3);
  assert.deepEqual(
    answers.map(({ id, error }) => [id, error?.code]),
    [
      [1, undefined],
      [null, -32600],
      [3, undefined],
    ],
  );
});

/** As much of a WebSocket as is used of one. */
class FakeSocket extends EventEmitter {
  readonly OPEN = 1;
  readyState = 1;
  bufferedAmount = 0;
  isPaused = false;
  sent: string[] = [];
  pause = () => void (this.isPaused = true);
  resume = () => void (this.isPaused = false);
  send = (text: string) => void this.sent.push(text);
}

test('a small message is heard at once; a large one keeps the socket unread, and all behind it, the end too, in its order', async (t) => {
  const socket = new FakeSocket();
  t.after(() => socket.emit('close'));
  const sdk = guarded(socket as unknown as WebSocket, { orgId: 'o', id: 'key' }, () => uncounted);
  const heard: (number | 'close')[] = [];
  sdk.on!('message', (text: unknown) => heard.push((JSON.parse(String(text)) as { id: number }).id));
  sdk.on!('close', () => heard.push('close'));
  const come = (id: number, padding: number) => {
    const params = { protocolVersion: 1, _meta: { padding: 'x'.repeat(padding) } };
    const text = JSON.stringify({ jsonrpc: '2.0', id, method: 'initialize', params });
    socket.emit('message', Buffer.from(text), false);
  };
  come(1, 10);
  assert.deepEqual(heard, [1]);
  assert.equal(socket.isPaused, false);
  come(2, 1_000_000);
  come(3, 10);
  come(4, 1_000_000);
  socket.readyState = 3;
  socket.emit('close');
  assert.equal(socket.isPaused, true);
  await until('the end is heard', () => heard.length === 5);
  assert.deepEqual(heard, [1, 2, 3, 4, 'close']);
  await until('it is read again', () => !socket.isPaused);
});

test('a large message of a WebSocket is decoded when its sender has its turn, and not as it comes', async (t) => {
  const socket = new FakeSocket();
  t.after(() => socket.emit('close'));
  const sender = { orgId: 'o', id: 'key' };
  const sdk = guarded(socket as unknown as WebSocket, sender, () => uncounted);
  const heard: unknown[] = [];
  sdk.on!('message', (text: unknown) => heard.push(text));
  const text = JSON.stringify({
    jsonrpc: '2.0',
    id: 1,
    method: 'initialize',
    params: { protocolVersion: 1, _meta: { padding: 'ü'.repeat(100_000) } },
  });
  const data = Buffer.from(text);
  let isDecoded = false;
  data.toString = () => {
    isDecoded = true;
    return text;
  };
  const letGo = holdLane(t, sender);
  socket.emit('message', data, false);
  assert.equal(isDecoded, false);
  await letGo();
  await until('it is heard', () => heard.length === 1);
  assert.deepEqual([heard, isDecoded], [[text], true]);
});

test('a large body of a client that has gone is let go before it is read, and one that stays is answered', async (t) => {
  const { keyId } = await world.services.auth.authenticate(world.keys.owner);
  const letGo = holdLane(t, { orgId: world.agent.orgId, id: keyId });
  const url = `http://${world.agent.id}.agents.localhost:${port}/a2a`;
  const body = JSON.stringify({
    jsonrpc: '2.0',
    id: 1,
    method: 'GetTask',
    params: { x: 'x'.repeat(100_000) },
  });
  const headers = {
    'content-type': 'application/json',
    'a2a-version': '1.0',
    authorization: `Bearer ${world.keys.owner}`,
  };
  const leaving = new AbortController();
  const left = hostFetch(port)(url, { method: 'POST', headers, body, signal: leaving.signal });
  const stays = post('/a2a', body);
  // Small ones of the same key wait for nothing.
  assert.equal((await post('/a2a', '{"jsonrpc":"2.0","id":2,"method":"Nothing"}')).json.id, 2);
  const before = world.logLines.length;
  leaving.abort();
  await assert.rejects(left);
  await until('it is let go', () => world.logLines.length > before);
  await letGo();
  assert.equal((await stays).json.id, 1);
});

test('a message in the binary form is read as far as it has fields for as much', () => {
  const read = (fields: number): number => {
    // Field 1, of no length.
    const reader = new BoundedReader(Buffer.from('0a00'.repeat(fields), 'hex'));
    let count = 0;
    for (; reader.pos < reader.len; count += 1) {
      reader.uint32();
      reader.skip(2);
    }
    return count;
  };
  assert.equal(read(limits.jsonValues), limits.jsonValues);
  assert.throws(() => read(2 * limits.jsonValues), TooManyFields);
});

test('an error names a hundred wrong fields and counts the others, and more entries than lists may have are refused unseen', () => {
  let looks = 0;
  const entry = z.object({ a: z.string().refine(() => (looks += 1) > 0) });
  const schema = z.object({
    items: z.array(entry).optional(),
    by: z.record(z.string(), z.object({ items: z.array(z.string()) })).nullish(),
    any: z.unknown().optional(),
  });
  const refused = (value: unknown): DomainError => {
    try {
      validate(schema, value, 'body');
    } catch (error) {
      return error as DomainError;
    }
    throw new Error('It was taken.');
  };
  const many = refused({ items: Array.from({ length: 1_000 }, () => ({})) });
  assert.equal(many.details!.length, 100);
  assert.match(many.message, /^items\.0\.a: required \(and 999 more/);
  const over = refused({ items: Array.from({ length: 20_001 }, () => ({ a: 'a' })) });
  assert.deepEqual([looks, over.details!.map(({ path }) => path)], [0, ['items']]);
  const inner = refused({
    by: { x: { items: Array(15_000).fill('') }, y: { items: Array(15_000).fill('') } },
  });
  assert.deepEqual(
    inner.details!.map(({ path }) => path),
    ['by.y.items'],
  );
  assert.ok(
    validate(
      schema,
      {
        any: Array.from({ length: 50_000 }, () => ({})),
        items: Array.from({ length: 9 }, () => ({ a: '' })),
      },
      'body',
    ),
  );
});
