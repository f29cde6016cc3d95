import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { DomainError } from '../../src/domain/errors.ts';
import { limits } from '../../src/domain/limits.ts';
import { providerStandIn } from '../support/provider-stand-in.ts';
import { until } from '../support/until.ts';
import { slackDelivery, slackSecret } from './fixtures/slack.ts';
import { standardSecret } from './fixtures/code.ts';
import { address, mime } from './fixtures/mail.ts';
import { channelParts, channelWorld, mention, slackRequest } from './world.ts';
import { signed, hookUrl } from './fixtures/fixture.ts';
import { mimeFixture } from './fixtures/mail.ts';

let world: Awaited<ReturnType<typeof channelWorld>>;
let slack: Awaited<ReturnType<typeof providerStandIn>>;
/** Marks of messages that the stand-in has; it forgets nothing. */
const arrived = new Set<string>();
let dropAnswers = 0;
let failWith: number | null = null;

before(async () => {
  world = await channelWorld();
  slack = await providerStandIn(({ path, body }) => {
    if (path.startsWith('/conversations.')) return { body: { ok: true, messages: [...arrived] } };
    if (failWith !== null) return { status: failWith, body: { ok: false } };
    const mark = /"mark":"([^"]+)"/.exec(body)?.[1] ?? body;
    arrived.add(mark);
    if (dropAnswers > 0) {
      dropAnswers -= 1;
      return null;
    }
    return { body: { ok: true, ts: '1.1' } };
  });
  world.worker.start();
});
after(async () => {
  await world.close();
  await slack.close();
});

const credentials = { signingSecret: slackSecret, botToken: 'xoxb-secret' };
async function slackChannel() {
  const { channel } = await world.service.create(world.owner, world.agentId, {
    kind: 'slack',
    credentials,
    apiBaseUrl: slack.url,
  });
  return channel;
}
const eventsOf = (channelId: string) => world.db.sql<
  {
    id: string;
    kind: string;
    state: string;
    reason: string | null;
    retry_count: number;
    run_id: string | null;
    conversation_id: string | null;
    duplicate_of: string | null;
  }[]
>`
  select id, kind, state, reason, retry_count, run_id, conversation_id, duplicate_of from inbound_events
  where channel_id = ${channelId} order by id`;
const posts = (channel?: string) =>
  slack.calls.filter(
    ({ path, body }) => path === '/chat.postMessage' && (!channel || body.includes(channel)),
  );
const settled = (channelId: string, count: number) =>
  until(`${count} events of the channel are settled`, async () => {
    const rows = await eventsOf(channelId);
    return rows.length >= count && rows.every(({ state }) => state !== 'queued' && state !== 'processing');
  });
/** An attempt at its answer was made, and no worker holds it: its next attempt waits. */
const postponed = (channelId: string) =>
  until('its next attempt waits', async () => {
    const [row] = await world.db.sql<{ waits: boolean }[]>`
      select run_id is not null and claimed_by is null and attempts > 0 and due_at is not null as waits
      from inbound_events where channel_id = ${channelId}`;
    return row?.waits === true;
  });
const refused = (code: string) => (error: unknown) => error instanceof DomainError && error.code === code;

test('a Slack message becomes a turn, and its answer goes into the thread of the message', async () => {
  const channel = await slackChannel();
  const before = posts().length;
  const answer = await world.inbox.receive('slack', channel.id, slackRequest(mention(1)));
  assert.equal(answer.status, 200);
  await settled(channel.id, 1);
  const [event] = await eventsOf(channel.id);
  assert.equal(event!.state, 'done');
  assert.ok(event!.run_id && event!.conversation_id);
  const [post] = posts().slice(before);
  const body = JSON.parse(post!.body) as Record<string, unknown>;
  assert.equal(body['markdown_text'], 'message 1');
  assert.equal(body['thread_ts'], '1759999999.000001');
  assert.equal(post!.headers.authorization, 'Bearer xoxb-secret');
  const row = await world.events.get(event!.id);
  assert.deepEqual(
    row!.history.map(({ state }) => state),
    ['queued', 'processing', 'done'],
  );
});

