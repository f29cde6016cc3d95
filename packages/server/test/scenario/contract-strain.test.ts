import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { readConfig } from '../../src/config.ts';
import { checkAnswer } from '../support/contract.ts';
import type { World } from '../support/scenario-world.ts';
import { startWorld } from '../support/scenario-world.ts';
import type { Reply } from '../support/service.ts';
import { openSse } from '../support/sse.ts';
import { until } from '../support/until.ts';

/** A service of its own, with the default rate limit and room for one agent at work; the database is broken under it. */
let started: Promise<World> | undefined;
const world = () => (started ??= startWorld({ BERTH_RATE_LIMIT: '600/60', BERTH_MAX_ACTIVE_AGENTS: '1' }));
after(async () => (await started)?.end());

const refused = (reply: Reply, status: number, code: string) =>
  assert.deepEqual([reply.status, reply.body?.code], [status, code], reply.text.slice(0, 300));

const rateOf = (reply: Reply) => {
  const match = /^"default";r=(\d+);t=(\d+)$/.exec(reply.headers.get('ratelimit') ?? '');
  assert.ok(match, `RateLimit: ${reply.headers.get('ratelimit')}`);
  return { left: Number(match[1]), resetSeconds: Number(match[2]) };
};

test('every answer to a key tells its limit, 600 requests a minute by default, errors among them', async () => {
  const { as, mint, agentId, keys } = await world();
  const call = as(await mint({ scope: 'use' }));
  const requests: [string, string, unknown?][] = [
    ['GET', '/v1/agents'],
    ['GET', `/v1/agents/${agentId}`],
    ['GET', '/v1/agents/x'],
    ['POST', '/v1/agents', { name: 'x' }],
    ['POST', '/v1/agents', '{'],
    ['POST', '/api/v1/chat/send', { agentId, content: 'counted' }],
    ['GET', '/api/v2/agents'],
  ];
  let left = 600;
  for (const [method, path, body] of requests) {
    const reply = await call(method, path, body);
    assert.equal(reply.headers.get('ratelimit-policy'), '"default";q=600;w=60');
    const rate = rateOf(reply);
    // The bucket fills by ten a second meanwhile.
    assert.ok(rate.left < 600 && rate.left >= left - 1, `${rate.left} after ${left}`);
    assert.ok(rate.resetSeconds >= 1 && rate.resetSeconds <= 60);
    left = rate.left;
  }
  const keyless = await as(keys.owner)('GET', '/v1/agents', undefined, { authorization: '' });
  assert.equal(keyless.headers.get('ratelimit'), null);
});

test('GET /v1/limits tells what the headers tell, and who asks', async () => {
  const { as, mint, agentId } = await world();
  const call = as(await mint({ scope: 'edit', binding: 'agent-bound', agentId }));
  for (let count = 0; count < 5; count += 1) await call('GET', '/v1/agents');
  const { body, headers } = await call('GET', '/v1/limits');
  assert.deepEqual([body.key.scope, body.key.binding, body.key.agentId], ['edit', 'agent-bound', agentId]);
  const { quota, windowSeconds, used, remaining, resetSeconds } = body.rateLimit;
  assert.deepEqual([quota, windowSeconds, used + remaining], [600, 60, 600]);
  assert.ok(used >= 1 && used <= 6, `${used} used`);
  assert.equal(headers.get('ratelimit'), `"default";r=${remaining};t=${resetSeconds}`);
});

