import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { operations } from '../support/contract.ts';
import type { World } from '../support/scenario-world.ts';
import { endSharedWorld, questionOf, sharedWorld } from '../support/scenario-world.ts';
import { openSse } from '../support/sse.ts';
import type { Reply } from '../support/service.ts';
import { channelWithEvent } from '../support/channel-event.ts';
import { madeSchedule } from '../support/schedule.ts';
import { endpointWithDelivery, nowhere } from '../support/webhook-endpoint.ts';
import { until } from '../support/until.ts';

after(endSharedWorld);

const callsFor = (world: World, content: string) =>
  world.model.requests.filter((request) => questionOf(request) === content).length;

const once = (key: string, more: Record<string, string> = {}) => ({ 'idempotency-key': key, ...more });
const replayed = (reply: Reply) => reply.headers.get('idempotent-replayed');

test('the same send twice, one after the other, makes one model call and gives the same answer', async () => {
  const world = await sharedWorld();
  const key = newId();
  const first = await world.send('only once', {}, once(key));
  const second = await world.send('only once', {}, once(key));
  assert.deepEqual([first.status, second.status], [200, 200]);
  assert.equal(second.text, first.text);
  assert.deepEqual([replayed(first), replayed(second)], [null, 'true']);
  assert.equal(callsFor(world, 'only once'), 1);
  const { conversationId } = first.body;
  const { messages } = (await world.call('GET', `/v1/conversations/${conversationId}/messages`)).body;
  assert.equal(messages.length, 2);
});

test('the same send ten times at the same moment makes one model call and gives all the same answer', async () => {
  const world = await sharedWorld();
  const key = newId();
  const replies = await Promise.all(
    Array.from({ length: 10 }, () => world.send('at the same moment', {}, once(key))),
  );
  assert.equal(new Set(replies.map(({ text }) => text)).size, 1, replies[0]!.text);
  assert.equal(replies[0]!.status, 200);
  assert.equal(replies.filter((reply) => replayed(reply) === null).length, 1);
  assert.equal(callsFor(world, 'at the same moment'), 1);
});

test('the same send while the first is under way waits for the one run, and both get its answer', async () => {
  const world = await sharedWorld();
  const key = newId();
  const content = 'hold: twin';
  const first = world.send(content, {}, once(key));
  await until('the model is asked', () => callsFor(world, content) === 1);
  const second = world.send(content, {}, once(key));
  const early = await world.send(content, {}, once(key, { prefer: 'respond-async' }));
  assert.deepEqual([early.status, early.body.status, replayed(early)], [202, 'running', 'true']);
  world.release('twin');
  const [one, two] = await Promise.all([first, second]);
  assert.equal(one.status, 200);
  assert.equal(two.text, one.text);
  assert.equal(one.body.runId, early.body.runId);
  assert.equal(callsFor(world, content), 1);
});

test('the same send streamed twice at the same moment and once later is one run with the same events', async () => {
  const world = await sharedWorld();
  const key = newId();
  const body = { agentId: world.agentId, content: 'count: 30 2' };
  const open = () =>
    openSse(`${world.service.url}/api/v1/chat/send`, {
      key: world.keys.owner,
      method: 'POST',
      headers: once(key),
      body,
    });
  const before = callsFor(world, body.content);
  const viewers = await Promise.all([open(), open()]);
  await until('both streams have ended', () => viewers.every(({ ended }) => ended));
  const late = await open();
  await until('the late stream has ended', () => late.ended);
  const [one, two] = viewers;
  assert.ok(one!.frames.length > 4);
  assert.deepEqual(two!.frames, one!.frames);
  // By then the deltas may have been joined; what they say has not changed.
  const said = (client: typeof late) =>
    client.frames
      .filter(({ event }) => event === 'message.delta')
      .map(({ data }) => JSON.parse(data!).data.text)
      .join('');
  assert.equal(said(late), said(one!));
  assert.equal(late.frames.at(-1)?.event, 'run.completed');
  assert.equal(late.headers['idempotent-replayed'], 'true');
  assert.equal(callsFor(world, body.content) - before, 1);
  const json = await world.send(body.content, {}, once(key));
  assert.deepEqual([json.status, json.body.message.content], [200, said(late)]);
});

