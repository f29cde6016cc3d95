import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { completeMail, mailFetch, withFetched } from '../../src/channels/mail/complete.ts';
import { createMailReader } from '../../src/channels/mail/read/mail-reader.ts';
import { receive } from '../../src/domain/receive.ts';
import { kindOf, nowMs, setupOf, signed } from './fixtures/fixture.ts';
import { address, resendFixture } from './fixtures/mail.ts';

const reader = createMailReader();
after(() => reader.close());

test('mail that is fetched is looked through for what must not be answered: our own, lists and automatic answers', async () => {
  const setup = setupOf(resendFixture);
  const request = signed(resendFixture, resendFixture.message({}));
  const received = receive(kindOf(resendFixture), request, setup, nowMs, new Map());
  assert.equal(received.result, 'accepted');
  const event = received.parsed.events[0]!;
  assert.match(mailFetch(event, setup, nowMs)!.url, /emails\/receiving/);
  const cases: [headers: Record<string, string>, ignore: string | null][] = [
    [{}, null],
    [{ 'X-Berth-Channel': '1' }, 'own_message'],
    [{ From: address }, 'own_message'],
    [{ 'List-Id': '<all.example.com>' }, 'mailing_list'],
    [{ 'Auto-Submitted': 'auto-replied' }, 'auto_reply'],
  ];
  for (const [headers, ignore] of cases) {
    const body = JSON.stringify({
      from: 'ada@example.com',
      to: [address],
      text: 'Is it up?',
      headers: { From: 'ada@example.com', ...headers },
    });
    const fetched = withFetched(event, { status: 200, headers: new Map(), body: Buffer.from(body) });
    const completed = await completeMail(fetched, setup, reader);
    assert.ok('event' in completed);
    assert.equal(completed.event.ignore, ignore, JSON.stringify(headers));
  }
});
