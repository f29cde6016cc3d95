import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { kinds } from '../../src/channels/kinds.ts';
import { completeMail, mailFetch, withFetched } from '../../src/channels/mail/complete.ts';
import { createMailReader } from '../../src/channels/mail/read/mail-reader.ts';
import { receive } from '../../src/domain/receive.ts';
import { channelKinds } from '../../src/domain/channel.ts';
import { DomainError } from '../../src/domain/errors.ts';
import type { ChannelSetup, InboundEvent, InboundRequest } from '../../src/domain/ports/channel.ts';
import { fixtures } from './fixtures/all.ts';
import { brokenBodies, whenBroken } from './fixtures/broken.ts';
import {
  channelId,
  kindOf,
  nowMs,
  setupOf,
  signed,
  wrongSecret,
  type Fixture,
  type Unsigned,
} from './fixtures/fixture.ts';

const reader = createMailReader();
after(() => reader.close());

const take = (
  fixture: Fixture,
  request: InboundRequest,
  atMs = nowMs,
  setup: ChannelSetup = setupOf(fixture),
) => receive(kindOf(fixture), request, setup, atMs, fixture.documents ?? new Map());

/** The single event of a genuine request, read to the end. */
async function read(fixture: Fixture, unsigned: Unsigned): Promise<InboundEvent> {
  const received = take(fixture, signed(fixture, unsigned));
  assert.equal(received.result, 'accepted', JSON.stringify(received));
  assert.equal(received.parsed.events.length, 1);
  const event = received.parsed.events[0]!;
  if (event.mail === null) return event;
  const setup = setupOf(fixture);
  const fetched = mailFetch(event, setup, nowMs) ? withFetched(event, resendAnswer(unsigned)) : event;
  const completed = await completeMail(fetched, setup, reader);
  assert.ok('event' in completed, JSON.stringify(completed));
  return completed.event;
}

/** What Resend's API says of the mail that the webhook told of. */
function resendAnswer(unsigned: Unsigned) {
  const { data } = JSON.parse(String(unsigned.body)) as { data: { message_id: string; subject: string } };
  const { subject } = data;
  const body = {
    from: 'Ada Lovelace <ada@example.com>',
    subject,
    text: subject === '' ? '' : 'Is it up?',
    html: null,
    headers: {},
    message_id: data.message_id,
  };
  return { status: 200, headers: new Map<string, string>(), body: Buffer.from(JSON.stringify(body)) };
}

const refusedWith = (code: string) => (error: unknown) => error instanceof DomainError && error.code === code;

test('there is a fixture of every kind of channel', () => {
  assert.deepEqual(new Set(fixtures.map(({ kind }) => kind)), new Set(channelKinds));
  for (const name of channelKinds) assert.equal(kinds[name].name, name);
});