test('429 rate_limited: a key over its limit is told when to come again, does nothing, and may come again then', async () => {
  const { as, mint, db, call } = await world();
  const value = await mint({ scope: 'edit', name: 'slow one' });
  await db.sql`update api_keys set rate_limit_quota = 3, rate_limit_window_seconds = 60 where name = 'slow one'`;
  const slow = as(value);
  // At once: one after the other, the fourth could come so late that it is within the limit.
  const made = await Promise.all(
    [0, 1, 2, 3].map((count) => slow('POST', '/v1/agents', { name: `limited ${count}` })),
  );
  assert.deepEqual(made.map(({ status }) => status).toSorted(), [201, 201, 201, 429]);
  const over = made.findIndex(({ status }) => status === 429);
  const last = made[over]!;
  refused(last, 429, 'rate_limited');
  assert.equal(last.headers.get('ratelimit-policy'), '"default";q=3;w=60');
  assert.equal(rateOf(last).left, 0);
  const retrySeconds = Number(last.headers.get('retry-after'));
  assert.ok(retrySeconds >= 1 && retrySeconds <= 20, `Retry-After: ${retrySeconds}`);
  const names = (await call('GET', '/v1/agents')).body.agents.map(({ name }: { name: string }) => name);
  assert.deepEqual(
    [0, 1, 2, 3].filter((count) => !names.includes(`limited ${count}`)),
    [over],
  );

  // Of another key, which need not wait so long. It asks until it is refused, since a slow one of a few never would be.
  const brief = as(await mint({ scope: 'use', name: 'brief one' }));
  await db.sql`update api_keys set rate_limit_quota = 1, rate_limit_window_seconds = 2 where name = 'brief one'`;
  const told = await until('it is over its limit', async () => {
    const reply = await brief('GET', '/v1/limits');
    return reply.status === 429 ? reply : null;
  });
  refused(told, 429, 'rate_limited');
  const waitSeconds = Number(told.headers.get('retry-after'));
  assert.ok(waitSeconds >= 1 && waitSeconds <= 2, `Retry-After: ${waitSeconds}`);
  await delay(waitSeconds * 1_000);
  assert.equal((await brief('GET', '/v1/limits')).status, 200);
});

test('429 too_many_sandboxes: one agent too many at work is refused, and welcome when another is done', async () => {
  const { send, call, release, otherAgentId, model, agentId } = await world();
  const held = await send('hold: alone', {}, { prefer: 'respond-async' });
  assert.equal(held.status, 202);
  await until('the model is asked', () =>
    model.requests.some(({ bodyBytes }) => bodyBytes.includes('alone')),
  );
  const reply = await send('no room', { agentId: otherAgentId });
  refused(reply, 429, 'too_many_sandboxes');
  assert.match(reply.headers.get('retry-after') ?? '', /^[1-9]\d*$/);
  assert.deepEqual((await call('GET', `/v1/agents/${otherAgentId}/conversations`)).body.conversations, []);
  // The agent that is at work may be sent more.
  assert.equal((await send('more', { agentId }, { prefer: 'respond-async' })).status, 202);
  release('alone');
  await until('there is room', async () => (await send('room', { agentId: otherAgentId })).status === 200);
});

test('402 budget_exceeded: a send over the cap is refused and leaves no conversation', async () => {
  const { send, call, otherAgentId } = await world();
  const path = `/v1/agents/${otherAgentId}/budget`;
  const before = (await call('GET', `/v1/agents/${otherAgentId}/conversations`)).body.conversations;
  const put = await call('PUT', path, { period: 'day', limit: '0.000000' });
  assert.equal(put.status, 200, put.text);
  refused(await send('too dear', { agentId: otherAgentId }), 402, 'budget_exceeded');
  const after = (await call('GET', `/v1/agents/${otherAgentId}/conversations`)).body.conversations;
  assert.deepEqual(after, before);
});

