import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { ReplyTo } from '../../src/domain/ports/channel.ts';
import { providerStandIn } from '../support/provider-stand-in.ts';
import { until } from '../support/until.ts';
import { discordFixture, telegramFixture, twilioFixture, whatsappFixture } from './fixtures/chat.ts';
import { signed, type Fixture } from './fixtures/fixture.ts';
import { sendgridFixture, sesFixture } from './fixtures/mail.ts';
import { teamsFixture } from './fixtures/tokens.ts';
import { outboxOf } from './outbox.ts';
import { channelWorld } from './world.ts';

type Said = { status?: number; body: unknown } | null;
let provider: Awaited<ReturnType<typeof providerStandIn>>;
let said: Said[] = [];
let messages: unknown[] = [];
let world: Awaited<ReturnType<typeof channelWorld>>;
before(async () => {
  provider = await providerStandIn(({ method, path }) => {
    if (path.endsWith('/token')) return { body: { access_token: 't' } };
    if (method === 'GET') return { body: { messages } };
    return said.length > 0 ? said.shift()! : { body: { ok: true, id: '1' } };
  });
  world = await channelWorld();
  world.worker.start();
});
after(async () => {
  await world?.close();
  await provider?.close();
});

/** One event's answers at the stand-in, and a try at sending them. */
const outbox = (fixture: Fixture, over: { apiBaseUrl?: string; replyTo?: ReplyTo } = {}) =>
  outboxOf(fixture, provider, over);

const mailTo = { to: 'ada@example.com', subject: 'x', messageId: null, references: [] };
const unaskable: [Fixture, ReplyTo?][] = [
  [telegramFixture],
  [whatsappFixture],
  [teamsFixture, { serviceUrl: '', conversation: 'c', activityId: '1' }],
  [{ ...sesFixture, settings: { ...sesFixture.settings } }, mailTo],
  [
    {
      ...sendgridFixture,
      credentials: { ...sendgridFixture.credentials, apiKey: 'SG.1' },
    },
    mailTo,
  ],
];

for (const [fixture, replyTo] of unaskable) {
  test(`${fixture.title}: an answer that may have been sent is not sent again, and says so`, async () => {
    const where = replyTo && 'serviceUrl' in replyTo ? { ...replyTo, serviceUrl: provider.url } : replyTo;
    const box = outbox(fixture, where ? { replyTo: where } : {});
    said = [null];
    assert.deepEqual(await box.send(), { outcome: 'doubtful', calls: ['POST'] });
    assert.deepEqual(await box.send(), { outcome: 'doubtful', calls: [] });
    // The process was killed between the call and its answer.
    box.rows.set(0, { state: 'sending', beganAt: new Date(), externalId: null });
    assert.deepEqual(await box.send(), { outcome: 'doubtful', calls: [] });
    // Somebody asked for it to be sent again.
    box.rows.clear();
    assert.deepEqual(await box.send(), { outcome: 'sent', calls: ['POST'] });
    assert.deepEqual(await box.send(), { outcome: 'sent', calls: [] });
  });
}

test('what the provider surely did not take is sent again: no connection, or a refusal of its own', async () => {
  const away = outbox(telegramFixture, { apiBaseUrl: 'http://127.0.0.1:1' });
  assert.deepEqual(await away.send(), { outcome: 'retry', calls: [] });
  assert.equal(away.rows.size, 0);
  const box = outbox(telegramFixture);
  said = [
    { status: 429, body: {} },
    { status: 500, body: {} },
  ];
  for (const told of [{ outcome: 'retry', isTooMany: true }, { outcome: 'retry' }, { outcome: 'sent' }]) {
    assert.deepEqual(await box.send(), { ...told, calls: ['POST'] });
  }
  const behind = outbox(telegramFixture);
  said = [{ status: 502, body: {} }];
  assert.equal((await behind.send()).outcome, 'doubtful');
});

test('an answer by Twilio is looked for by its words and its time', async () => {
  const box = outbox(twilioFixture);
  const message = {
    direction: 'outbound-api',
    status: 'sent',
    body: 'Yes, it  is.',
    date_created: new Date().toUTCString(),
  };
  said = [null];
  messages = [];
  assert.deepEqual(await box.send(), { outcome: 'retry', calls: ['POST'] });
  const notIt = [
    { ...message, body: 'No.' },
    { ...message, direction: 'inbound' },
    { ...message, status: 'failed' },
    { ...message, date_created: new Date(Date.now() - 3_600_000).toUTCString() },
  ];
  messages = notIt;
  said = [null];
  assert.deepEqual(await box.send(), { outcome: 'retry', calls: ['GET', 'POST'] });
  messages = [...notIt, message];
  assert.deepEqual(await box.send(), { outcome: 'sent', calls: ['GET'] });
  messages = [];
});

test('what does nothing when it is done twice is done again', async () => {
  const box = outbox(discordFixture);
  said = [null];
  assert.deepEqual(await box.send(), { outcome: 'retry', calls: ['PATCH'] });
  assert.deepEqual(await box.send(), { outcome: 'sent', calls: ['PATCH'] });
});

test('an event whose answer may have been sent fails with that reason, and is sent again only when it is replayed by itself', async () => {
  const { channel } = await world.service.create(world.owner, world.agentId, {
    kind: 'telegram',
    credentials: telegramFixture.credentials,
    apiBaseUrl: provider.url,
  });
  said = [null];
  const before = provider.calls.length;
  await world.inbox.receive('telegram', channel.id, signed(telegramFixture, telegramFixture.message({})));
  const settled = (state: string) =>
    until(`the event is ${state}`, async () => {
      const [row] = await world.db.sql<{ id: string; state: string; reason: string | null }[]>`
        select id, state, reason from inbound_events where channel_id = ${channel.id}`;
      return row?.state === state ? row : null;
    });
  const failed = await settled('failed');
  assert.match(failed.reason!, /^may_have_been_sent: /);
  const which = { since: new Date(0), channelId: channel.id };
  assert.deepEqual(await world.inboundEvents.replayFailed(world.owner, world.agentId, which), {
    replayed: 0,
    left: 0,
    doubtful: 1,
  });
  assert.equal(provider.calls.length, before + 1);
  await world.inboundEvents.replay(world.owner, failed.id);
  await settled('done');
  assert.equal(provider.calls.length, before + 2);
});
