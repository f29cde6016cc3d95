import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { DomainError } from '../../src/domain/errors.ts';
import { providerStandIn } from '../support/provider-stand-in.ts';
import type { Script } from '../support/fake-sandbox.ts';
import { echo } from '../support/run-world.ts';
import { until } from '../support/until.ts';
import { slackSecret } from './fixtures/slack.ts';
import { channelParts, channelWorld, slackRequest, threadMessage } from './world.ts';

type Parts = ReturnType<typeof channelParts>;

let world: Awaited<ReturnType<typeof channelWorld>>;
/** The inbox, the work and the answers of another replica. */
let other: Parts;
let slack: Awaited<ReturnType<typeof providerStandIn>>;
/** Turns that say "wait" go on when the test says so. */
let gate = Promise.withResolvers<void>();
let failNext = 0;

before(async () => {
  const script: Script = async (turn, sandbox) => {
    if (turn.content.includes('wait')) await gate.promise;
    return echo(turn, sandbox);
  };
  world = await channelWorld({ script });
  other = channelParts(await world.addReplica({ script }));
  slack = await providerStandIn(() => {
    if (failNext === 0) return { body: { ok: true, ts: '1.1' } };
    failNext -= 1;
    return { status: 503, body: { ok: false } };
  });
  world.worker.start();
  other.worker.start();
});
after(async () => {
  gate.resolve();
  await other.close();
  await world.close();
  await slack.close();
});

async function slackChannel() {
  const { channel } = await world.service.create(world.owner, world.agentId, {
    kind: 'slack',
    credentials: { signingSecret: slackSecret, botToken: 'xoxb-secret' },
    apiBaseUrl: slack.url,
  });
  return channel.id;
}

const eventsOf = (channelId: string) => world.db.sql<
  {
    id: string;
    state: string;
    runId: string | null;
    conversationId: string | null;
    joinedTo: string | null;
  }[]
>`
  select id, state, run_id as "runId", conversation_id as "conversationId", joined_to as "joinedTo"
  from inbound_events where channel_id = ${channelId} order by id`;
const settled = (channelId: string, count: number) =>
  until(`${count} events of the channel are done`, async () => {
    const rows = await eventsOf(channelId);
    return rows.length === count && rows.every(({ state }) => state === 'done');
  });
/** The first event of the channel, once an attempt at its answer was made and the next one waits. */
const postponed = (channelId: string) =>
  until('the next attempt waits', async () => {
    const [row] = await world.db.sql<{ id: string }[]>`
      select id from inbound_events
      where channel_id = ${channelId} and state = 'processing' and attempts > 0 and claimed_by is null`;
    return row;
  });
const saidIn = async (conversationId: string, role: string) =>
  (await world.log(conversationId)).flatMap((event) =>
    event.type === 'message.created' && event.data.role === role ? [event.data.content] : [],
  );
const answersTo = (since: number) =>
  slack.calls
    .slice(since)
    .filter(({ path }) => path === '/chat.postMessage')
    .map(({ body }) => (JSON.parse(body) as { markdown_text: string }).markdown_text);

test('messages that come during a turn are answered together by the next one, once, by whoever spoke', async () => {
  const channelId = await slackChannel();
  const before = slack.calls.length;
  gate = Promise.withResolvers();
  const take = (parts: Parts, ts: string, text: string, user?: string) =>
    parts.inbox.receive('slack', channelId, slackRequest(threadMessage(ts, '1.0', text, user)));
  await take(world, '1.0', 'wait');
  await until('the first turn has begun', async () => (await eventsOf(channelId))[0]?.state === 'processing');
  await take(other, '1.1', 'one', 'U1');
  await take(world, '1.2', 'two', 'U2');
  // The same message once more, under another id of delivery.
  const twin = threadMessage('1.2', '1.0', 'two', 'U2');
  await world.inbox.receive(
    'slack',
    channelId,
    slackRequest({ ...twin, body: twin.body.toString().replace('"Ev-1.2"', '"EvTwin"') }),
  );
  await take(other, '1.3', 'three', 'U1');
  const held = await eventsOf(channelId);
  assert.deepEqual(
    held.map(({ state }) => state),
    ['processing', 'queued', 'queued', 'queued', 'queued'],
  );
  gate.resolve();
  await until('all are settled', async () =>
    (await eventsOf(channelId)).every(({ state }) => state === 'done' || state === 'duplicate'),
  );
  const rows = await eventsOf(channelId);
  const [first, next, ...joined] = rows;
  assert.equal(rows.filter(({ state }) => state === 'duplicate').length, 1);
  const together = joined.filter(({ state }) => state === 'done');
  assert.deepEqual(
    together.map(({ runId, joinedTo }) => [runId, joinedTo]),
    together.map(() => [next!.runId, next!.id]),
  );
  assert.notEqual(next!.runId, first!.runId);
  assert.deepEqual(await saidIn(first!.conversationId!, 'user'), ['wait', 'U1: one\n\nU2: two\n\nU1: three']);
  assert.deepEqual(answersTo(before), ['wait', 'U1: one\n\nU2: two\n\nU1: three']);
});

