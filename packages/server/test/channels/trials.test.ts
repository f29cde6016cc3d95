import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { DomainError } from '../../src/domain/errors.ts';
import { limits } from '../../src/domain/limits.ts';
import { providerStandIn } from '../support/provider-stand-in.ts';
import { until } from '../support/until.ts';
import { slackDelivery, slackSecret } from './fixtures/slack.ts';
import { address } from './fixtures/mail.ts';
import { standardSecret } from './fixtures/code.ts';
import { channelParts, channelWorld, mention, slackRequest } from './world.ts';

let world: Awaited<ReturnType<typeof channelWorld>>;
let provider: Awaited<ReturnType<typeof providerStandIn>>;

before(async () => {
  world = await channelWorld();
  provider = await providerStandIn(() => ({ body: { ok: true, ts: '1.1', id: 'sent' } }));
  world.worker.start();
});
after(async () => {
  await world?.close();
  await provider?.close();
});

const slackChannel = async () =>
  (
    await world.service.create(world.owner, world.agentId, {
      kind: 'slack',
      credentials: { signingSecret: slackSecret, botToken: 'xoxb-secret' },
      apiBaseUrl: provider.url,
    })
  ).channel;

const withFile = () =>
  slackDelivery(
    {
      type: 'app_mention',
      user: 'U061F7AUR',
      text: '<@U0BOT> read it',
      ts: '1759999998.000001',
      channel: 'C0LAN2Q65',
      files: [
        { name: 'plan.pdf', mimetype: 'application/pdf', url_private_download: `${provider.url}/plan` },
      ],
    },
    'Ev-file',
  );

const refused = (code: string) => (error: unknown) => error instanceof DomainError && error.code === code;
const settled = (id: string) =>
  until('the event is settled', async () => {
    const row = await world.events.get(id);
    return row !== null && row.state !== 'queued' && row.state !== 'processing' ? row : null;
  });

test('a sample goes the whole way, and its answer goes nowhere unless that is asked for', async () => {
  const channel = await slackChannel();
  const calls = provider.calls.length;
  const tested = await world.service.test(world.owner, channel.id, { text: 'only here' });
  assert.deepEqual([tested.answer.status, tested.isVerified, tested.events.length], [200, true, 1]);
  const event = await settled(tested.events[0]!.id);
  assert.deepEqual([event.kind, event.state, event.reason], ['slack.message', 'done', 'sample']);
  const said = (await world.log(event.conversationId!)).flatMap((one) =>
    one.type === 'message.created' && one.data.role === 'user' ? [one.data.content] : [],
  );
  assert.deepEqual(said, ['only here']);
  assert.equal(provider.calls.length, calls);

  const sent = await world.service.test(world.owner, channel.id, { text: 'out', isAnswered: true });
  assert.equal((await settled(sent.events[0]!.id)).reason, null);
  assert.deepEqual(
    provider.calls.slice(calls).map(({ path }) => path),
    ['/chat.postMessage'],
  );
});

test('a sample that is tried within a transaction is stored apart from it, with all that came in at that moment', async (t) => {
  const channel = await slackChannel();
  const said = mention(77);
  const { db } = world.replica;
  const tried = Promise.withResolvers<string>();
  const over = Promise.withResolvers<void>();
  t.after(() => over.resolve());
  const rolledBack = db.tx(async () => {
    // Both are in one batch, which the caller with the transaction begins.
    const sample = world.service.test(world.owner, channel.id, { text: 'only here' });
    const { events } = await sample;
    tried.resolve(events[0]!.id);
    await over.promise;
    throw new Error('rolled back');
  });
  const delivered = world.inbox.receive('slack', channel.id, slackRequest(said));
  assert.equal((await settled(await tried.promise)).state, 'done');
  assert.equal((await delivered).status, 200);
  over.resolve();
  await assert.rejects(rolledBack, /rolled back/);
  const items = await world.events.list(world.agentId, { before: null, limit: 2 });
  assert.equal(items.length, 2);
  for (const { id } of items) assert.equal((await settled(id)).state, 'done');
});

test('an attempt that hangs is given up, says so on its event, and another one does the work', async () => {
  const hanging = channelParts(
    world.replica,
    { write: () => new Promise(() => {}) },
    { longestAttemptMs: 50 },
  );
  const channel = await slackChannel();
  await world.worker.stop();
  hanging.worker.start();
  let id: string;
  try {
    const sent = await hanging.inbox.receive('slack', channel.id, slackRequest(withFile()));
    assert.equal(sent.status, 200);
    const [event] = await world.events.list(world.agentId, { before: null, limit: 1 });
    id = event!.id;
    await until('its event tells that it was given up', async () =>
      /given up/.test((await world.events.get(id))?.reason ?? ''),
    );
    assert.equal((await world.events.get(id))?.state, 'queued');
  } finally {
    await hanging.close();
    world.worker.start();
  }
  // The other attempt has the usual time: so little may be too little for one that does not hang.
  await world.replica.db.sql`update inbound_events set due_at = now() where id = ${id}`;
  assert.equal((await settled(id)).state, 'done');
});