test('after kill -9 and a restart a cursor, a Last-Event-ID and an Idempotency-Key still hold', async () => {
  const { send, call, service, agentId, model } = await world();
  const once = { 'idempotency-key': 'over a crash' };
  const first = await send('remembered', {}, once);
  const { conversationId } = first.body;
  await send('a second one', { conversationId });
  const runs = `/v1/agents/${agentId}/runs?limit=1`;
  const { nextCursor } = (await call('GET', runs)).body;
  const path = `/v1/conversations/${conversationId}/events`;
  const { events } = (await call('GET', `${path}?after=0&limit=100`)).body;
  const asked = model.requests.length;
  await service.kill9();
  await service.restart();
  const again = await send('remembered', {}, once);
  assert.deepEqual([again.text, again.headers.get('idempotent-replayed')], [first.text, 'true']);
  assert.equal(model.requests.length, asked);
  const page = await call('GET', `${runs}&cursor=${nextCursor}`);
  assert.equal(page.body.runs[0].id, first.body.runId);
  const stream = await openSse(`${service.url}${path}`, {
    key: service.key,
    headers: { 'last-event-id': '3' },
  });
  await until('the rest has come', () => stream.frames.length === events.length - 3);
  const frames = stream.frames.map(({ data }) => JSON.parse(data!));
  assert.deepEqual(frames, events.slice(3));
  const third = await send('a third one', { conversationId });
  assert.deepEqual([third.status, third.body.message.content], [200, 'A THIRD ONE']);
  await until(
    'it is seen too',
    () => stream.frames.length > events.length - 3 && stream.frames.at(-1)?.event === 'run.completed',
  );
  assert.equal(stream.frames[events.length - 3]?.id, String(events.length + 1));
  stream.close();
});

test('500 internal: our own failure names the request and says nothing of its cause, which is in the log', async () => {
  const { call, db, agentId, service } = await world();
  const path = `/v1/agents/${agentId}/deployments`;
  await db.sql`alter table deployments rename to deployments_away`;
  const reply = await call('GET', path);
  await db.sql`alter table deployments_away rename to deployments`;
  refused(reply, 500, 'internal');
  const requestId = reply.headers.get('x-request-id')!;
  assert.ok(reply.body.error.includes(requestId), reply.text);
  assert.doesNotMatch(reply.text, /deployments|relation|select|postgres|stack/i);
  assert.ok(!reply.text.includes(service.dataDir));
  // The last line may not have come whole.
  const lines = () => service.logs().split('\n').slice(0, -1);
  const line = await until('the log has it', () =>
    lines().find((text) => text.includes(requestId) && text.includes('error')),
  );
  assert.match(line, /relation .*deployments.* does not exist/);
  assert.equal((await call('GET', path)).status, 200);
});

test('503 unavailable: while the database is away calls say so and when to come again, and then go on', async () => {
  const { call, service, agentId } = await world();
  const { paths } = readConfig({ BERTH_DATA_DIR: service.dataDir });
  const pid = Number(readFileSync(join(paths.postgres, 'data', 'postmaster.pid'), 'utf8').split('\n', 1)[0]);
  // One that asks the database: an agent that was read a moment ago is answered from memory.
  const path = `/v1/agents/${agentId}/deployments`;
  process.kill(pid, 'SIGKILL');
  const met = new Set<number>();
  let away: Reply | undefined;
  await until('a call is refused', async () => {
    const reply = await call('GET', path);
    met.add(reply.status);
    if (reply.status === 503) away = reply;
    return away !== undefined;
  });
  refused(away!, 503, 'unavailable');
  assert.match(away!.headers.get('retry-after') ?? '', /^[1-9]\d*$/);
  const ready = await service.api('GET', '/readyz');
  assert.ok([200, 503].includes(ready.status));
  await until('the service is back', async () => {
    const reply = await call('GET', path);
    met.add(reply.status);
    return reply.status === 200;
  });
  assert.deepEqual(
    [...met].filter((status) => status !== 200 && status !== 503),
    [],
  );
  const sent = await call('POST', '/api/v1/chat/send', { agentId, content: 'afterwards' });
  assert.deepEqual([sent.status, sent.body.message?.content], [200, 'AFTERWARDS']);
});

test('429: failed authentication is limited per address, and a good key passes all the same', async () => {
  const { service, call } = await world();
  const bad = service.as('svc_live_guess');
  let reply = await bad('GET', '/v1/agents');
  for (let count = 0; count < 400 && reply.status === 401; count += 1) reply = await bad('GET', '/v1/agents');
  refused(reply, 429, 'rate_limited');
  checkAnswer('GET', '/v1/agents', reply);
  assert.match(reply.headers.get('retry-after') ?? '', /^[1-9]\d*$/);
  assert.equal((await call('GET', '/v1/agents')).status, 200);
});
