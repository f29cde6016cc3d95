import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { EdgeWorld, Reply } from '../support/edge-world.ts';
import { edgeWorld } from '../support/edge-world.ts';

let world: EdgeWorld;
before(async () => void (world = await edgeWorld()));
after(() => world.close());

interface ErrorJson {
  error: string;
  code: string;
  details?: { path: string; message: string }[];
}

function expectError(reply: Reply, status: number, code: string): ErrorJson {
  const json = reply.json as ErrorJson;
  assert.deepEqual([reply.status, json?.code], [status, code], reply.text);
  assert.equal(reply.headers.get('content-type'), 'application/json');
  assert.equal(typeof json.error, 'string');
  assert.ok(reply.headers.get('x-request-id'));
  return json;
}

const post = (body: unknown, headers: Record<string, string> = {}) =>
  world.call('POST', '/v1/agents', { body, headers });

test('404 for unknown paths and 405 with Allow for known ones, as JSON and without a key', async () => {
  for (const path of ['/v2/agents', '/v1', '/v1/agents/', '/v1/agents/x/y', '/favicon.ico', '/%00']) {
    expectError(await world.call('GET', path, { key: null }), 404, 'not_found');
  }
  const reply = await world.call('PUT', '/v1/agents', { key: null });
  expectError(reply, 405, 'method_not_allowed');
  assert.equal(reply.headers.get('allow'), 'GET, HEAD, POST');
  const page = await world.call('DELETE', '/docs', { key: null });
  expectError(page, 405, 'method_not_allowed');
  assert.equal(page.headers.get('allow'), 'GET, HEAD');
  expectError(await world.call('OPTIONS', '/v1/agents', { key: null }), 405, 'method_not_allowed');
});

