import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { DomainError } from '../../src/domain/errors.ts';
import { limits } from '../../src/domain/limits.ts';
import { until } from '../support/until.ts';
import { whatsappFixture } from './fixtures/chat.ts';
import { json, kindOf, setupOf, signed } from './fixtures/fixture.ts';
import { channelWorld } from './world.ts';

let world: Awaited<ReturnType<typeof channelWorld>>;
before(async () => {
  world = await channelWorld();
  world.worker.start();
});
after(() => world.close());

const ours = '106540352242922';
const ada = { profile: { name: 'Ada' }, wa_id: '16505551234' };
const value = (more: object, phoneNumberId = ours) => ({
  messaging_product: 'whatsapp',
  metadata: { display_phone_number: '15550783881', phone_number_id: phoneNumberId },
  contacts: [ada],
  ...more,
});
const request = (...values: object[]) =>
  signed(
    whatsappFixture,
    json({ entry: values.map((one) => ({ changes: [{ field: 'messages', value: one }] })) }),
  );
const said = (id: string, more: object = { type: 'text', text: { body: `Grüße ${id}` } }) => ({
  from: ada.wa_id,
  id,
  ...more,
});
const reaction = { type: 'reaction', reaction: { emoji: '👍' } };

async function channel(): Promise<string> {
  const { kind, settings, credentials } = whatsappFixture;
  const made = await world.service.create(world.owner, world.agentId, { kind, settings, credentials });
  return made.channel.id;
}
const kept = (channelId: string) => world.db.sql<{ state: string; reason: string; bytes: number }[]>`
  select state, reason, octet_length(body) as bytes from inbound_events where channel_id = ${channelId}`;

test('each of several messages is read from its own part as it is read from the whole delivery', () => {
  const kind = kindOf(whatsappFixture);
  const setup = setupOf(whatsappFixture);
  const whole = request(
    value({
      messages: [
        said('1'),
        said('2', { type: 'image', image: { id: 'i-1', mime_type: 'image/png', caption: 'look' } }),
        said('3', { from: '4915', type: 'text', text: { body: 'hi' } }),
        said('4', reaction),
        said('5', { type: 'text', text: { body: '' } }),
      ],
    }),
    value({ messages: [said('6')], statuses: [{ id: '1', status: 'read' }, null] }, '1'),
  );
  const { events } = kind.parse(whole, setup);
  assert.deepEqual(
    events.map(({ ignore }) => ignore),
    [
      null,
      null,
      'sender_not_allowed',
      'not_a_message',
      'empty',
      'not_addressed',
      'not_a_message',
      'not_a_message',
    ],
  );
  assert.equal(events[0]!.sender!.name, 'Ada');
  for (const event of events) {
    const part = { ...whole, body: Buffer.from(JSON.stringify(event.alone!())) };
    const { events: again } = kind.parse(part, setup);
    assert.deepEqual(JSON.parse(JSON.stringify(again)), [JSON.parse(JSON.stringify(event))]);
  }
});

test('an event that was stored with the whole delivery is found at its place, whatever else the delivery tells of', () => {
  const account = { field: 'account_update', value: { event: 'VERIFIED_ACCOUNT' } };
  const message = { field: 'messages', value: value({ messages: [said('1')] }) };
  const delivery = signed(whatsappFixture, json({ entry: [{ changes: [account, message] }] }));
  const { events } = kindOf(whatsappFixture).parse(delivery, setupOf(whatsappFixture));
  assert.deepEqual(
    events.map(({ kind }) => kind),
    ['whatsapp.message', 'whatsapp.account_update'],
  );
});

test('a delivery of as many messages as one can hold is kept once, and each of them is settled', async () => {
  const channelId = await channel();
  const messages = Array.from({ length: limits.inboundEventsPerDelivery - 1 }, (_, index) =>
    said(`r${index}`, reaction),
  );
  // What all of them share must not be kept beside each.
  const contact = { ...ada, profile: { name: 'A'.repeat(200_000) }, more: 'x'.repeat(500_000) };
  const delivery = request(value({ messages: [...messages, said('last')], contacts: [contact] }, ours));
  assert.equal((await world.inbox.receive('whatsapp', channelId, delivery)).status, 200);
  const rows = await until('the one that says something is answered', async () => {
    const found = await kept(channelId);
    return found.every(({ state }) => state === 'done' || state === 'ignored' || state === 'failed')
      ? found
      : null;
  });
  assert.equal(rows.length, limits.inboundEventsPerDelivery);
  assert.equal(rows.filter(({ state }) => state === 'ignored').length, messages.length);
  const bytes = rows.reduce((sum, row) => sum + row.bytes, 0);
  assert.ok(bytes < 1_000_000, `${bytes} bytes are kept of ${delivery.body.length}`);
  await world.inbox.receive('whatsapp', channelId, delivery);
  assert.equal((await kept(channelId)).length, rows.length);
});

test('a delivery that holds more messages and notices than one can is refused, and nothing of it is kept', async () => {
  const channelId = await channel();
  const count = limits.inboundEventsPerDelivery / 2;
  const messages = Array.from({ length: count }, (_, index) => said(`m${index}`));
  const statuses = Array.from({ length: count + 1 }, (_, index) => ({ id: `s${index}`, status: 'sent' }));
  await assert.rejects(
    world.inbox.receive('whatsapp', channelId, request(value({ messages }), value({ statuses }))),
    (error: unknown) =>
      error instanceof DomainError &&
      error.code === 'invalid_request' &&
      error.message.includes('more than 1000 messages, statuses and other changes'),
  );
  assert.equal((await kept(channelId)).length, 0);
});
