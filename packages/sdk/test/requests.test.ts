import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BerthError, createClient, everyItem } from '../src/index.ts';
import { cut, fakeService, json } from './fake-service.ts';

const agent = { id: 'a', name: 'A' };

test('A request carries the key, and its answer is unwrapped.', async (t) => {
  const { url, seen } = await fakeService(t, [json(200, { agent })]);
  const client = createClient({ baseUrl: `${url}/`, apiKey: 'svc_live_x' });
  assert.deepEqual(await client.agents.get('a b'), agent);
  assert.equal(seen[0]!.path, '/v1/agents/a%20b');
  assert.equal(seen[0]!.headers.authorization, 'Bearer svc_live_x');
});

test('An error has the status, code, details and request id of the answer, and is not repeated.', async (t) => {
  const body = { error: 'Bad.', code: 'invalid_request', details: [{ path: 'name', message: 'is missing' }] };
  const { url, seen } = await fakeService(t, [json(400, body, { 'x-request-id': 'r1' })]);
  const client = createClient({ baseUrl: url, apiKey: 'k' });
  await assert.rejects(client.agents.create({ name: '' }), (error: unknown) => {
    assert.ok(error instanceof BerthError);
    assert.equal(error.message, 'Bad.');
    assert.deepEqual([error.status, error.code, error.requestId], [400, 'invalid_request', 'r1']);
    assert.deepEqual(error.details, body.details);
    return true;
  });
  assert.equal(seen.length, 1);
});

test('An error that is no JSON of ours still tells its status.', async (t) => {
  const { url } = await fakeService(t, [
    (response) => void response.writeHead(404).end('<html>nothing here</html>'),
  ]);
  await assert.rejects(createClient({ baseUrl: url, apiKey: 'k' }).limits(), {
    name: 'BerthError',
    status: 404,
    message: 'HTTP 404',
  });
});

test('A lost connection, a 503 and a 429 are tried again; a POST keeps its Idempotency-Key.', async (t) => {
  const { url, seen } = await fakeService(t, [
    cut,
    json(503, { error: 'Starting.', code: 'unavailable' }, { 'retry-after': '0' }),
    json(429, { error: 'Slow down.', code: 'rate_limited' }, { 'retry-after': '0' }),
    json(201, { agent }),
  ]);
  const client = createClient({ baseUrl: url, apiKey: 'k' });
  assert.deepEqual(await client.agents.create({ name: 'A' }), agent);
  assert.equal(seen.length, 4);
  const keys = new Set(seen.map((one) => one.headers['idempotency-key']));
  assert.equal(keys.size, 1);
  assert.match([...keys][0] as string, /^[0-9a-f-]{36}$/);
});

test('A POST whose first try is still at work waits for its answer.', async (t) => {
  const { url, seen } = await fakeService(t, [
    json(409, { error: 'In progress.', code: 'idempotency_in_progress' }, { 'retry-after': '0' }),
    json(201, { agent }),
  ]);
  assert.deepEqual(await createClient({ baseUrl: url, apiKey: 'k' }).agents.create({ name: 'A' }), agent);
  assert.equal(seen.length, 2);
});

test('After the last try the last error is thrown; without any answer its status is 0.', async (t) => {
  const { url, seen } = await fakeService(t, [json(503, { error: 'Away.', code: 'unavailable' })]);
  const client = createClient({ baseUrl: url, apiKey: 'k', maxAttempts: 2 });
  await assert.rejects(client.limits(), { status: 503, code: 'unavailable' });
  assert.equal(seen.length, 2);
  const nobody = createClient({ baseUrl: 'http://127.0.0.1:1', apiKey: 'k', maxAttempts: 1 });
  await assert.rejects(nobody.limits(), { name: 'BerthError', status: 0 });
});

test('An aborted request is not tried again.', async (t) => {
  const stop = new AbortController();
  const { url, seen } = await fakeService(t, [
    () => {
      stop.abort();
    },
  ]);
  const client = createClient({ baseUrl: url, apiKey: 'k' });
  await assert.rejects(client.chat.send({ agentId: 'a', content: 'x' }, { signal: stop.signal }));
  assert.equal(seen.length, 1);
});

test('everyItem goes through all pages by their cursors.', async (t) => {
  const { url, seen } = await fakeService(t, [
    json(200, { agents: [{ id: '3' }, { id: '2' }], nextCursor: 'c 1' }),
    json(200, { agents: [{ id: '1' }], nextCursor: null }),
  ]);
  const client = createClient({ baseUrl: url, apiKey: 'k' });
  const all = await Array.fromAsync(everyItem(client.agents.list));
  assert.deepEqual(
    all.map((one) => one.id),
    ['3', '2', '1'],
  );
  assert.deepEqual(
    seen.map((one) => one.path),
    ['/v1/agents?limit=100', '/v1/agents?limit=100&cursor=c+1'],
  );
});

test('A send says how long it waits and begins a conversation when it names none.', async (t) => {
  const { url, seen } = await fakeService(t, [json(202, { runId: 'r', status: 'running', message: null })]);
  const client = createClient({ baseUrl: url, apiKey: 'k' });
  const sent = await client.chat.send(
    { agentId: 'a', content: 'hi' },
    { waitSeconds: 3, idempotencyKey: 'mine' },
  );
  assert.equal(sent.status, 'running');
  assert.deepEqual(seen[0]!.body, { agentId: 'a', content: 'hi', conversationId: null });
  assert.equal(seen[0]!.headers['prefer'], 'wait=3');
  assert.equal(seen[0]!.headers['idempotency-key'], 'mine');
});

test('The reason why a path is no file or folder to have is told, although the answer to a HEAD has no body.', async (t) => {
  const refused = json(409, { error: 'This is a symbolic link.', code: 'conflict' });
  const { url, seen } = await fakeService(t, [refused]);
  const { files } = createClient({ baseUrl: url, apiKey: 'k' }).sandboxes;
  await assert.rejects(files.isFolder('a', 'evil'), {
    status: 409,
    code: 'conflict',
    message: 'This is a symbolic link.',
  });
  assert.deepEqual(
    seen.map(({ method, path }) => `${method} ${path}`),
    ['HEAD /sandbox/a/files/evil', 'GET /sandbox/a/files/evil'],
  );
});

test('What has come to be there between a HEAD and the question for its error counts.', async (t) => {
  const { url } = await fakeService(t, [json(404, { error: 'Not found.' }), json(200, { files: [] })]);
  const { files } = createClient({ baseUrl: url, apiKey: 'k' }).sandboxes;
  assert.equal(await files.isFolder('a', 'new'), true);
});
