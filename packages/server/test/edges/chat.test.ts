import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { request } from 'node:http';
import { newId } from '../../src/domain/ids.ts';
import type { CallOptions, EdgeWorld } from '../support/edge-world.ts';
import { edgeWorld } from '../support/edge-world.ts';
import { until } from '../support/until.ts';
import { openSse } from '../support/sse.ts';

let world: EdgeWorld;
let origin: string;
before(async () => {
  world = await edgeWorld();
  origin = await world.listen();
});
after(() => world.close());

const body = (more: Record<string, unknown> = {}) => ({
  agentId: world.agent.id,
  conversationId: null,
  content: 'hello',
  ...more,
});

const send = (more: Record<string, unknown> = {}, options: CallOptions = {}) =>
  world.call('POST', '/api/v1/chat/send', { key: world.keys.use, body: body(more), ...options });

/** The id of the run that the next send makes. */
async function nextRun(act: () => unknown): Promise<string> {
  const before = world.core.sends.length;
  void act();
  await until('it is accepted', () => world.core.sends.length > before);
  const runs = await world.core.runs.listForAgent(world.resources.owner, world.agent.id, {
    limit: 1,
    cursor: null,
  });
  return runs.items[0]!.id;
}

test('200 with the whole message when the run has ended', async () => {
  let reply: ReturnType<typeof send> | undefined;
  const runId = await nextRun(() => (reply = send()));
  world.core.settle(runId, { message: 'hi' });
  const { status, json, headers } = await reply!;
  const sent = json as Record<string, unknown> & { message: Record<string, unknown> };
  assert.equal(status, 200);
  assert.deepEqual(Object.keys(sent), ['agentId', 'conversationId', 'runId', 'status', 'message', 'usage']);
  assert.deepEqual([sent['runId'], sent['status'], sent['agentId']], [runId, 'completed', world.agent.id]);
  assert.deepEqual([sent.message['role'], sent.message['content']], ['assistant', 'hi']);
  assert.deepEqual(sent['usage'], { inputTokens: 3, outputTokens: 5, cost: '0.001250' });
  assert.equal(headers.get('preference-applied'), null);
});

test('200 with message null and the reason when the run failed or was cancelled', async () => {
  for (const end of [
    { status: 'failed' as const, error: { error: 'The model gave up.', code: 'model_error' as const } },
    { status: 'cancelled' as const },
  ]) {
    let reply: ReturnType<typeof send> | undefined;
    const runId = await nextRun(() => (reply = send()));
    world.core.settle(runId, end);
    const { status, json } = await reply!;
    const sent = json as { status: string; message: unknown; error: { error: string; code: string } };
    assert.deepEqual([status, sent.status, sent.message], [200, end.status, null]);
    assert.equal(sent.error.code, end.status === 'failed' ? 'model_error' : 'cancelled');
    assert.ok(sent.error.error.length > 0);
  }
});

test('202 with Location for respond-async, and for a run that outlasts wait=N', async () => {
  for (const [prefer, applied] of [
    ['respond-async', 'respond-async'],
    ['wait=0', 'wait=0'],
    ['Respond-Async, wait="0"; foo', 'respond-async, wait=0'],
  ]) {
    const reply = await send({}, { headers: { prefer: prefer! } });
    const sent = reply.json as Record<string, unknown>;
    assert.equal(reply.status, 202);
    assert.deepEqual(Object.keys(sent), ['agentId', 'conversationId', 'runId', 'status', 'message']);
    assert.deepEqual([sent['status'], sent['message']], ['queued', null]);
    assert.equal(reply.headers.get('location'), `/v1/runs/${String(sent['runId'])}`);
    assert.equal(reply.headers.get('preference-applied'), applied);
  }
});

test('400 for a wait that is no number from 0 to 600; unknown preferences are ignored', async () => {
  const before = world.core.sends.length;
  for (const prefer of ['wait=601', 'wait=-1', 'wait=soon', 'wait']) {
    assert.equal((await send({}, { headers: { prefer } })).status, 400);
  }
  assert.equal(world.core.sends.length, before);
  assert.equal((await send({}, { headers: { prefer: 'handling=strict, wait=0' } })).status, 202);
});