test('copies of a delivery, retries and the same message under another id give one turn and one answer', async () => {
  const channel = await slackChannel();
  const before = posts().length;
  const copies = Array.from({ length: 10 }, (_, attempt) =>
    slackRequest(
      mention(2),
      slackSecret,
      attempt === 0
        ? {}
        : { 'X-Slack-Retry-Num': String(Math.min(attempt, 3)), 'X-Slack-Retry-Reason': 'http_timeout' },
    ),
  );
  const twin = slackDelivery(
    {
      type: 'message',
      user: 'U061F7AUR',
      text: '<@U0BOT> message 2',
      ts: '1759999999.000002',
      channel: 'C0LAN2Q65',
      channel_type: 'channel',
    },
    'EvTwin',
  );
  await Promise.all(
    [...copies, slackRequest(twin)].map((request) => world.inbox.receive('slack', channel.id, request)),
  );
  await settled(channel.id, 5);
  const rows = await eventsOf(channel.id);
  assert.equal(rows.filter(({ run_id }) => run_id !== null).length, 1);
  const original = rows.find(({ run_id }) => run_id !== null)!;
  const retries = rows.filter(({ kind }) => kind === 'slack.retry');
  assert.equal(retries.length, 3);
  assert.ok(retries.every(({ state, duplicate_of }) => state === 'duplicate' && duplicate_of !== null));
  assert.equal(rows.filter(({ kind, state }) => kind === 'slack.message' && state === 'duplicate').length, 1);
  assert.equal(
    rows.find(({ kind, retry_count }) => kind === 'slack.message' && retry_count === 9) !== undefined,
    true,
  );
  assert.equal(posts().length - before, 1);
  assert.ok(original.conversation_id);
});

test('a retry whose first attempt never came is the event itself', async () => {
  const channel = await slackChannel();
  await world.inbox.receive(
    'slack',
    channel.id,
    slackRequest(mention(3), slackSecret, { 'X-Slack-Retry-Num': '2' }),
  );
  await settled(channel.id, 1);
  const rows = await eventsOf(channel.id);
  assert.deepEqual(
    rows.map(({ kind, state }) => [kind, state]),
    [['slack.message', 'done']],
  );
});

test('a thread is one conversation, in the order in which it was said, and goes on without mentions', async () => {
  const channel = await slackChannel();
  await world.inbox.receive('slack', channel.id, slackRequest(mention(4)));
  await settled(channel.id, 1);
  const reply = (text: string, ts: string) =>
    slackDelivery(
      {
        type: 'message',
        user: 'U1',
        text,
        ts,
        thread_ts: '1759999999.000004',
        channel: 'C0LAN2Q65',
        channel_type: 'channel',
      },
      `Ev-${ts}`,
    );
  await world.inbox.receive('slack', channel.id, slackRequest(reply('second', '5.1')));
  // What comes while it waits would be said in one breath with it.
  await settled(channel.id, 2);
  await world.inbox.receive('slack', channel.id, slackRequest(reply('third', '5.2')));
  const stranger = slackDelivery(
    {
      type: 'message',
      user: 'U1',
      text: 'not for you',
      ts: '6.1',
      thread_ts: '6.0',
      channel: 'C0LAN2Q65',
      channel_type: 'channel',
    },
    'Ev-6',
  );
  await world.inbox.receive('slack', channel.id, slackRequest(stranger));
  await settled(channel.id, 4);
  const rows = await eventsOf(channel.id);
  assert.equal(new Set(rows.slice(0, 3).map(({ conversation_id }) => conversation_id)).size, 1);
  assert.deepEqual([rows[3]!.state, rows[3]!.reason], ['ignored', 'not_addressed']);
  const said = (await world.log(rows[0]!.conversation_id!)).flatMap((event) =>
    event.type === 'message.created' && event.data.role === 'user' ? [event.data.content] : [],
  );
  // Those that came while the first was being answered may have been heard together.
  assert.deepEqual(said.join('\n\n').split('\n\n'), ['message 4', 'second', 'third']);
});

test('an answer whose delivery is in doubt is looked for, and not sent twice', async () => {
  const channel = await slackChannel();
  const before = posts().length;
  dropAnswers = 1;
  await world.inbox.receive('slack', channel.id, slackRequest(mention(7)));
  await until('the call was made', () => posts().length === before + 1);
  await postponed(channel.id);
  await world.db.sql`update inbound_events set due_at = now() where channel_id = ${channel.id}`;
  await settled(channel.id, 1);
  assert.equal((await eventsOf(channel.id))[0]!.state, 'done');
  assert.equal(posts().length, before + 1);
});