test('422: an Idempotency-Key that was used for another send is refused, and nothing is sent', async () => {
  const world = await sharedWorld();
  const key = newId();
  const sent = await world.send('the first', {}, once(key));
  const { conversationId } = sent.body;
  for (const [content, more] of [
    ['the second', {}],
    ['the first', { conversationId }],
    ['the first', { agentId: world.otherAgentId }],
  ] as const) {
    const reply = await world.send(content, more, once(key));
    assert.deepEqual([reply.status, reply.body.code], [422, 'idempotency_key_reused']);
  }
  assert.equal(callsFor(world, 'the second'), 0);
  // Another API key has Idempotency-Keys of its own.
  const other = await world.as(world.keys.orgUse)(
    'POST',
    '/api/v1/chat/send',
    { agentId: world.agentId, content: 'mine' },
    once(key),
  );
  assert.equal(other.status, 200);
});

/** A good request for each POST besides the send, and how it differs for the 422; null = it takes no other input. */
async function postRequests(
  world: World,
): Promise<Record<string, [path: string, body?: object, other?: object]>> {
  const { agentId } = world;
  const deployments = await world.call('GET', `/v1/agents/${agentId}/deployments`);
  const { id } = deployments.body.deployments.find((one: { status: string }) => one.status === 'ready');
  const snapshots = `/sandbox/${world.otherAgentId}/snapshots`;
  const taken = await world.call('POST', snapshots, {});
  const { conversationId } = (await world.send('to be forked')).body;
  const { channelId, inboundEventId } = await channelWithEvent(world.call, world.service.url, agentId);
  const { endpointId, deliveryId } = await endpointWithDelivery(world.call);
  const scheduleId = await madeSchedule(world.call, agentId);
  const held = await world.send('hold: cancelled', {}, { prefer: 'respond-async' });
  return {
    createAgent: ['/v1/agents', { name: 'Once' }, { name: 'Twice' }],
    createAgentKey: [`/v1/agents/${agentId}/api-keys`, { name: 'once' }, { name: 'twice' }],
    createKey: [
      '/v1/api-keys',
      { name: 'once', scope: 'use', binding: 'org-bound' },
      { name: 'once', scope: 'edit', binding: 'org-bound' },
    ],
    createDeployment: [`/v1/agents/${agentId}/deployments`, {}, { ref: 'main' }],
    activateDeployment: [`/v1/agents/${agentId}/deployments/${id}/activate`],
    startSandbox: [`/sandbox/${world.otherAgentId}/start`],
    restartSandbox: [`/sandbox/${world.otherAgentId}/restart`],
    stopSandbox: [`/sandbox/${world.otherAgentId}/stop`],
    killSandbox: [`/sandbox/${world.otherAgentId}/kill`],
    createSnapshot: [snapshots, { name: 'once' }, { name: 'twice' }],
    restoreSnapshot: [
      `${snapshots}/${taken.body.snapshot.id}/restore`,
      {},
      { toAgentId: world.otherAgentId },
    ],
    forkConversation: [`/v1/conversations/${conversationId}/fork`, { title: 'once' }, { title: 'twice' }],
    execInSandbox: [
      `/sandbox/${world.otherAgentId}/exec`,
      { command: ['sh', '-c', 'date +%s%N'] },
      { command: ['date'] },
    ],
    createChannel: [
      `/v1/agents/${agentId}/channels`,
      { kind: 'generic', name: 'once' },
      { kind: 'generic', name: 'twice' },
    ],
    pauseChannel: [`/v1/channels/${channelId}/pause`],
    resumeChannel: [`/v1/channels/${channelId}/resume`],
    rotateChannelSecret: [
      `/v1/channels/${channelId}/rotate-secret`,
      {},
      { value: `whsec_${'a'.repeat(43)}=` },
    ],
    testChannel: [`/v1/channels/${channelId}/test`, { event: 'generic.once' }, { event: 'generic.twice' }],
    replayInboundEvents: [
      `/v1/agents/${agentId}/inbound-events/replay`,
      { since: '2026-01-01T00:00:00Z' },
      { since: '2026-01-02T00:00:00Z' },
    ],
    createSchedule: [
      `/v1/agents/${agentId}/schedules`,
      { cron: '@yearly', content: 'once' },
      { cron: '@yearly', content: 'twice' },
    ],
    pauseSchedule: [`/v1/schedules/${scheduleId}/pause`],
    resumeSchedule: [`/v1/schedules/${scheduleId}/resume`],
    runSchedule: [`/v1/schedules/${scheduleId}/run`],
    createWebhookEndpoint: [
      '/v1/webhook-endpoints',
      { url: `${nowhere}/once`, events: ['run.failed'] },
      { url: `${nowhere}/twice`, events: ['run.failed'] },
    ],
    testWebhookEndpoint: [`/v1/webhook-endpoints/${endpointId}/test`],
    retryWebhookDelivery: [`/v1/webhook-endpoints/${endpointId}/deliveries/${deliveryId}/retry`],
    retryWebhookDeliveries: [
      `/v1/webhook-endpoints/${endpointId}/retry`,
      { since: '2026-11-28T00:00:00Z' },
      { since: '2026-11-27T00:00:00Z' },
    ],
    rotateWebhookEndpointSecret: [`/v1/webhook-endpoints/${endpointId}/rotate-secret`],
    disableWebhookEndpoint: [`/v1/webhook-endpoints/${endpointId}/disable`],
    enableWebhookEndpoint: [`/v1/webhook-endpoints/${endpointId}/enable`],
    replayInboundEvent: [`/v1/inbound-events/${inboundEventId}/replay`],
    cancelRun: [`/v1/runs/${held.body.runId}/cancel`],
  };
}