test('400 invalid_request names each wrong field and repeats no value', async () => {
  const secret = 'hunter2-hunter2';
  const json = expectError(
    await post({ name: 5, description: [secret], nickname: secret }),
    400,
    'invalid_request',
  );
  assert.deepEqual(json.details, [
    { path: 'name', message: 'must be a string' },
    { path: 'description', message: 'must be a string' },
    { path: 'nickname', message: 'unknown field' },
  ]);
  assert.match(json.error, /^name: must be a string \(and 2 more/);
  assert.ok(!JSON.stringify(json).includes(secret));
});

test('400 for what is missing, too long, or no object', async () => {
  const details = async (body: unknown) => expectError(await post(body), 400, 'invalid_request').details;
  assert.deepEqual(await details({}), [{ path: 'name', message: 'required' }]);
  assert.deepEqual(await details({ name: '' }), [
    { path: 'name', message: 'must have at least 1 character' },
  ]);
  assert.deepEqual(await details({ name: '😀'.repeat(101) }), [
    { path: 'name', message: 'must have at most 100 characters' },
  ]);
  assert.deepEqual(await details([]), [{ path: 'body', message: 'must be an object' }]);
  assert.deepEqual(await details('null'), [{ path: 'body', message: 'must be an object' }]);
  assert.deepEqual(await details('{"name":"a","__proto__":{"x":1}}'), [
    { path: '__proto__', message: 'unknown field' },
  ]);
  assert.equal((await post({ name: '😀'.repeat(100) })).status, 201);
});

test('400 for U+0000 and lone surrogates, raw or escaped, wherever they are', async () => {
  for (const body of ['{"name":"a\\u0000"}', '{"name":"\\ud800"}', '{"name":"a","\\u0000":1}']) {
    expectError(await post(body), 400, 'invalid_request');
  }
  expectError(await world.call('GET', '/v1/agents?cursor=%00'), 400, 'invalid_request');
});

test('400 for a number that no double holds, which would be kept as null, and its field is named', async () => {
  const many = (digit: string, count: number) => digit.repeat(count);
  for (const number of ['1e400', '-1E+400', '1e0000309', many('9', 309), `${many('9', 250)}.5e99`]) {
    const json = expectError(
      await post(`{"name":"a","metadata":{"n":[0,${number}]}}`),
      400,
      'invalid_request',
    );
    assert.equal(json.details?.[0]?.path, 'metadata.n.1', number.slice(0, 20));
    assert.match(json.error, /a double can hold/);
  }
  for (const name of ['1e400', many('9', 99)]) assert.equal((await post({ name })).status, 201);
  for (const number of ['1e308', '1e-400', '-0', many('9', 308)]) {
    const json = expectError(await post(`{"name":"a","unknown":${number}}`), 400, 'invalid_request');
    assert.equal(json.details?.[0]?.path, 'unknown', number.slice(0, 20));
  }
});

test('400 invalid_json for what is no JSON or no UTF-8, without quoting it', async () => {
  for (const body of [
    '{"name": hunter2}',
    '{',
    'name=hunter2',
    Buffer.from([0x22, 0xff, 0x22]),
    '\ufeff{}',
  ]) {
    const json = expectError(await post(body), 400, 'invalid_json');
    assert.ok(!json.error.includes('hunter2'));
  }
  const deep = `${'['.repeat(100_000)}"\\u0000"${']'.repeat(100_000)}`;
  expectError(await post(deep), 400, 'invalid_request');
});

test('415 for a body that is not declared as JSON in UTF-8', async () => {
  for (const type of [
    'text/plain',
    'application/x-www-form-urlencoded',
    'application/json; charset=latin1',
    'application/jsonx',
  ]) {
    expectError(await post('{"name":"a"}', { 'content-type': type }), 415, 'unsupported_media_type');
  }
  assert.equal(
    (await post('{"name":"a"}', { 'content-type': 'Application/JSON; charset="utf-8"' })).status,
    201,
  );
});

test('413 over 1 MiB, and exactly 1 MiB is let through to the check', async () => {
  const body = (bytes: number) => `{"name":"${'a'.repeat(bytes - 11)}"}`;
  expectError(await post(body(1024 * 1024)), 400, 'invalid_request');
  expectError(await post(body(1024 * 1024 + 1)), 413, 'body_too_large');
});

test('400 for a bad limit, a foreign cursor, unknown and repeated query parameters', async () => {
  for (const limit of ['0', '101', '-1', '1.5', 'ten', '']) {
    expectError(await world.call('GET', `/v1/agents?limit=${limit}`), 400, 'invalid_request');
  }
  const json = expectError(await world.call('GET', '/v1/agents?limit=1&limit=2'), 400, 'invalid_request');
  assert.deepEqual(json.details, [{ path: 'limit', message: 'must be given only once' }]);
  const unknown = expectError(await world.call('GET', '/v1/agents?page=2'), 400, 'invalid_request');
  assert.deepEqual(unknown.details, [{ path: 'page', message: 'unknown query parameter' }]);
  expectError(await world.call('GET', '/v1/agents?cursor=nonsense'), 400, 'invalid_cursor');
});

test('400 for an Idempotency-Key that is empty, too long or not printable ASCII', async () => {
  for (const key of ['', 'a'.repeat(256), 'caf\u00e9']) {
    const reply = await post({ name: 'a' }, { 'idempotency-key': key });
    assert.equal(expectError(reply, 400, 'invalid_request').details![0]!.path, 'Idempotency-Key');
  }
});

test('500 says the request id and nothing of the cause; the log has it', async () => {
  const broken = await edgeWorld({
    services: (services) => ({
      ...services,
      agents: { ...services.agents, list: () => Promise.reject(new Error('password=hunter2 at db.ts:17')) },
    }),
  });
  try {
    const reply = await broken.call('GET', '/v1/agents');
    const json = expectError(reply, 500, 'internal');
    assert.ok(json.error.includes(reply.headers.get('x-request-id')!));
    assert.ok(!/hunter2|db\.ts|Error:|at /.test(reply.text.replace('at it', '')));
    const line = broken.logLines.find((one) => one.level === 'error')!;
    assert.equal(line.fields!['requestId'], reply.headers.get('x-request-id'));
    assert.match(String(line.fields!['cause']), /hunter2/);
  } finally {
    await broken.close();
  }
});

test('503 with Retry-After when the database is away', async () => {
  const away = Object.assign(new Error('connect'), { code: 'ECONNREFUSED' });
  const broken = await edgeWorld({
    services: (services) => ({
      ...services,
      auth: { authenticate: () => Promise.reject(away), known: () => null },
    }),
  });
  try {
    const reply = await broken.call('GET', '/v1/agents');
    expectError(reply, 503, 'unavailable');
    assert.equal(reply.headers.get('retry-after'), '1');
  } finally {
    await broken.close();
  }
});

test('400, not a fault of the service, for a name in a path or query that no text of the database can hold', async () => {
  const refused = Object.assign(new Error('invalid byte sequence'), { name: 'PostgresError', code: '22021' });
  const broken = await edgeWorld({
    services: (services) => ({
      ...services,
      auth: { authenticate: () => Promise.reject(refused), known: () => null },
    }),
  });
  try {
    expectError(await broken.call('GET', '/v1/agents'), 400, 'invalid_request');
  } finally {
    await broken.close();
  }
});