test('an answer that the provider never takes ends as dead, with the reason', async () => {
  const channel = await slackChannel();
  failWith = 500;
  await world.inbox.receive('slack', channel.id, slackRequest(mention(8)));
  await postponed(channel.id);
  await world.db.sql`update inbound_events set attempts = 7, due_at = now() where channel_id = ${channel.id}`;
  await settled(channel.id, 1);
  failWith = null;
  const [row] = await eventsOf(channel.id);
  assert.equal(row!.state, 'dead');
  assert.match(row!.reason!, /500/);
});

test('what is forged, paused, of another kind or unknown stores nothing, and the owner is told why', async () => {
  const channel = await slackChannel();
  const take = (kind: string, id: string, secret?: string) =>
    world.inbox.receive(kind, id, slackRequest(mention(9), secret));
  await assert.rejects(take('slack', channel.id, 'wrong'), refused('signature_invalid'));
  await assert.rejects(take('telegram', channel.id), refused('not_found'));
  await assert.rejects(take('fax', channel.id), refused('not_found'));
  await assert.rejects(take('slack', 'nothing'), refused('not_found'));
  await until(
    'the error is noted',
    async () => (await world.service.get(world.owner, channel.id)).lastError !== null,
  );
  const paused = await slackChannel();
  assert.equal((await world.service.pause(world.owner, paused.id)).status, 'paused');
  await assert.rejects(take('slack', paused.id), refused('not_found'));
  assert.equal((await eventsOf(channel.id)).length + (await eventsOf(paused.id)).length, 0);
});

test('credentials are kept apart, sealed, and never shown', async () => {
  const channel = await slackChannel();
  assert.deepEqual(channel.credentialsSet, ['botToken', 'signingSecret']);
  assert.ok(!JSON.stringify(await world.service.get(world.owner, channel.id)).includes('xoxb-secret'));
  const rows = await world.db.sql<
    { sealed_value: Buffer }[]
  >`select sealed_value from channel_credentials where channel_id = ${channel.id}`;
  assert.ok(rows.every((row) => !row.sealed_value.includes('xoxb')));
  await world.service.remove(world.owner, channel.id);
  await assert.rejects(world.service.get(world.owner, channel.id), refused('not_found'));
});

test('a secret is made by the service, told once, and the one before still holds after a rotation', async () => {
  const { channel, secret } = await world.service.create(world.owner, world.agentId, { kind: 'generic' });
  assert.match(secret!, /^whsec_/);
  const rotated = await world.service.rotateSecret(world.owner, channel.id, {});
  assert.notEqual(rotated.secret, secret);
  const { setup } = (await world.service.open(channel.id))!;
  assert.equal(setup.previousSecret, secret);
  assert.equal(setup.credentials['secret'], rotated.secret);
  await world.db.sql`update channel_credentials set valid_until = now() where name = '~previous'`;
  assert.equal((await world.service.open(channel.id))!.setup.previousSecret, null);
  const given = await slackChannel();
  await assert.rejects(world.service.rotateSecret(world.owner, given.id, {}), refused('invalid_request'));
  assert.equal((await world.service.rotateSecret(world.owner, given.id, { value: 'new' })).secret, null);
});

test('a change of a channel holds for the very next delivery', async () => {
  const channel = await slackChannel();
  const { owner, service, inbox } = world;
  let number = 700;
  const deliver = (secret: string) =>
    inbox.receive('slack', channel.id, slackRequest(mention((number += 1)), secret)).then(
      ({ status }) => status,
      (error: DomainError) => error.code,
    );
  assert.equal(await deliver(slackSecret), 200);
  await service.rotateSecret(owner, channel.id, { value: 'f'.repeat(32) });
  assert.equal(await deliver('f'.repeat(32)), 200);
  await service.pause(owner, channel.id);
  assert.equal(await deliver(slackSecret), 'not_found');
  await service.resume(owner, channel.id);
  assert.equal(await deliver(slackSecret), 200);
  await service.update(owner, channel.id, { credentials: { signingSecret: 'e'.repeat(32) } });
  assert.equal(await deliver('f'.repeat(32)), 'signature_invalid');
  assert.equal(await deliver('e'.repeat(32)), 200);
  // Their answers would be counted with those of the tests that follow.
  await settled(channel.id, 4);
  await service.remove(owner, channel.id);
  assert.equal(await deliver('e'.repeat(32)), 'not_found');
});

