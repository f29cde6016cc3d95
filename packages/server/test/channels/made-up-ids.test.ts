import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { slackDelivery, slackSecret } from './fixtures/slack.ts';
import { channelWorld, slackRequest } from './world.ts';

let world: Awaited<ReturnType<typeof channelWorld>>;
before(async () => {
  world = await channelWorld();
});
after(() => world.close());

test('an event whose id is made to look like a retry of another, or like a hash, is an event of its own', async () => {
  const { channel } = await world.service.create(world.owner, world.agentId, {
    kind: 'slack',
    credentials: { signingSecret: slackSecret, botToken: 'xoxb-secret' },
  });
  const say = (id: string, ts: string) =>
    slackDelivery(
      { type: 'app_mention', user: 'U061F7AUR', text: `<@U0BOT> ${ts}`, ts, channel: `C${ts}` },
      id,
    );
  const long = 'E'.repeat(400);
  const retried = { 'x-slack-retry-num': '1', 'x-slack-retry-reason': 'http_timeout' };
  await world.inbox.receive('slack', channel.id, slackRequest(say('EvX', '1.1')));
  await world.inbox.receive('slack', channel.id, slackRequest(say('EvX', '1.1'), slackSecret, retried));
  await world.inbox.receive('slack', channel.id, slackRequest(say(long, '1.2')));
  const rows = await world.db.sql<{ key: string; kind: string }[]>`
    select delivery_key as key, kind from inbound_events where channel_id = ${channel.id} order by id`;
  assert.deepEqual(
    rows.map(({ kind }) => kind),
    ['slack.message', 'slack.retry', 'slack.message'],
  );
  // Whoever knows how keys are made sends them as ids.
  for (const [index, { key }] of rows.slice(1).entries()) {
    await world.inbox.receive('slack', channel.id, slackRequest(say(key, `2.${index}`)));
  }
  const kinds = await world.db.sql<{ kind: string }[]>`
    select kind from inbound_events where channel_id = ${channel.id} order by id`;
  assert.equal(kinds.filter(({ kind }) => kind === 'slack.message').length, 4);
});