for (const fixture of fixtures) {
  const { title } = fixture;

  test(`${title}: a genuine message becomes an event with text, sender, keys and a way to answer`, async () => {
    kindOf(fixture).check(setupOf(fixture));
    const event = await read(fixture, fixture.message({}));
    assert.equal(event.kind, fixture.expected.kind);
    assert.equal(event.text, fixture.expected.text);
    assert.equal(event.ignore, null);
    assert.notEqual(event.deliveryKey, '');
    assert.ok(event.messageKey);
    assert.ok(event.conversationKey);
    if (fixture.kind !== 'generic') {
      assert.ok(event.sender?.id);
      const steps = kindOf(fixture).reply(
        { text: 'Yes.', replyTo: event.replyTo!, outboxId: channelId },
        setupOf(fixture),
        nowMs,
      );
      assert.equal(steps.length, 1);
      assert.equal(new URL(steps[0]!.call.url).protocol, 'https:');
    }
  });

  test(`${title}: a wrong secret, a missing signature and a changed body are refused`, () => {
    const withWrong = take(fixture, signed(fixture, fixture.message({}), nowMs, wrongSecret(fixture)));
    assert.equal(withWrong.result, 'forged');
    const genuine = signed(fixture, fixture.message({}));
    const bare = new Map([...genuine.headers].filter(([name]) => name === 'content-type'));
    const body =
      fixture.signBody && title.includes('Mailgun')
        ? Buffer.from(String(fixture.message({}).body))
        : genuine.body;
    if (!title.includes('SES'))
      assert.equal(take(fixture, { ...genuine, headers: bare, body }).result, 'forged');
    if (coversBody(fixture)) {
      const changed = Buffer.from(
        genuine.body.toString('latin1').replace('up', 'UP').replace('Grüße', 'X').replace('q1@', 'q7@'),
        'latin1',
      );
      changed[changed.length - 3]! ^= 1;
      assert.equal(take(fixture, { ...genuine, body: changed }).result, 'forged');
    }
  });

  test(`${title}: a signature by the secret before the last rotation holds while that secret does`, () => {
    const credential = kindOf(fixture).signing(fixture.settings)?.credential;
    if (!credential || ['teams', 'googlechat'].includes(fixture.kind)) return;
    const genuine = signed(fixture, fixture.message({}));
    const next = fixture.credentials[credential]!.startsWith('whsec_')
      ? `whsec_${Buffer.alloc(24, 7).toString('base64')}`
      : fixture.kind === 'discord'
        ? '0'.repeat(64)
        : title.includes('SendGrid')
          ? `${fixture.credentials[credential]!.slice(0, 40)}AAAA`
          : 'next-secret';
    const credentials = { ...fixture.credentials, [credential]: next };
    const rotated = setupOf(fixture, { credentials, previousSecret: fixture.credentials[credential]! });
    assert.equal(take(fixture, genuine, nowMs, rotated).result, 'accepted');
    assert.equal(take(fixture, genuine, nowMs, { ...rotated, previousSecret: null }).result, 'forged');
  });

  if (fixture.staleAfterMs !== null) {
    test(`${title}: an old signature is refused as stale`, () => {
      const request = signed(fixture, fixture.message({}));
      const late = take(fixture, request, nowMs + fixture.staleAfterMs!);
      assert.deepEqual(late.result === 'forged' && late.reason, 'signature_stale');
    });
  }

  test(`${title}: the same delivery has the same keys again, another one has others`, async () => {
    const first = await read(fixture, fixture.message({}));
    const again = await read(fixture, fixture.retried ?? fixture.message({}));
    const other = await read(fixture, fixture.message({ id: '2' }));
    assert.equal(again.deliveryKey, first.deliveryKey);
    assert.equal(again.messageKey, first.messageKey);
    assert.notEqual(other.deliveryKey, first.deliveryKey);
    assert.notEqual(other.messageKey, first.messageKey);
    assert.equal(again.ignore, null);
    if (fixture.retried) assert.deepEqual(again.retry, { attempt: 1, reason: 'http_timeout' });
  });

  test(`${title}: a body beyond the limit, a wrong method and a wrong content type are refused`, () => {
    const huge = signed(fixture, { body: Buffer.alloc(0) });
    const body = Buffer.alloc(kindOf(fixture).bodyBytes + 1);
    assert.throws(() => take(fixture, { ...huge, body }), refusedWith('body_too_large'));
    const put = { ...signed(fixture, fixture.message({})), method: 'PUT' };
    assert.throws(() => take(fixture, put), refusedWith('method_not_allowed'));
    const image = fixture.message({});
    const wrong = signed(fixture, { ...image, headers: { ...image.headers, 'content-type': 'image/png' } });
    assert.throws(() => take(fixture, wrong), refusedWith('unsupported_media_type'));
  });

  test(`${title}: a signed body that is broken gets a clear error`, () => {
    const outcomes = brokenBodies.map((body) => {
      const request = signed(fixture, { ...fixture.message({}), body });
      try {
        const received = take(fixture, request);
        return received.result === 'forged' ? received.reason : received.result;
      } catch (error) {
        assert.ok(error instanceof DomainError, String(error));
        return error.code;
      }
    });
    assert.deepEqual(outcomes, whenBroken(fixture));
  });

  if (fixture.malformed) {
    test(`${title}: JSON in a field that is none is refused too`, () => {
      const request = signed(fixture, fixture.malformed!);
      assert.throws(() => take(fixture, request), refusedWith('invalid_json'));
    });
  }

  if (fixture.inLatin1) {
    test(`${title}: a body in another charset is verified by its bytes and read in that charset`, async () => {
      const { contentType, text } = fixture.inLatin1!;
      const unsigned = fixture.message({ text });
      const body = Buffer.from(String(unsigned.body), 'latin1');
      const event = await read(fixture, {
        ...unsigned,
        body,
        headers: { ...unsigned.headers, 'content-type': contentType },
      });
      assert.match(event.text, /Grüße/);
      const strange = {
        ...unsigned,
        headers: { ...unsigned.headers, 'content-type': 'application/json; charset=klingon' },
      };
      assert.throws(() => take(fixture, signed(fixture, strange)), refusedWith('unsupported_media_type'));
    });
  }

  test(`${title}: a message without text starts nothing`, async () => {
    const event = await read(fixture, fixture.message({ text: '' }));
    // A command says its own name, and a comment that says nothing names nobody.
    if (fixture.kind === 'discord') assert.equal(event.text, '/ask');
    else assert.ok(event.ignore === 'empty' || event.ignore === 'not_addressed', String(event.ignore));
  });

  for (const [reason, unsigned] of Object.entries(fixture.ignored)) {
    test(`${title}: what is ${reason.replaceAll('_', ' ')} is kept and not answered`, async () => {
      const event = await read(fixture, unsigned);
      assert.equal(event.ignore, reason);
      assert.notEqual(event.deliveryKey, '');
    });
  }

  if (fixture.handshake) {
    const { request, answer, unsigned } = fixture.handshake;
    test(`${title}: the handshake is answered in place, and only when it is genuine`, () => {
      const received = take(fixture, signed(fixture, request));
      assert.equal(received.result, 'accepted');
      assert.ok(received.parsed.events.every((event) => event.ignore !== null));
      assert.equal(received.parsed.answer.body, answer.body);
      assert.equal(received.parsed.answer.headers['content-type'] ?? null, answer.type);
      if (unsigned) {
        const wrong = { ...request, url: request.url!.replace('verify-1', 'verify-2') };
        assert.equal(take(fixture, signed(fixture, wrong)).result, 'forged');
      } else assert.equal(take(fixture, signed(fixture, request, nowMs, 'wrong-secret')).result, 'forged');
    });
  }
}

/** Bearer tokens, passwords and Mailgun's signature say nothing of the body. */
function coversBody({ kind, title }: Fixture): boolean {
  const isBare = ['telegram', 'teams', 'googlechat'].includes(kind) || title === 'gitlab';
  return !isBare && !/Postmark|Mailgun|token header/.test(title);
}