test('what is wrong with a channel is told by name, and nothing is made', async () => {
  const create = (input: Parameters<typeof world.service.create>[2]) =>
    world.service.create(world.owner, world.agentId, input);
  const told = async (input: Parameters<typeof world.service.create>[2], path: string) => {
    await assert.rejects(
      create(input),
      (error: unknown) => error instanceof DomainError && error.details?.[0]?.path === path,
    );
  };
  await told({ kind: 'slack', credentials: { botToken: 'x' } }, 'credentials.signingSecret');
  await told({ kind: 'slack', credentials: { ...credentials, password: 'x' } }, 'credentials.password');
  await told({ kind: 'slack', credentials, settings: { respondTo: 'nobody' } }, 'settings.respondTo');
  await told({ kind: 'email', settings: { provider: 'ses', address } }, 'settings.topicArn');
  await told({ kind: 'slack', credentials, apiBaseUrl: 'http://169.254.169.254/' }, 'apiBaseUrl');
  await told({ kind: 'slack', credentials, name: ' ' }, 'name');
  const user = { ...world.owner, scope: 'use' as const };
  await assert.rejects(
    world.service.list(user, world.agentId, { limit: 10, cursor: null }),
    refused('scope_insufficient'),
  );
  const stranger = { ...world.owner, orgId: '01999999-0000-7000-8000-000000000000' };
  const channel = await slackChannel();
  await assert.rejects(world.service.get(stranger, channel.id), refused('not_found'));
  assert.ok(limits.channelsPerAgent >= 10);
  const changed = await world.service.update(world.owner, channel.id, {
    settings: { replyMode: 'channel' },
    name: 'Ops',
  });
  assert.deepEqual(
    [changed.name, changed.settings['replyMode'], changed.settings['respondTo']],
    ['Ops', 'channel', 'mention'],
  );
});

test('a mail becomes a turn, and a reply of the same sender goes on with it', async () => {
  const api = await providerStandIn(() => ({ body: { id: 'sent-1' } }));
  try {
    const { channel } = await world.service.create(world.owner, world.agentId, {
      kind: 'email',
      settings: { provider: 'mime', address, sender: 'resend' },
      credentials: { webhookSecret: standardSecret, apiKey: 're_1' },
      apiBaseUrl: api.url,
    });
    const deliver = (raw: string, id: string) =>
      world.inbox.receive(
        'email',
        channel.id,
        signed(
          { ...mimeFixture, sign: (request, atMs) => mimeFixture.sign(request, atMs) },
          { body: raw, url: `${hookUrl}?${id}`, headers: { 'X-Envelope-To': address } },
          Date.now(),
        ),
      );
    await deliver(mime({ id: '1' }), 'a');
    await settled(channel.id, 1);
    assert.equal(api.calls.length, 1);
    const sent = JSON.parse(api.calls[0]!.body) as { to: string[]; headers: Record<string, string> };
    assert.deepEqual(sent.to, ['ada@example.com']);
    const ours = sent.headers['Message-ID']!;
    await deliver(mime({ id: '2', text: 'And now?' }, [`In-Reply-To: ${ours}`]), 'b');
    await deliver(
      mime({ id: '3', text: 'Me too' }, [`In-Reply-To: ${ours}`]).replaceAll(
        'ada@example.com',
        'eve@evil.example',
      ),
      'c',
    );
    await deliver(mime({ id: '4' }, ['Auto-Submitted: auto-replied']), 'd');
    await settled(channel.id, 4);
    const rows = await eventsOf(channel.id);
    assert.equal(rows[1]!.conversation_id, rows[0]!.conversation_id);
    assert.notEqual(rows[2]!.conversation_id, rows[0]!.conversation_id);
    assert.deepEqual([rows[3]!.state, rows[3]!.reason], ['ignored', 'auto_reply']);
    assert.equal(api.calls.length, 3);
  } finally {
    await api.close();
  }
});

