import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { DomainError } from '../../src/domain/errors.ts';
import { json, type Unsigned } from './fixtures/fixture.ts';
import { slackDelivery, slackFixture, slackSecret } from './fixtures/slack.ts';
import { channelWorld, slackRequest } from './world.ts';

let world: Awaited<ReturnType<typeof channelWorld>>;
before(async () => {
  world = await channelWorld();
});
after(() => world?.close());

/** One for each test: who shares an app is kept for a moment. */
let appId = '';
let made = 0;
async function share(settings: Record<string, unknown>, signingSecret = slackSecret) {
  made += 1;
  const { channel } = await world.service.create(world.owner, world.agentId, {
    kind: 'slack',
    name: `shared ${made}`,
    settings: { appId, ...settings },
    credentials: { signingSecret, botToken: 'xoxb-1' },
  });
  return channel.id;
}
let apps = 0;
const newApp = () => {
  apps += 1;
  appId = `A0APP${apps}`;
};

let number = 0;
const message = (inner: Record<string, unknown> = {}): Unsigned => {
  number += 1;
  const said = { type: 'app_mention', user: 'U1', text: '<@U0BOT> hi', ts: `1.${number}`, channel: 'C1' };
  const unsigned = slackDelivery({ ...said, ...inner }, `EvShared${number}`);
  return { body: String(unsigned.body).replace('A0PNCHHK2', appId) };
};
const form = (fields: Record<string, string>): Unsigned => ({
  body: new URLSearchParams(fields).toString(),
  headers: { 'content-type': 'application/x-www-form-urlencoded' },
});
const command = (name: string, channel = 'C1') => {
  number += 1;
  return form({
    api_app_id: appId,
    team_id: 'T061EG9R6',
    channel_id: channel,
    user_id: 'U1',
    command: name,
    text: 'x',
    trigger_id: `t.${number}`,
  });
};
const send = (unsigned: Unsigned, secret = slackSecret) =>
  world.inbox.receive('slack', '', slackRequest(unsigned, secret, unsigned.headers ?? {}));
/** The channel that got the delivery. */
async function reached(unsigned: Unsigned, secret = slackSecret): Promise<string | null> {
  const before = await world.db.sql<{ id: string }[]>`select id from inbound_events`;
  assert.equal((await send(unsigned, secret)).status, 200);
  const rows = await world.db.sql<{ channel_id: string }[]>`
    select channel_id from inbound_events where id <> all (${before.map(({ id }) => id)}::uuid[])`;
  assert.ok(rows.length <= 1);
  return rows[0]?.channel_id ?? null;
}
const refused = (code: string) => (error: unknown) => error instanceof DomainError && error.code === code;

test('a delivery to the shared URL reaches the agent whose channel names most exactly where it comes from', async () => {
  newApp();
  const everything = await share({});
  const second = await share({});
  const team = await share({ teamIds: ['T061EG9R6'] });
  const room = await share({ channels: ['C9'] });
  const both = await share({ teamIds: ['T061EG9R6'], channels: ['C8'] });
  const asked = await share({ commands: ['/ask'] });
  const elsewhere = await share({ teamIds: ['T0OTHER'], channels: ['C1'] });
  assert.equal(await reached(message()), team);
  assert.equal(await reached(message({ channel: 'C9' })), room);
  assert.equal(await reached(message({ channel: 'C8' })), both);
  assert.equal(await reached(command('/ask')), asked);
  assert.equal(await reached(command('/other')), team);
  const payload = JSON.stringify({
    type: 'block_actions',
    api_app_id: appId,
    team: { id: 'T0ELSE' },
    user: { id: 'U1' },
    channel: { id: 'C1' },
    message: { ts: '5.1' },
    actions: [{ action_id: 'a', value: 'b', action_ts: '6.1' }],
  });
  assert.equal(await reached(form({ payload })), everything);
  assert.ok(second && elsewhere);
});