test('a sample of a retry is recorded beside its event, and is one turn', async () => {
  const channel = await slackChannel();
  const { events } = await world.service.test(world.owner, channel.id, { event: 'slack.retry' });
  const [message, retry] = events;
  assert.deepEqual([message!.kind, retry!.kind], ['slack.message', 'slack.retry']);
  assert.equal(retry!.duplicateOf, message!.id);
  assert.equal((await settled(message!.id)).state, 'done');
  assert.equal((await settled(retry!.id)).state, 'duplicate');
});

test('a sample of mail that lies at the provider is read without asking the provider', async () => {
  const { channel } = await world.service.create(world.owner, world.agentId, {
    kind: 'email',
    settings: { provider: 'resend', address },
    credentials: { webhookSecret: standardSecret, apiKey: 're_1' },
    apiBaseUrl: provider.url,
  });
  const calls = provider.calls.length;
  const { events } = await world.service.test(world.owner, channel.id, { event: 'email.received' });
  assert.equal((await settled(events[0]!.id)).reason, 'sample');
  assert.equal(provider.calls.length, calls);
});

test('what cannot be tried says why: a paused channel, an event of another kind, a caller without edit access', async () => {
  const channel = await slackChannel();
  const attempt = (input: Parameters<typeof world.service.test>[2], principal = world.owner) =>
    world.service.test(principal, channel.id, input);
  await assert.rejects(attempt({ event: 'email.received' }), refused('invalid_request'));
  await assert.rejects(attempt({ text: ' ' }), refused('invalid_request'));
  await assert.rejects(attempt({}, { ...world.owner, scope: 'use' as const }), refused('scope_insufficient'));
  const stranger = { ...world.owner, orgId: '01999999-0000-7000-8000-000000000000' };
  await assert.rejects(attempt({}, stranger), refused('not_found'));
  await world.service.pause(world.owner, channel.id);
  await assert.rejects(attempt({}), refused('conflict'));
});

test('all that failed since a time is worked on again, so many by one call, and none of it twice', async () => {
  const channel = await slackChannel();
  const other = await slackChannel();
  const since = new Date(Date.now() - 60_000);
  const body = Buffer.from('{}');
  const count = limits.replayedAtOnce + 2;
  // They have no such event any more, so that working on them ends at once, and they fail again.
  await world.db.sql`
    insert into inbound_events (id, channel_id, org_id, agent_id, kind, state, delivery_key, request, body, place,
                                history, received_at, last_seen_at)
    select gen_random_uuid(), ${channel.id}, ${channel.orgId}, ${channel.agentId}, 'slack.message', 'failed', n::text,
           ${world.db.sql.json({ method: 'POST', url: '/', headers: [['content-type', 'application/json']] })}, ${body},
           7, '[]', case when n = 1 then now() - interval '1 hour' else now() end, now()
    from generate_series(1, ${count}) n`;
  await world.worker.stop();
  const replay = (channelId: string | null) =>
    world.inboundEvents.replayFailed(world.owner, world.agentId, { since, channelId });
  assert.deepEqual(await replay(other.id), { replayed: 0, left: 0, doubtful: 0 });
  const twice = await Promise.all([replay(channel.id), replay(channel.id)]);
  assert.equal(twice[0].replayed + twice[1].replayed, count - 1);
  assert.deepEqual(await replay(channel.id), { replayed: 0, left: 0, doubtful: 0 });
  const [told] = await world.db.sql<{ queued: number; old: number; steps: number }[]>`
    select count(*) filter (where state = 'queued')::int as queued, count(*) filter (where state = 'failed')::int as old,
           max(jsonb_array_length(history))::int as steps
    from inbound_events where channel_id = ${channel.id}`;
  assert.deepEqual({ ...told }, { queued: count - 1, old: 1, steps: 1 });
  const user = { ...world.owner, scope: 'use' as const };
  await assert.rejects(
    world.inboundEvents.replayFailed(user, world.agentId, { since, channelId: null }),
    refused('scope_insufficient'),
  );
  await world.db.sql`delete from inbound_events where channel_id = ${channel.id}`;
  world.worker.start();
});