test('what is said in a conversation is heard in the order in which it was taken, whichever replica took it', async () => {
  const channelId = await slackChannel();
  const words = Array.from({ length: 24 }, (_, index) => `w${index}`);
  for (const [index, word] of words.entries()) {
    const parts = index % 2 === 0 ? world : other;
    await parts.inbox.receive('slack', channelId, slackRequest(threadMessage(`2.${index}`, '2.0', word)));
  }
  await settled(channelId, words.length);
  const rows = await eventsOf(channelId);
  assert.equal(new Set(rows.map(({ conversationId }) => conversationId)).size, 1);
  const said = await saidIn(rows[0]!.conversationId!, 'user');
  assert.deepEqual(
    said.flatMap((content) => content.split('\n\n')),
    words,
  );
});

test('an answer that the provider takes later is before the answer to what was said after it', async () => {
  const channelId = await slackChannel();
  const before = slack.calls.length;
  failNext = 1;
  await world.inbox.receive('slack', channelId, slackRequest(threadMessage('3.0', '3.0', 'first')));
  await until('the first answer was refused', () => failNext === 0);
  await world.inbox.receive('slack', channelId, slackRequest(threadMessage('3.1', '3.0', 'second')));
  await postponed(channelId);
  assert.deepEqual(
    (await eventsOf(channelId)).map(({ state }) => state),
    ['processing', 'queued'],
  );
  await world.db.sql`
    update inbound_events set due_at = now() where channel_id = ${channelId} and state = 'processing'`;
  await settled(channelId, 2);
  assert.deepEqual(answersTo(before), ['first', 'first', 'second']);
});

test('an event that fails again and again does not hold back those behind it for ever', async () => {
  const channelId = await slackChannel();
  failNext = Infinity;
  await world.inbox.receive('slack', channelId, slackRequest(threadMessage('4.0', '4.0', 'lost')));
  await postponed(channelId);
  failNext = 0;
  await world.db.sql`
    update inbound_events set attempts = 5, due_at = now() + interval '1 hour' where channel_id = ${channelId}`;
  await world.inbox.receive('slack', channelId, slackRequest(threadMessage('4.1', '4.0', 'heard')));
  await until('the second one is answered', async () => (await eventsOf(channelId))[1]?.state === 'done');
  assert.equal((await eventsOf(channelId))[0]!.state, 'processing');
  await world.db.sql`
    update inbound_events set due_at = now() where channel_id = ${channelId} and due_at is not null`;
  await settled(channelId, 2);
});

