import assert from 'node:assert/strict';
import { test } from 'node:test';
import { kinds } from '../../src/channels/kinds.ts';
import { completeMail, mailFetch, withFetched } from '../../src/channels/mail/complete.ts';
import { createMailReader } from '../../src/channels/mail/read/mail-reader.ts';
import { samples } from '../../src/channels/samples/samples.ts';
import { newId } from '../../src/domain/ids.ts';
import { receive } from '../../src/domain/receive.ts';
import type { InboundEvent, InboundRequest } from '../../src/domain/ports/channel.ts';
import { fixtures } from './fixtures/all.ts';
import { hookUrl, nowMs, setupOf, type Fixture } from './fixtures/fixture.ts';

const reader = createMailReader();

/** What tells of something, and is said by nobody. */
const unsaid = new Set(['github.ping', 'whatsapp.status', 'twilio.status']);

const make = (fixture: Fixture, event: string, setup = setupOf(fixture)) =>
  samples.make(
    fixture.kind,
    { event, text: 'Grüße, is it up?', id: newId().replaceAll('-', ''), url: hookUrl, nowMs },
    setup,
  );

function taken(fixture: Fixture, request: InboundRequest, isSigned: boolean): InboundEvent[] {
  const kind = kinds[fixture.kind];
  if (!isSigned) return kind.parse(request, setupOf(fixture)).events;
  const received = receive(kind, request, setupOf(fixture), nowMs, fixture.documents ?? new Map());
  assert.equal(received.result, 'accepted', `${fixture.title}: ${JSON.stringify(received)}`);
  return received.parsed.events;
}

test('every kind of channel has samples that its own verification takes, and that start a turn', async (t) => {
  t.after(() => reader.close());
  for (const fixture of fixtures) {
    const setup = setupOf(fixture);
    for (const name of samples.names(fixture.kind, setup)) {
      const wanted = name.replace('*', 'order.created');
      const sample = make(fixture, wanted);
      for (const request of sample.requests) {
        const [event] = taken(fixture, request, sample.isSigned);
        if (name === 'github.ping') continue;
        const told = `${fixture.title}, ${wanted}: ${JSON.stringify(event)}`;
        assert.ok(event, told);
        assert.equal(
          event.kind.replace(/\.message$/, '.retry') === wanted || event.kind === wanted,
          true,
          told,
        );
        if (unsaid.has(name)) continue;
        const read = event.mail === null ? event : await readMail(event, sample.fetched, fixture);
        assert.equal(read.ignore, null, told);
        assert.match(read.text, /Grüße, is it up\?/, told);
        assert.ok(read.messageKey && read.deliveryKey, told);
      }
    }
  }
});

async function readMail(
  event: InboundEvent,
  fetched: string | null,
  fixture: Fixture,
): Promise<InboundEvent> {
  const setup = setupOf(fixture);
  const call = mailFetch(event, setup, nowMs);
  assert.equal(call !== null, fetched !== null);
  const reply = { status: 200, headers: new Map<string, string>(), body: Buffer.from(fetched ?? '') };
  const completed = await completeMail(call ? withFetched(event, reply) : event, setup, reader);
  assert.ok('event' in completed, JSON.stringify(completed));
  return completed.event;
}

test('two samples are two messages, and a changed one is forged where the body is signed', () => {
  for (const fixture of fixtures) {
    const setup = setupOf(fixture);
    const [name] = samples.names(fixture.kind, setup);
    const keys = [0, 1].map(() => {
      const sample = make(fixture, name!);
      const [event] = taken(fixture, sample.requests[0]!, sample.isSigned);
      return event!.deliveryKey;
    });
    assert.notEqual(keys[0], keys[1], fixture.title);
  }
  const sample = make(fixtures[0]!, 'slack.message').requests[0]!;
  const body = Buffer.from(sample.body.toString().replace('is it up', 'is it UP'));
  const received = receive(kinds.slack, { ...sample, body }, setupOf(fixtures[0]!), nowMs, new Map());
  assert.equal(received.result, 'forged');
});

test("a sample of a generic channel has a value wherever the channel's templates look for one", () => {
  const generic = fixtures.find(({ kind }) => kind === 'generic')!;
  const settings = {
    ...setupOf(generic).settings,
    text: 'New: {{data.items.0.name}}',
    conversation: '{{header:X-Customer}}',
    type: '{{meta.kind}}',
    messageId: '{{__proto__.polluted}}',
  };
  const setup = setupOf(generic, { settings });
  const sample = make(generic, 'generic.order.created', setup);
  const { events } = kinds.generic.parse(sample.requests[0]!, setup);
  assert.equal(events[0]!.kind, 'generic.order.created');
  assert.equal(events[0]!.text, 'New: Grüße, is it up?');
  assert.match(events[0]!.conversationKey!, /^sample-/);
  assert.equal(({} as Record<string, unknown>)['polluted'], undefined);
});