test('a commit carries many deliveries, and what cannot be stored is refused with a hint', async () => {
  const channel = await slackChannel();
  await Promise.all(
    Array.from({ length: 60 }, (_, index) =>
      world.inbox.receive(
        'slack',
        channel.id,
        slackRequest(slackDelivery({ type: 'reaction_added', user: 'U1' }, `EvR${index}`)),
      ),
    ),
  );
  await settled(channel.id, 60);
  const rows = await eventsOf(channel.id);
  assert.equal(rows.length, 60);
  assert.ok(rows.every(({ state, reason }) => state === 'ignored' && reason === 'not_a_message'));
});

test('an event that failed is worked on again when somebody asks, and what was sent is not sent again', async () => {
  const channel = await slackChannel();
  failWith = 403;
  await world.inbox.receive('slack', channel.id, slackRequest(mention(12)));
  await settled(channel.id, 1);
  failWith = null;
  const [failed] = await eventsOf(channel.id);
  assert.equal(failed!.state, 'failed');
  const before = posts().length;
  await world.inboundEvents.replay(world.owner, failed!.id);
  await settled(channel.id, 1);
  const [done] = await eventsOf(channel.id);
  assert.deepEqual([done!.state, done!.run_id], ['done', failed!.run_id]);
  assert.equal(posts().length, before + 1);
  await assert.rejects(world.inboundEvents.replay(world.owner, failed!.id), refused('conflict'));
  const listed = await world.inboundEvents.list(world.owner, world.agentId, { limit: 1, cursor: null });
  assert.equal(listed.items[0]!.id, failed!.id);
});

test('a delivery with keys of any length is taken', async () => {
  const channel = await slackChannel();
  const long = slackDelivery(
    { type: 'app_mention', user: 'U1', text: 'hi', ts: '1'.repeat(5_000), channel: 'C1' },
    'E'.repeat(5_000),
  );
  await world.inbox.receive('slack', channel.id, slackRequest(long));
  await settled(channel.id, 1);
  assert.equal((await eventsOf(channel.id))[0]!.state, 'done');
});

test('an organisation with too much in its inbox is told to send it later, and why; what is never sent again still has room', async () => {
  const small = channelParts(world.replica, undefined, { backlog: { perOrg: 20, countEveryMs: 0 } });
  const make = async (input: Parameters<typeof small.service.create>[2]) =>
    (await small.service.create(world.owner, world.agentId, input)).channel;
  const slackChannel = await make({
    kind: 'slack',
    credentials: { signingSecret: slackSecret, botToken: 'xoxb' },
  });
  const mailChannel = await make({
    kind: 'email',
    settings: { provider: 'mime', address, sender: 'resend' },
    credentials: { webhookSecret: standardSecret, apiKey: 're_1' },
  });
  const mail = signed(
    mimeFixture,
    { body: mime({ id: '1' }), url: hookUrl, headers: { 'X-Envelope-To': address } },
    Date.now(),
  );
  const command = new URLSearchParams({
    command: '/berth',
    text: 'say: now',
    trigger_id: '1.1',
    team_id: 'T1',
    channel_id: 'C1',
    user_id: 'U1',
    response_url: `${slack.url}/response`,
  }).toString();
  await world.worker.stop();
  try {
    let taken = 0;
    const refusal = await until('one is refused', () =>
      small.inbox.receive('slack', slackChannel.id, slackRequest(mention(7_000 + taken))).then(
        () => void (taken += 1),
        (error: unknown) => error as DomainError,
      ),
    );
    assert.ok(taken >= 20, `${taken} were taken`);
    assert.deepEqual([refusal.code, refusal.retryAfterSeconds], ['unavailable', 60]);
    await assert.rejects(small.inbox.receive('email', mailChannel.id, mail), (error: DomainError) => {
      assert.deepEqual([error.code, error.retryAfterSeconds], ['queue_full', 60]);
      return true;
    });
    await until('the organisation is told why', async () =>
      /wait for their turn/.test((await small.service.get(world.owner, slackChannel.id)).lastError ?? ''),
    );
    const form = { 'content-type': 'application/x-www-form-urlencoded' };
    const said = slackRequest({ body: command, headers: form }, slackSecret, form);
    assert.equal((await small.inbox.receive('slack', slackChannel.id, said)).status, 200);
  } finally {
    world.worker.start();
  }
  const late = slackRequest(mention(9_999));
  await until('there is room again', () =>
    small.inbox.receive('slack', slackChannel.id, late).then(
      () => true,
      () => false,
    ),
  );
  await small.close();
});
