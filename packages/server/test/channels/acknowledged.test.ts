import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { isJsonType } from '../../src/channels/body.ts';
import { DomainError } from '../../src/domain/errors.ts';
import type { ParsedRequest } from '../../src/domain/ports/channel.ts';
import { receive } from '../../src/domain/receive.ts';
import { fixtures } from './fixtures/all.ts';
import { whatsappFixture } from './fixtures/chat.ts';
import { json, kindOf, nowMs, setupOf, signed, type Fixture, type Unsigned } from './fixtures/fixture.ts';
import { channelWorld } from './world.ts';

let world: Awaited<ReturnType<typeof channelWorld>>;
before(async () => (world = await channelWorld()));
after(() => world.close());

/** The value without one of its parts, or with an empty one in its place: for each part that it has, however deep. */
function* lesser(value: unknown): Generator<unknown> {
  if (typeof value !== 'object' || value === null) return;
  const isList = Array.isArray(value);
  for (const [name, part] of Object.entries(value)) {
    const others = Object.entries(value).filter(([other]) => other !== name);
    yield isList ? others.map(([, other]) => other as unknown) : Object.fromEntries(others);
    const empties: unknown[] = ['', 'other', null, {}, []];
    for (const less of [...empties, ...lesser(part)])
      yield isList ? value.with(Number(name), less) : { ...value, [name]: less };
  }
}

/** What is acknowledged of it; null: it is refused, so that nobody takes it for stored. */
function acknowledged(fixture: Fixture, unsigned: Unsigned): ParsedRequest | null {
  try {
    const request = signed(fixture, unsigned);
    const known = fixture.documents ?? new Map<string, string>();
    const received = receive(kindOf(fixture), request, setupOf(fixture), nowMs, known);
    return received.result === 'accepted' ? received.parsed : null;
  } catch (error) {
    assert.ok(error instanceof DomainError, String(error));
    return null;
  }
}

const isJson = (fixture: Fixture, { headers, body }: Unsigned) =>
  typeof body === 'string' &&
  isJsonType((headers?.['content-type'] ?? fixture.contentType).split(';')[0]!.trim());

for (const fixture of fixtures) {
  const messages = [fixture.message({}), ...Object.values(fixture.ignored)].filter((one) =>
    isJson(fixture, one),
  );
  if (messages.length === 0) continue;
  test(`${fixture.title}: whatever is missing in a genuine delivery, what is acknowledged is kept`, () => {
    let count = 0;
    for (const message of messages) {
      for (const value of lesser(JSON.parse(String(message.body)))) {
        const body = JSON.stringify(value);
        const parsed = acknowledged(fixture, { ...message, body });
        if (parsed === null) continue;
        count += 1;
        assert.ok(parsed.events.length > 0, body);
        for (const { deliveryKey } of parsed.events) assert.notEqual(deliveryKey, '', body);
      }
    }
    assert.ok(count > 0);
  });
}

const changes = (...list: object[]) =>
  json({ object: 'whatsapp_business_account', entry: [{ id: '102290129340398', time: 1, changes: list }] });
const account = { field: 'account_update', value: { event: 'VERIFIED_ACCOUNT', phone_number: '1555' } };
const quality = { field: 'phone_number_quality_update', value: { event: 'FLAGGED', current_limit: 'T1' } };

async function rowsOf(channelId: string) {
  return world.db.sql<{ kind: string; state: string; reason: string }[]>`
    select kind, state, reason from inbound_events where channel_id = ${channelId} order by kind`;
}

test('what WhatsApp tells of beside messages is kept as ignored, and once when it is told again', async () => {
  const { kind, settings, credentials } = whatsappFixture;
  const made = await world.service.create(world.owner, world.agentId, { kind, settings, credentials });
  const { id } = made.channel;
  const failed = { field: 'messages', value: { errors: [{ code: 130429 }] } };
  const empty = json({ object: 'whatsapp_business_account', entry: [] });
  for (const body of [
    changes(account),
    changes(account),
    changes(quality, failed, { field: 'Ä b' }),
    empty,
  ]) {
    for (let time = 0; time < 2; time += 1) {
      const { status } = await world.inbox.receive(kind, id, signed(whatsappFixture, body));
      assert.equal(status, 200);
    }
  }
  const named = (name: string) => ({
    kind: `whatsapp.${name}`,
    state: 'ignored',
    reason: 'not_a_message',
  });
  assert.deepEqual(
    (await rowsOf(id)).map((row) => ({ ...row })),
    ['account_update', 'messages', 'phone_number_quality_update', 'unknown', 'unknown'].map(named),
  );
});

test('another change of WhatsApp is read from its own part as it is read from the whole delivery', () => {
  const setup = setupOf(whatsappFixture);
  const whole = signed(whatsappFixture, changes(account, quality, { field: 'Ä b', value: 7 }, {}));
  const { events } = kindOf(whatsappFixture).parse(whole, setup);
  assert.equal(new Set(events.map(({ deliveryKey }) => deliveryKey)).size, 4);
  for (const event of events) {
    const part = { ...whole, body: Buffer.from(JSON.stringify(event.alone!())) };
    const { events: again } = kindOf(whatsappFixture).parse(part, setup);
    assert.deepEqual(JSON.parse(JSON.stringify(again)), [JSON.parse(JSON.stringify(event))]);
  }
});