test('conversationId may be left out; content, onBusy and unknown fields are checked', async () => {
  const headers = { prefer: 'wait=0' };
  assert.equal((await send({ conversationId: undefined }, { headers })).status, 202);
  assert.equal(world.core.sends.at(-1)!.conversationId, null);
  assert.equal(world.core.sends.at(-1)!.onBusy, 'enqueue');
  assert.equal(world.core.sends.at(-1)!.source, 'api');
  assert.equal((await send({ content: '' }, { headers })).status, 400);
  assert.equal((await send({ content: 'a'.repeat(200_001) }, { headers })).status, 400);
  assert.equal((await send({ content: '😀'.repeat(200_000) }, { headers })).status, 202);
  assert.match(
    (await send({ onBusy: 'wait' }, { headers })).text,
    /must be one of enqueue, interrupt, reject/,
  );
  assert.match((await send({ agent: 'x' }, { headers })).text, /"path":"agent","message":"unknown field"/);
});

test('404 for an agent or conversation that is not there, not visible, or no id at all', async () => {
  for (const more of [
    { agentId: newId() },
    { agentId: world.resources.foreign.agent.id },
    { agentId: 'x' },
    { conversationId: newId() },
    { conversationId: 'x' },
  ]) {
    const reply = await send(more, { headers: { prefer: 'wait=0' } });
    assert.deepEqual(
      [reply.status, reply.text],
      [404, '{"error":"Not found.","code":"not_found"}'],
      JSON.stringify(more),
    );
  }
});

test('the same Idempotency-Key reaches the service with a hash of what must be the same', async () => {
  const key = newId();
  const headers = { prefer: 'wait=0', 'idempotency-key': key };
  const first = await send({}, { headers });
  const second = await send({ stream: false }, { headers });
  assert.equal(first.headers.get('idempotent-replayed'), null);
  assert.equal(second.headers.get('idempotent-replayed'), 'true');
  assert.equal((second.json as { runId: string }).runId, (first.json as { runId: string }).runId);
  const hash = () => world.core.sends.at(-1)!.idempotency!.requestHash;
  const same = hash();
  await send({}, { headers: { ...headers, 'idempotency-key': newId() } });
  assert.equal(hash(), same);
  await send({ content: 'other' }, { headers: { ...headers, 'idempotency-key': newId() } });
  assert.notEqual(hash(), same);
});

test('stream: true, or Accept, gives the events of the run until it ends', async () => {
  for (const [more, accept] of [
    [{ stream: true }, 'application/json'],
    [{}, 'text/event-stream'],
  ] as const) {
    const client = await openSse(`${origin}/api/v1/chat/send`, {
      key: world.keys.use,
      method: 'POST',
      headers: { accept },
      body: body(more),
    });
    await until('the first event', () => client.frames.length === 1);
    const { runId } = (JSON.parse(client.frames[0]!.data!) as { data: { runId: string } }).data;
    assert.equal(client.headers['content-location'], `/v1/runs/${runId}/events`);
    world.core.settle(runId, { message: 'hi' });
    await until('the stream ends', () => client.ended);
    assert.deepEqual(
      client.frames.map((frame) => frame.event),
      ['run.queued', 'run.completed'],
    );
  }
});

test('a client that goes away cancels nothing, and nobody waits for it any more', async () => {
  const client = await openSse(`${origin}/api/v1/chat/send`, {
    key: world.keys.use,
    method: 'POST',
    body: body({ stream: true }),
  });
  await until('the first event', () => client.frames.length === 1);
  const { runId } = (JSON.parse(client.frames[0]!.data!) as { data: { runId: string } }).data;
  client.close();
  await until('it is not followed any more', () => world.core.followers.size === 0);
  assert.equal(world.core.run(runId).status, 'queued');
  assert.deepEqual(world.core.cancelled, []);

  const waiting = request(`${origin}/api/v1/chat/send`, {
    method: 'POST',
    headers: { authorization: `Bearer ${world.keys.use}`, 'content-type': 'application/json' },
  });
  waiting.on('error', () => {});
  const second = await nextRun(() => waiting.end(JSON.stringify(body())));
  const before = world.logLines.length;
  waiting.destroy();
  await until('the wait ends early', () => world.logLines.length > before);
  assert.equal(world.core.run(second).status, 'queued');
});
