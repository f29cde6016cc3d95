import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { verifySlackRequest } from 'slack-edge';
import {
  getExpectedTwilioSignature,
  validateRequest,
  validateRequestWithBody,
} from 'twilio/lib/webhooks/webhooks.js';
import { kinds } from '../../src/channels/kinds.ts';
import type { InboundRequest } from '../../src/domain/ports/channel.ts';
import { twilioFixture } from './fixtures/chat.ts';
import { hookUrl, nowMs, setupOf, signed, type Fixture } from './fixtures/fixture.ts';
import { slackFixture } from './fixtures/slack.ts';

const verdict = (fixture: Fixture, request: InboundRequest, atMs = nowMs) =>
  kinds[fixture.kind].verify(request, setupOf(fixture), atMs, new Map()).verdict;

test('slack-edge agrees with us on genuine, changed and stale deliveries of Slack, and on another secret', async () => {
  const secret = slackFixture.credentials['signingSecret']!;
  // It reads the clock itself, in whole seconds.
  const atMs = Date.now();
  for (const text of ['hi', 'Grüße 🎉', '\u2028<@U0BOT> & %2B+']) {
    const of = (signedMs: number) => signed(slackFixture, slackFixture.message({ text }), signedMs);
    const request = of(atMs);
    const changed = { ...request, body: Buffer.concat([request.body, Buffer.from(' ')]) };
    const ends = [request, changed, of(atMs - 290_000), of(atMs - 310_000)];
    const theirs = (one: InboundRequest, key = secret) =>
      verifySlackRequest(key, new Headers([...one.headers]), one.body.toString());
    for (const [index, isGenuine] of [true, false, true, false].entries()) {
      const one = ends[index]!;
      assert.equal(await theirs(one), isGenuine, `${text} ${index}`);
      assert.equal(verdict(slackFixture, one, atMs) === 'genuine', isGenuine, `${text} ${index}`);
    }
    assert.equal(await theirs(request, `${secret}x`), false);
  }
});

test("Twilio's own package agrees with us on forms and JSON, with and without a query, and on what was changed", () => {
  const token = twilioFixture.credentials['authToken']!;
  const request = (type: string, url: string, signature: string, body: string): InboundRequest => ({
    method: 'POST',
    url,
    headers: new Map([
      ['content-type', type],
      ['x-twilio-signature', signature],
    ]),
    body: Buffer.from(body),
  });
  const forms: Record<string, string>[] = [
    { MessageSid: 'SM1', From: '+49', To: '+1', Body: 'hi' },
    { Body: 'Grüße 🎉 & = % +', b: '', A: '1', a: '2', Z: '' },
    { 'x y': ' ', Body: '\r\n' },
  ];
  for (const url of [hookUrl, `${hookUrl}?foo=1&bar=2`]) {
    for (const form of forms) {
      const body = new URLSearchParams(form).toString();
      const type = 'application/x-www-form-urlencoded';
      const signature = getExpectedTwilioSignature(token, url, form);
      assert.equal(verdict(twilioFixture, request(type, url, signature, body)), 'genuine', body);
      assert.equal(verdict(twilioFixture, request(type, url, signature, `${body}&c=1`)), 'forged', body);
      assert.equal(verdict(twilioFixture, request(type, `${url}1`, signature, body)), 'forged', body);
      const ours = signed(twilioFixture, { url, body }).headers.get('x-twilio-signature')!;
      assert.equal(validateRequest(token, ours, url, form), true, body);
      assert.equal(validateRequest(`${token}x`, ours, url, form), false, body);
    }
  }
  const body = JSON.stringify({ MessageSid: 'SM1', Body: 'Grüße' });
  const url = `${hookUrl}?bodySHA256=${createHash('sha256').update(body).digest('hex')}`;
  const signature = getExpectedTwilioSignature(token, url, {});
  for (const [sent, isGenuine] of [
    [body, true],
    [`${body} `, false],
  ] as const) {
    assert.equal(validateRequestWithBody(token, signature, url, sent), isGenuine);
    const found = verdict(twilioFixture, request('application/json', url, signature, sent));
    assert.equal(found === 'genuine', isGenuine);
  }
});