test('a turn that was given up because the service ended during it is begun again, in its conversation and its place', async () => {
  const channelId = await slackChannel();
  const before = slack.calls.length;
  gate = Promise.withResolvers();
  await world.inbox.receive('slack', channelId, slackRequest(threadMessage('5.0', '5.0', 'wait for it')));
  const begun = await until('the turn goes on', async () => {
    const [row] = await eventsOf(channelId);
    return row?.runId ? row : null;
  });
  await world.inbox.receive('slack', channelId, slackRequest(threadMessage('5.1', '5.0', 'afterwards')));
  const lane = await until('the turn is claimed', async () => {
    const [found] = await world.db.sql<{ conversationId: string; epoch: string }[]>`
      select conversation_id as "conversationId", epoch::text from lanes where run_id = ${begun.runId}`;
    return found ?? null;
  });
  const error = { code: 'lost' as const, error: 'Lost.' };
  const givenUp = { reason: 'Lost.', maxAttempts: 1, error, delayMs: 0, countsAlways: true };
  await world.replica.life.endAttempt(lane, givenUp);
  gate.resolve();
  await settled(channelId, 2);
  const [again, next] = await eventsOf(channelId);
  assert.notEqual(again!.runId, begun.runId);
  assert.deepEqual(
    [again!.conversationId, next!.conversationId],
    [begun.conversationId, begun.conversationId],
  );
  assert.match(answersTo(before).join(' | '), /^wait for it.*afterwards$/s);
  const [{ history }] = (await world.db.sql`select history from inbound_events where id = ${begun.id}`) as [
    { history: { reason: string | null }[] },
  ];
  assert.equal(history.filter(({ reason }) => reason === 'turn_lost').length, 1);
});

test('an attempt that ends with its process does not count, but for an event that ends one after the other', async () => {
  const channelId = await slackChannel();
  failNext = 1;
  await world.inbox.receive('slack', channelId, slackRequest(threadMessage('6.0', '6.0', 'not my fault')));
  const row = await postponed(channelId);
  // As nine processes leave it that ended while they worked on it.
  await world.db.sql`
    update inbound_events set attempts = 8, cut_offs = 8, claimed_by = gen_random_uuid(), due_at = now() where id = ${row.id}`;
  await settled(channelId, 1);

  await world.inbox.receive('slack', channelId, slackRequest(threadMessage('7.0', '7.0', 'a trap')));
  await until('it is done', async () => (await eventsOf(channelId))[1]?.state === 'done');
  await world.db.sql`
    update inbound_events set state = 'queued', run_id = null, cut_offs = 20, claimed_by = gen_random_uuid(), due_at = now()
    where channel_id = ${channelId} and id <> ${row.id}`;
  await until('it is given up', async () => (await eventsOf(channelId))[1]?.state === 'dead');
});

test('a forgery that comes while a channel is being paused does not resume it', async () => {
  const channelId = await slackChannel();
  const forged = slackRequest(threadMessage('8.0', '8.0', 'forged'), 'another secret');
  await until('a forgery meets a channel that another replica has just paused', async () => {
    await world.service.resume(world.owner, channelId);
    await world.inbox.admit('slack', channelId);
    await other.service.pause(world.owner, channelId);
    const code = await world.inbox.receive('slack', channelId, forged).then(
      () => null,
      (error: DomainError) => error.code,
    );
    return code === 'signature_invalid';
  });
  const channel = await until('the owner is told why', async () => {
    const found = await other.service.get(world.owner, channelId);
    return found.lastError === null ? null : found;
  });
  assert.equal(channel.status, 'paused');
});

test('a delivery that is not stored in time is to be sent again, and is one event in the end', async () => {
  const hasty = channelParts(world.replica, undefined, { answerMs: 20 });
  const channelId = await slackChannel();
  const before = slack.calls.length;
  const request = slackRequest(threadMessage('9.0', '9.0', 'late'));
  await world.db.tx(async () => {
    // Whoever writes waits for the end of this transaction.
    await world.db.sql`lock table inbound_events in exclusive mode`;
    await assert.rejects(hasty.inbox.receive('slack', channelId, request), (error: DomainError) => {
      assert.deepEqual([error.code, error.retryAfterSeconds], ['unavailable', 2]);
      return true;
    });
  });
  assert.equal((await world.inbox.receive('slack', channelId, request)).status, 200);
  await until('both are counted', async () => {
    const [row] = await world.db.sql<{ copies: number }[]>`
      select retry_count as copies from inbound_events where channel_id = ${channelId}`;
    return row?.copies === 1;
  });
  await settled(channelId, 1);
  assert.deepEqual(answersTo(before), ['late']);
  await hasty.close();
});
