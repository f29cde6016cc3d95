import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { providerStandIn } from '../support/provider-stand-in.ts';
import { until } from '../support/until.ts';
import { slackSecret } from './fixtures/slack.ts';
import { channelWorld, mention, slackRequest } from './world.ts';

let world: Awaited<ReturnType<typeof channelWorld>>;
let slack: Awaited<ReturnType<typeof providerStandIn>>;
/** Before the next message is taken, and before it is told what arrived. */
let refusals = 0;
let lookupRefusals = 0;
/** Whether the next message is taken without a word. */
let isSilent = false;
const posted: unknown[] = [];
const tooMany = { status: 429, headers: { 'retry-after': '0' }, body: { ok: false, error: 'ratelimited' } };

before(async () => {
  world = await channelWorld();
  slack = await providerStandIn(({ path, body }) => {
    if (path.startsWith('/conversations.')) {
      if ((lookupRefusals -= 1) >= 0) return tooMany;
      return { body: { ok: true, messages: posted } };
    }
    if ((refusals -= 1) >= 0) return tooMany;
    posted.push(JSON.parse(body));
    if (!isSilent) return { body: { ok: true, ts: '1.1' } };
    isSilent = false;
    return null;
  });
  world.worker.start();
});
after(async () => {
  await world.close();
  await slack.close();
});

async function channelWithMessage(number: number): Promise<string> {
  const { channel } = await world.service.create(world.owner, world.agentId, {
    kind: 'slack',
    credentials: { signingSecret: slackSecret, botToken: 'xoxb-1' },
    apiBaseUrl: slack.url,
  });
  await world.inbox.receive('slack', channel.id, slackRequest(mention(number)));
  return channel.id;
}

/** As if the time to its next attempt had passed, each time. */
const settled = (channelId: string) =>
  until('the event is settled', async () => {
    await world.db.sql`
      update inbound_events set due_at = now()
      where channel_id = ${channelId} and due_at > now() and claimed_by is null and reason is not null`;
    world.worker.wake();
    const [row] = await world.db.sql<{ state: string; reason: string | null }[]>`
      select state, reason from inbound_events where channel_id = ${channelId}`;
    return row && row.state !== 'queued' && row.state !== 'processing' ? row : null;
  });

test('an answer of which the provider says again and again that it is too many is sent when it is not any more', async () => {
  refusals = 20;
  const channelId = await channelWithMessage(1);
  assert.deepEqual(await settled(channelId), { state: 'done', reason: null });
  const posts = slack.calls.filter(({ path }) => path === '/chat.postMessage');
  assert.equal(posts.length, 21);
  // What was refused did not arrive: nobody has to be asked.
  assert.equal(slack.calls.length, posts.length);
});

test('a look-up of which the provider says so again and again costs no attempt, and the answer is not sent twice', async () => {
  [refusals, lookupRefusals, isSilent] = [0, 20, true];
  const [before, calls] = [posted.length, slack.calls.length];
  const channelId = await channelWithMessage(3);
  assert.deepEqual(await settled(channelId), { state: 'done', reason: null });
  assert.equal(posted.length, before + 1);
  assert.equal(slack.calls.length - calls, 1 + 21);
  const [row] = await world.db.sql`select attempts from inbound_events where channel_id = ${channelId}`;
  assert.ok(row!['attempts'] < 5, String(row!['attempts']));
});

test('a provider that says so for hours ends that, by the usual number of attempts', async () => {
  refusals = Infinity;
  const channelId = await channelWithMessage(2);
  await until('its turn has begun', async () => {
    // As if that had been long ago; the history goes on when it ends.
    const { count } = await world.db.sql`
      update inbound_events set history = jsonb_set(history, '{1,at}',
        to_jsonb(to_char(now() at time zone 'utc' - interval '7 hours', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')))
      where channel_id = ${channelId} and state = 'processing' and jsonb_array_length(history) = 2`;
    return count > 0;
  });
  assert.deepEqual(await settled(channelId), {
    state: 'dead',
    reason: 'The provider answered with status 429.',
  });
});
