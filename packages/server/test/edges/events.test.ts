import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { after, before, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import type { EdgeWorld } from '../support/edge-world.ts';
import { edgeWorld } from '../support/edge-world.ts';
import { until } from '../support/until.ts';
import { openSse } from '../support/sse.ts';

let world: EdgeWorld;
let origin: string;
before(async () => {
  world = await edgeWorld({ app: { heartbeatMs: 20, maxUnreadBytes: 256 * 1024 } });
  origin = await world.listen();
});
after(() => world.close());

async function newRun({ core, resources, agent } = world) {
  return core.runs.send(resources.owner, {
    agentId: agent.id,
    conversationId: null,
    content: 'hello',
    onBusy: 'enqueue',
    source: 'api',
    idempotency: null,
  });
}

const delta = (runId: string, text: string) => ({
  type: 'message.delta' as const,
  data: { runId, messageId: newId(), text },
});

const key = () => world.keys.use;

test("a run's stream has every event as id, type and one JSON line, and ends with the run", async () => {
  const { core } = world;
  const { runId } = await newRun();
  const client = await openSse(`${origin}/v1/runs/${runId}/events`, { key: key() });
  assert.equal(client.status, 200);
  assert.equal(client.headers['content-type'], 'text/event-stream; charset=utf-8');
  assert.equal(client.headers['cache-control'], 'no-store');
  assert.equal(client.headers['x-accel-buffering'], 'no');
  assert.ok(client.headers['x-request-id'] && client.headers['ratelimit']);
  core.append(runId, delta(runId, 'line one\nline two \u2028 😀'));
  core.settle(runId, { message: 'done' });
  await until('the stream ends', () => client.ended);
  assert.deepEqual(
    client.frames.map((frame) => [frame.id, frame.event]),
    [
      ['1', 'run.queued'],
      ['2', 'message.delta'],
      ['3', 'run.completed'],
    ],
  );
  const event = JSON.parse(client.frames[1]!.data!) as Record<string, unknown>;
  assert.deepEqual(Object.keys(event), ['seq', 'type', 'at', 'data']);
  assert.equal((event['data'] as { text: string }).text, 'line one\nline two \u2028 😀');
});

test('Last-Event-ID, or after, resumes with nothing missing and nothing twice', async () => {
  const { core } = world;
  const { runId, conversationId } = await newRun();
  for (let i = 0; i < 4; i += 1) core.append(runId, delta(runId, `${i}`));
  const url = `${origin}/v1/conversations/${conversationId}/events`;
  const byHeader = await openSse(`${url}?after=1`, { key: key(), headers: { 'last-event-id': '3' } });
  const byQuery = await openSse(`${url}?after=2`, { key: key() });
  core.append(runId, delta(runId, 'live'));
  await until('both have the live event', () =>
    [byHeader, byQuery].every((one) => one.text.includes('live')),
  );
  assert.deepEqual(
    byHeader.frames.map((frame) => frame.id),
    ['4', '5', '6'],
  );
  assert.deepEqual(
    byQuery.frames.map((frame) => frame.id),
    ['3', '4', '5', '6'],
  );
  assert.ok(!byHeader.ended);
  byHeader.close();
  byQuery.close();
  await until('nobody follows', () => core.followers.size === 0);
});

test('a bad Last-Event-ID or after is 400, and a foreign run is 404, before any stream begins', async () => {
  const { runId } = await newRun();
  for (const [path, headers] of [
    [`/v1/runs/${runId}/events`, { 'last-event-id': 'x' }],
    [`/v1/runs/${runId}/events?after=-1`, {}],
  ] as const) {
    const client = await openSse(origin + path, { key: key(), headers });
    assert.equal(client.status, 400);
    assert.equal(client.headers['content-type'], 'application/json');
  }
  const foreign = await openSse(`${origin}/v1/runs/${runId}/events`, { key: world.keys.foreign });
  assert.equal(foreign.status, 404);
  await until('the answer is whole', () => foreign.ended);
  assert.equal(foreign.text, '{"error":"Not found.","code":"not_found"}');
});

test('a stream that has nothing to tell begins at once and is kept alive by comments', async () => {
  const { runId } = await newRun();
  const client = await openSse(`${origin}/v1/runs/${runId}/events?after=1`, { key: key() });
  assert.equal(client.status, 200);
  await until('two heartbeats', () => client.comments >= 2);
  assert.deepEqual(client.frames, []);
  client.close();
});

test('a service without a word on it sends a comment every 15 seconds, and none before', async (t) => {
  const usual = await edgeWorld();
  t.after(() => usual.close());
  const at = await usual.listen();
  const { runId } = await newRun(usual);
  t.mock.timers.enable({ apis: ['setInterval'] });
  const client = await openSse(`${at}/v1/runs/${runId}/events?after=1`, { key: usual.keys.use });
  for (const comments of [0, 1, 2]) {
    t.mock.timers.tick(14_999);
    // What was written before it is there when the event is.
    usual.core.append(runId, delta(runId, 'so far'));
    await until('the event has come', () => client.frames.length === comments + 1);
    assert.equal(client.comments, comments);
    t.mock.timers.tick(1);
    await until('the comment has come', () => client.comments === comments + 1);
  }
  client.close();
});

test('events of one turn of the event loop go out in one piece', async () => {
  const { core } = world;
  const { runId } = await newRun();
  const client = await openSse(`${origin}/v1/runs/${runId}/events?after=1`, { key: key() });
  const chunks: string[] = [];
  client.response.on('data', (chunk: string) => chunks.push(chunk));
  for (let i = 0; i < 20; i += 1) core.append(runId, delta(runId, `piece ${i};`));
  await until('all are there', () => client.frames.length === 20);
  assert.equal(chunks.filter((chunk) => chunk.includes('piece')).length, 1);
  client.close();
});

/** Everything that a bare connection receives, until the other side ends it. */
async function rawStream(path: string, version: string, more: string): Promise<() => string> {
  const { hostname, port } = new URL(origin);
  const socket = connect(Number(port), hostname).setEncoding('utf8');
  let text = '';
  socket.on('data', (piece: string) => (text += piece));
  socket.write(
    `GET ${path} HTTP/${version}\r\nHost: ${hostname}\r\nAuthorization: Bearer ${key()}\r\n${more}\r\n`,
  );
  after(() => socket.destroy());
  return () => text;
}

const wantEvents = 'Accept: text/event-stream\r\n';

test('a stream is chunked as HTTP/1.1 says and keeps its connection', async () => {
  const { core } = world;
  const { runId } = await newRun();
  core.append(runId, delta(runId, 'ä😀'));
  core.settle(runId, { message: 'done' });
  const again = `GET /v1/nothing HTTP/1.1\r\nHost: x\r\n\r\n`;
  const received = await rawStream(`/v1/runs/${runId}/events`, '1.1', `${wantEvents}\r\n${again}`);
  await until('the second request is answered', () => received().includes('HTTP/1.1 404'));
  const [head, rest] = splitOnce(received(), '\r\n\r\n');
  assert.match(head, /^Transfer-Encoding: chunked$/im);
  let body = Buffer.from(rest);
  let events = '';
  for (;;) {
    const end = body.indexOf('\r\n');
    const size = Number.parseInt(body.subarray(0, end).toString(), 16);
    const chunk = body.subarray(end + 2, end + 2 + size);
    assert.equal(body.subarray(end + 2 + size, end + 4 + size).toString(), '\r\n');
    body = body.subarray(end + 4 + size);
    if (size === 0) break;
    events += chunk.toString();
  }
  assert.match(events, /"text":"ä😀"[^]*event: run\.completed\n.*\n\n$/);
  assert.match(body.toString(), /^HTTP\/1\.1 404/);
});

test('a client of HTTP/1.0 gets the events without chunks and the end of the connection', async () => {
  const { core } = world;
  const { runId } = await newRun();
  const received = await rawStream(`/v1/runs/${runId}/events`, '1.0', wantEvents);
  core.append(runId, delta(runId, 'live'));
  core.settle(runId, { message: 'done' });
  await until('the last event', () => received().includes('run.completed'));
  const [head, events] = splitOnce(received(), '\r\n\r\n');
  assert.doesNotMatch(head, /chunked/i);
  assert.match(events, /^id: 1\nevent: run\.queued\n/);
});

function splitOnce(text: string, mark: string): [string, string] {
  const at = text.indexOf(mark);
  return [text.slice(0, at), text.slice(at + mark.length)];
}

test('a client that does not read is let go at the limit; it can resume', async () => {
  const { core } = world;
  const { runId } = await newRun();
  const client = await openSse(`${origin}/v1/runs/${runId}/events`, { key: key(), pause: true });
  const before = world.app.edge.streams.size;
  assert.ok(before >= 1);
  const text = 'x'.repeat(64 * 1024);
  // How much the sockets take is for the machine to say.
  await until('it is let go', async () => {
    for (let i = 0; i < 100 && core.followers.size > 0; i += 1) {
      core.append(runId, delta(runId, text));
      await new Promise((resolve) => setImmediate(resolve));
    }
    return core.followers.size === 0 && world.app.edge.streams.size === 0;
  });
  client.close();
  const page = await world.call('GET', `/v1/runs/${runId}/events?after=0&limit=1`, { key: key() });
  assert.equal(page.status, 200);
});

test('JSON pages: newest first with a cursor, oldest first with after', async () => {
  const { core } = world;
  const { runId } = await newRun();
  for (let i = 0; i < 3; i += 1) core.append(runId, delta(runId, `${i}`));
  interface Page {
    events: { seq: number }[];
    nextCursor: string | null;
    hasMore: boolean;
  }
  const read = async (query: string) => {
    const reply = await world.call('GET', `/v1/runs/${runId}/events${query}`, { key: key() });
    assert.equal(reply.status, 200, reply.text);
    const page = reply.json as Page;
    return { ...page, events: page.events.map((event) => event.seq) };
  };
  assert.deepEqual(await read(''), { events: [4, 3, 2, 1], nextCursor: null, hasMore: false });
  assert.deepEqual(await read('?limit=2'), { events: [4, 3], nextCursor: 'more', hasMore: true });
  assert.deepEqual(await read('?after=1&limit=2'), { events: [2, 3], nextCursor: null, hasMore: true });
  assert.deepEqual(await read('?after=4'), { events: [], nextCursor: null, hasMore: false });
  const both = await world.call('GET', `/v1/runs/${runId}/events?after=1&cursor=more`, { key: key() });
  assert.equal(both.status, 400);
  const head = await world.call('HEAD', `/v1/runs/${runId}/events`, {
    headers: { accept: 'text/event-stream' },
  });
  assert.equal(head.headers.get('content-type'), 'application/json');
});

test('draining ends open streams and makes /readyz say so', async () => {
  const other = await edgeWorld();
  const address = await other.listen();
  const { runId } = await other.core.runs.send(other.resources.owner, {
    agentId: other.agent.id,
    conversationId: null,
    content: 'x',
    onBusy: 'enqueue',
    source: 'api',
    idempotency: null,
  });
  const client = await openSse(`${address}/v1/runs/${runId}/events`, { key: other.keys.use });
  await until('the first event', () => client.frames.length === 1);
  assert.equal((await other.call('GET', '/readyz', { key: null })).status, 200);
  other.app.drain();
  await until('it ends', () => client.ended);
  assert.ok(client.response.complete, 'ended in order, not cut');
  const ready = await other.call('GET', '/readyz', { key: null });
  assert.deepEqual([ready.status, (ready.json as { code: string }).code], [503, 'unavailable']);
  assert.equal(other.core.followers.size, 0);
  await other.close();
});
