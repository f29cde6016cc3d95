import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { after, before, test } from 'node:test';
import type { InboundRequest } from '../../src/domain/ports/channel.ts';
import { until } from '../support/until.ts';
import { hookUrl } from './fixtures/fixture.ts';
import { channelWorld } from './world.ts';

let world: Awaited<ReturnType<typeof channelWorld>>;
before(async () => {
  world = await channelWorld();
  world.worker.start();
});
after(() => world.close());

const secret = 'a-secret-of-the-shop-1';

async function channelWith(settings: Record<string, string>): Promise<string> {
  const { channel } = await world.service.create(world.owner, world.agentId, {
    kind: 'generic',
    settings,
    credentials: { secret },
  });
  return channel.id;
}

async function deliver(channelId: string, body: string, headers: Record<string, string>): Promise<void> {
  const request: InboundRequest = {
    method: 'POST',
    url: hookUrl,
    headers: new Map(Object.entries({ 'content-type': 'text/plain', ...headers })),
    body: Buffer.from(body),
  };
  assert.equal((await world.inbox.receive('generic', channelId, request)).status, 200);
}

const settled = (channelId: string, count: number) =>
  until(`${count} events are settled`, async () => {
    const rows = await world.db.sql<{ state: string; headers: string }[]>`
      select state, request ->> 'headers' as headers from inbound_events
      where channel_id = ${channelId} and state not in ('queued', 'processing') order by id`;
    return rows.length === count ? [...rows] : null;
  });

test('the same words at two times are two messages, however the header with the time is called', async () => {
  const channelId = await channelWith({
    scheme: 'hmac',
    signatureHeader: 'X-Signature',
    timestampHeader: 'X-Signature-Timestamp',
  });
  const now = Math.floor(Date.now() / 1_000);
  for (const seconds of [now - 60, now, now]) {
    const signature = createHmac('sha256', secret).update(`${seconds}.the disk is full`).digest('hex');
    const headers = { 'x-signature': signature, 'x-signature-timestamp': String(seconds) };
    await deliver(channelId, 'the disk is full', headers);
  }
  const states = (await settled(channelId, 2)).map(({ state }) => state);
  assert.deepEqual(states, ['done', 'done']);
});

test('an id that a template takes out of a header is the id, however the header is called', async () => {
  const channelId = await channelWith({
    scheme: 'token',
    signatureHeader: 'X-Auth',
    deliveryId: '{{ header:X-Delivery-Token }}',
  });
  for (const id of ['1', '2', '2'])
    await deliver(channelId, 'hello', { 'x-auth': secret, 'x-delivery-token': id });
  assert.deepEqual(
    (await settled(channelId, 2)).map(({ state }) => state),
    ['done', 'done'],
  );
});

test('a secret that comes in a header is not kept with the event, whatever the header is called', async () => {
  for (const name of ['X-Api-Key', 'X-Shop', 'X-Password']) {
    const channelId = await channelWith({
      scheme: 'token',
      signatureHeader: name,
      signaturePrefix: 'Key ',
      text: `{{header:${name}}} {{header:X-Other}}`,
    });
    await deliver(channelId, 'hello', { [name.toLowerCase()]: `Key ${secret}`, 'x-other': 'kept' });
    const [event] = await settled(channelId, 1);
    assert.equal(event!.state, 'done');
    assert.ok(!event!.headers.includes(secret), name);
    assert.ok(event!.headers.includes('kept'));
  }
});
