import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { providerStandIn } from '../support/provider-stand-in.ts';
import { until } from '../support/until.ts';
import { standardSecret } from './fixtures/code.ts';
import { hookUrl, signed } from './fixtures/fixture.ts';
import { address, mime, mimeFixture } from './fixtures/mail.ts';
import { slackDelivery, slackSecret } from './fixtures/slack.ts';
import { channelWorld, slackRequest } from './world.ts';

let world: Awaited<ReturnType<typeof channelWorld>>;
let provider: Awaited<ReturnType<typeof providerStandIn>>;

before(async () => {
  world = await channelWorld();
  provider = await providerStandIn(({ path }) =>
    path.startsWith('/conversations.')
      ? { body: { ok: true, messages: [] } }
      : { body: { ok: true, id: 's', ts: '1.1' } },
  );
  world.worker.start();
});
after(async () => {
  await world.close();
  await provider.close();
});

async function mailChannel(settings: Record<string, number>): Promise<string> {
  const { channel } = await world.service.create(world.owner, world.agentId, {
    kind: 'email',
    settings: { provider: 'mime', address, sender: 'resend', ...settings },
    credentials: { webhookSecret: standardSecret, apiKey: 're_1' },
    apiBaseUrl: provider.url,
  });
  return channel.id;
}

/** A mail with this id, of which nothing says that a machine has written it; its state and reason in the end. */
async function mail(channelId: string, id: string, headers: string[] = [], from = 'ada@example.com') {
  const body = mime({ id }, headers).replace('ada@example.com', from);
  const unsigned = { body, url: hookUrl, headers: { 'X-Envelope-To': address } };
  await world.inbox.receive('email', channelId, signed(mimeFixture, unsigned, Date.now()));
  return settled(channelId);
}

async function settled(channelId: string): Promise<string> {
  return until('the event is settled', async () => {
    const [last] = await world.db.sql<{ state: string; reason: string | null }[]>`
      select state, reason from inbound_events where channel_id = ${channelId} order by received_at desc, id desc limit 1`;
    const isOpen = !last || last.state === 'queued' || last.state === 'processing';
    return isOpen ? null : [last.state, last.reason].filter(Boolean).join(' ');
  });
}

const answersTo = (who: string) =>
  provider.calls.filter(({ path, body }) => path === '/emails' && body.includes(who));

test('a machine that answers each answer with a mail of its own, in no thread, is answered so often in an hour', async () => {
  const channelId = await mailChannel({ maxAnswersPerSender: 3 });
  const ends: string[] = [];
  for (let number = 1; number <= 5; number += 1)
    ends.push(await mail(channelId, `4${number}`, [], 'machine@example.com'));
  assert.deepEqual(ends, ['done', 'done', 'done', 'ignored too_many_answers', 'ignored too_many_answers']);
  assert.equal(answersTo('machine@example.com').length, 3);
  assert.equal(await mail(channelId, '46', [], 'person@example.com'), 'done');
  // Whoever it says that it is: answers go to the same address.
  assert.equal(
    await mail(channelId, '47', ['Reply-To: machine@example.com'], 'other@example.com'),
    'ignored too_many_answers',
  );
  const again = await mailChannel({ maxAnswersPerSender: 3 });
  assert.equal(await mail(again, '48', [], 'machine@example.com'), 'done');
  await world.db.sql`
    update inbound_events set received_at = received_at - interval '61 minutes' where channel_id = ${channelId}`;
  assert.equal(await mail(channelId, '49', [], 'machine@example.com'), 'done');
});

test('one conversation has so many answers in an hour, and another one of the same person still has some', async () => {
  const channelId = await mailChannel({ maxAnswersPerHour: 2 });
  assert.equal(await mail(channelId, '61'), 'done');
  const inThread = ['In-Reply-To: <q61@example.com>'];
  assert.equal(await mail(channelId, '62', inThread), 'done');
  assert.equal(await mail(channelId, '63', inThread), 'ignored too_many_answers');
  assert.equal(await mail(channelId, '64'), 'done');
});

test('a channel that was made before there was a cap has the usual one', async () => {
  const channelId = await mailChannel({});
  assert.equal(await mail(channelId, '71', [], 'old@example.com'), 'done');
  await world.db.sql`update channels set settings = settings - 'maxAnswersPerSender' where id = ${channelId}`;
  await world.db.sql`
    insert into inbound_events (id, channel_id, org_id, agent_id, kind, state, delivery_key, place, history, received_at,
      last_seen_at, run_id, sender)
    select uuid_v7(), channel_id, org_id, agent_id, kind, state, 'made:' || n, 0, '[]', received_at, received_at, uuid_v7(),
      sender from inbound_events, generate_series(1, 29) n where channel_id = ${channelId}`;
  assert.equal(await mail(channelId, '72', [], 'old@example.com'), 'ignored too_many_answers');
});

test('with allowBots another bot is answered so often in an hour, and people are not counted', async () => {
  const { channel } = await world.service.create(world.owner, world.agentId, {
    kind: 'slack',
    settings: { respondTo: 'all', allowBots: true, maxAnswersPerSender: 2 },
    credentials: { signingSecret: slackSecret, botToken: 'xoxb-1' },
    apiBaseUrl: provider.url,
  });
  let number = 0;
  const say = async (by: Record<string, string>) => {
    const ts = `1759999990.00000${(number += 1)}`;
    const said = { type: 'message', text: 'hello', ts, channel: 'C0LAN2Q65', ...by };
    await world.inbox.receive('slack', channel.id, slackRequest(slackDelivery(said, `Ev-caps-${number}`)));
    return settled(channel.id);
  };
  const bot = { bot_id: 'B0OTHER', app_id: 'A0OTHER' };
  const ends = [await say(bot), await say(bot), await say(bot), await say({ ...bot, bot_id: 'B0THIRD' })];
  assert.deepEqual(ends, ['done', 'done', 'ignored too_many_answers', 'done']);
  for (const _ of ends) assert.equal(await say({ user: 'U061F7AUR' }), 'done');
});