test('every POST keeps its Idempotency-Key: the first answer again byte for byte, once done, 422 for another body', async () => {
  const world = await sharedWorld();
  const requests = await postRequests(world);
  // A run that asks for permission is needed for the one, and the other has the tests above.
  const elsewhere = ['respondToRun', 'sendMessage'];
  const posts = operations.filter(({ method }) => method === 'POST').map((one) => one.operation.operationId);
  assert.deepEqual([...Object.keys(requests), ...elsewhere].sort(), posts.sort());
  for (const [id, [path, body, other]] of Object.entries(requests)) {
    let key = newId();
    let first = await world.call('POST', path, body, once(key));
    // The service may be at its own next attempt just then, which ends at once.
    if (id === 'retryWebhookDelivery')
      await until('no other attempt is under way', async () => {
        if (first.status === 409) first = await world.call('POST', path, body, once((key = newId())));
        return first.status !== 409;
      });
    assert.ok(first.status < 300, `${id}: ${first.text}`);
    const second = await world.call('POST', path, body, once(key));
    assert.deepEqual([second.status, second.text], [first.status, first.text], id);
    assert.equal(second.headers.get('location'), first.headers.get('location'), id);
    assert.deepEqual([replayed(first), replayed(second)], [null, 'true'], id);
    const changed = other
      ? await world.call('POST', path, other, once(key))
      : await world.call('POST', '/v1/agents', { name: 'Elsewhere' }, once(key));
    assert.deepEqual([changed.status, changed.body.code], [422, 'idempotency_key_reused'], id);
  }
  const names = (await world.call('GET', '/v1/agents?limit=100')).body.agents.map(
    ({ name }: { name: string }) => name,
  );
  assert.equal(names.filter((name: string) => name === 'Once').length, 1);
  assert.ok(!names.includes('Twice') && !names.includes('Elsewhere'));
});

test('409: a POST whose first is still under way is refused, and gets the first answer afterwards', async () => {
  const world = await sharedWorld();
  const key = newId();
  const create = () => world.call('POST', '/v1/agents', { name: 'Slow' }, once(key));
  let both: Promise<Reply>[] = [];
  await world.db.tx(async () => {
    // Nobody can insert an agent until this transaction ends, so that one request stays under way. Which of the two that
    // is, is open; the other is answered first.
    await world.db.sql`lock table agents in share mode`;
    both = [create(), create()];
    const refused = await Promise.race(both);
    assert.deepEqual([refused.status, refused.body.code], [409, 'idempotency_in_progress']);
    assert.match(refused.headers.get('retry-after') ?? '', /^[1-9]\d*$/);
  });
  const made = (await Promise.all(both)).find(({ status }) => status !== 409)!;
  assert.equal(made.status, 201, made.text);
  assert.equal((await create()).text, made.text);
});

test('a refusal that time can mend is not kept: the same request succeeds later', async () => {
  const world = await sharedWorld();
  const opened = await world.send('hold: keeps busy', {}, { prefer: 'respond-async' });
  const { conversationId } = opened.body;
  const key = newId();
  const again = () => world.send('again', { conversationId, onBusy: 'reject' }, once(key));
  assert.equal((await again()).status, 409);
  world.release('keeps');
  await until('the conversation is free', async () => (await again()).status === 200);
});