test('only a channel whose own secret made the signature counts, whoever else names the app', async () => {
  newApp();
  const stranger = await share({ channels: ['C1'] }, 'the secret of somebody else');
  const own = await share({});
  assert.equal(await reached(message()), own);
  assert.equal(await reached(message(), 'the secret of somebody else'), stranger);
  await assert.rejects(send(message(), 'no secret at all'), refused('signature_invalid'));
  const elsewhere: Unsigned = { body: String(message().body).replaceAll(appId, 'A0UNKNOWN') };
  await assert.rejects(send(elsewhere), refused('signature_invalid'));
  const nameless: Unsigned = { body: String(message().body).replaceAll('api_app_id', 'x') };
  await assert.rejects(send(nameless), refused('invalid_request'));
  const tampered = slackRequest(message());
  await assert.rejects(
    world.inbox.receive('slack', '', { ...tampered, body: Buffer.from(`${tampered.body.toString()} `) }),
    refused('signature_invalid'),
  );
});

test('what is genuine and for nobody is acknowledged, and has no effect; a paused channel is nobody', async () => {
  newApp();
  const room = await share({ channels: ['C9'] });
  const fallback = await share({ channels: ['C1'] });
  await world.service.pause(world.owner, fallback);
  assert.equal(await reached(message()), null);
  assert.equal(await reached(message({ channel: 'C9' })), room);
  const rows = await world.db.sql`select 1 from inbound_events where channel_id = ${fallback}`;
  assert.equal(rows.length, 0);
});

test('the handshake of the shared URL is answered with its own words alone, and other kinds have no such URL', async () => {
  newApp();
  const answer = await send(slackFixture.handshake!.request);
  assert.equal(answer.body, slackFixture.handshake!.answer.body);
  assert.match(answer.headers['content-type']!, /^text\/plain/);
  const hostile = json({ type: 'url_verification', challenge: '<script>alert(1)</script>' });
  await assert.rejects(send(hostile), refused('invalid_request'));
  assert.deepEqual(await send(form({ ssl_check: '1' })), { status: 200, headers: {}, body: '' });
  await assert.rejects(world.inbox.admit('telegram', ''), refused('not_found'));
  await assert.rejects(world.inbox.receive('telegram', '', slackRequest(message())), refused('not_found'));
  const { bodyBytes, orgId } = await world.inbox.admit('slack', '');
  assert.deepEqual([bodyBytes, orgId], [1024 * 1024, '']);
});

test('retries to the shared URL are copies of the first delivery', async () => {
  newApp();
  const own = await share({});
  const unsigned = message();
  const copy = { ...unsigned, headers: { 'X-Slack-Retry-Num': '1', 'X-Slack-Retry-Reason': 'http_timeout' } };
  await Promise.all([send(unsigned), send(copy), send(copy)]);
  const rows = await world.db.sql<{ kind: string }[]>`
    select kind from inbound_events where channel_id = ${own} and kind = 'slack.message'`;
  assert.equal(rows.length, 1);
});

test('so many organisations share an app at most, so that nobody makes its deliveries dear', async () => {
  newApp();
  const id = await share({});
  await world.db.sql`
    insert into orgs (id, name) select gen_random_uuid(), 'org ' || n from generate_series(1, 20) n`;
  await world.db.sql`
    insert into channels (id, org_id, agent_id, kind, name, status, settings)
    select gen_random_uuid(), o.id, ${world.agentId}, 'slack', 'x', 'active', ${world.db.sql.json({ appId: 'A0FULL' })}
    from orgs o where o.id <> ${world.owner.orgId} limit 20`;
  await assert.rejects(share({ appId: 'A0FULL' }), refused('conflict'));
  await assert.rejects(
    world.service.update(world.owner, id, { settings: { appId: 'A0FULL' } }),
    refused('conflict'),
  );
  await world.service.update(world.owner, id, { settings: { appId: 'A0FREE' } });
});
