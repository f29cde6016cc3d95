import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DomainError } from '../../src/domain/errors.ts';
import { receive } from '../../src/domain/receive.ts';
import { slackApp } from '../../src/channels/slack/route.ts';
import { twilioFixture } from './fixtures/chat.ts';
import { hookUrl, kindOf, nowMs, setupOf, signed } from './fixtures/fixture.ts';
import { mailgunFixture } from './fixtures/mail.ts';

const formType = 'application/x-www-form-urlencoded';
const many = (count: number) => Array.from({ length: count }, (_, index) => `f${index}=1`).join('&');
const isTooMany = (error: unknown) =>
  error instanceof DomainError &&
  error.code === 'invalid_request' &&
  /at most 1000 fields/.test(error.message);

test('a form of more fields than any sender has is refused before they are read, by whoever has to read it to verify it', () => {
  for (const fixture of [twilioFixture, mailgunFixture]) {
    const request = signed(fixture, fixture.message({}));
    const take = (body: string) =>
      receive(kindOf(fixture), { ...request, body: Buffer.from(body) }, setupOf(fixture), nowMs, new Map());
    assert.throws(() => take(`${String(request.body)}&${many(1_000)}`), isTooMany, fixture.title);
    assert.throws(() => take('&'.repeat(300_000)), isTooMany, fixture.title);
    const genuine = take(String(request.body));
    assert.equal(genuine.result, 'accepted');
  }
  const shared = (body: string) =>
    slackApp.read({
      method: 'POST',
      url: hookUrl,
      headers: new Map([['content-type', formType]]),
      body: Buffer.from(body),
    });
  assert.throws(() => shared('a&'.repeat(500_000)), isTooMany);
  assert.ok('appId' in shared(`api_app_id=A1&${many(900)}`));
});
