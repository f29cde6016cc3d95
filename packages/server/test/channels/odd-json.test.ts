import assert from 'node:assert/strict';
import { test } from 'node:test';
import { kinds } from '../../src/channels/kinds.ts';
import { DomainError } from '../../src/domain/errors.ts';
import { limits } from '../../src/domain/limits.ts';
import { receive } from '../../src/domain/receive.ts';
import { slackApp } from '../../src/channels/slack/route.ts';
import { fixtures } from './fixtures/all.ts';
import { discordFixture, twilioFixture } from './fixtures/chat.ts';
import { githubFixture, linearFixture } from './fixtures/code.ts';
import { json, kindOf, nowMs, setupOf, signed, type Fixture, type Unsigned } from './fixtures/fixture.ts';
import { resendFixture, sesFixture } from './fixtures/mail.ts';
import { slackFixture } from './fixtures/slack.ts';

/** Nothing turns into a text of itself that says so. */
const odd = { toString: 1, valueOf: null };

const eventOf = (fixture: Fixture, unsigned: Unsigned) => {
  const received = receive(kindOf(fixture), signed(fixture, unsigned), setupOf(fixture), nowMs, new Map());
  assert.equal(received.result, 'accepted');
  return received.parsed.events[0]!;
};

const changed = (unsigned: Unsigned, change: (body: Record<string, unknown>) => void): Unsigned => {
  const body = JSON.parse(String(unsigned.body)) as Record<string, unknown>;
  change(body);
  return { ...unsigned, ...json(body) };
};

test('objects where a provider sends texts break nothing, and are shown or left out', () => {
  const command = changed(discordFixture.message({}), (body) => {
    body['data'] = { name: 'ask', options: [{ name: 'q', type: 3, value: odd }], values: [odd, 'chosen'] };
  });
  assert.equal(eventOf(discordFixture, command).text, `/ask\nq: ${JSON.stringify(odd)}\nchosen`);
  const sms = {
    ...json({
      MessageSid: 'SM1',
      From: odd,
      To: '+15550783881',
      Body: odd,
      SmsStatus: 'received',
      NumMedia: 0,
    }),
    headers: { 'content-type': 'application/json' },
  };
  const { sender, text } = eventOf(twilioFixture, sms);
  assert.deepEqual([sender!.id, text], ['', '']);
  const mail = changed(resendFixture.message({}), (body) => {
    (body['data'] as Record<string, unknown>)['to'] = [odd, 'agent@berth.example'];
  });
  assert.deepEqual(eventOf(resendFixture, mail).mail!.envelope.to, ['agent@berth.example']);
});

test('what a person says below an issue that our own GitHub App has opened is theirs, and what the app says is its own', () => {
  const app = { performed_via_github_app: { id: 77 } };
  const settings = { ...setupOf(githubFixture).settings, appId: '77', respondTo: 'all', allowBots: true };
  const ignoreOf = (event: string, change: (body: Record<string, unknown>) => void) => {
    const message = changed(githubFixture.message({}), change);
    const request = signed(githubFixture, {
      ...message,
      headers: { ...message.headers, 'X-GitHub-Event': event },
    });
    const received = receive(kinds.github, request, setupOf(githubFixture, { settings }), nowMs, new Map());
    assert.equal(received.result, 'accepted');
    return received.parsed.events[0]!.ignore;
  };
  const add = (body: Record<string, unknown>, place: string) => Object.assign(body[place] as object, app);
  assert.equal(
    ignoreOf('issue_comment', (body) => add(body, 'issue')),
    null,
  );
  assert.equal(
    ignoreOf('issue_comment', (body) => add(body, 'comment')),
    'own_message',
  );
  const opened = (body: Record<string, unknown>) => {
    body['action'] = 'opened';
    delete body['comment'];
  };
  assert.equal(ignoreOf('issues', opened), null);
  assert.equal(
    ignoreOf('issues', (body) => {
      opened(body);
      add(body, 'issue');
    }),
    'own_message',
  );
});

const padded = (unsigned: Unsigned, values: number): Unsigned =>
  changed(unsigned, (body) => {
    body['padding'] = Array.from({ length: values }, () => ({}));
  });

test('a body with more names and values than any sender has reason to send is parsed neither before nor after it is verified', () => {
  const tried = fixtures.filter(({ contentType }) => /json/.test(contentType));
  assert.ok(tried.length > 8);
  const tooMany = (error: unknown) =>
    error instanceof DomainError &&
    error.code === 'invalid_request' &&
    /100000 names and values/.test(error.message);
  const take = (fixture: Fixture) => {
    const many = signed(fixture, padded(fixture.message({}), limits.jsonValues));
    return receive(kindOf(fixture), many, setupOf(fixture), nowMs, fixture.documents ?? new Map());
  };
  for (const fixture of tried.filter(({ kind }) => kind !== 'linear'))
    assert.throws(() => take(fixture), tooMany, fixture.title);
  // Of these the proof is looked for inside of the body.
  for (const fixture of [linearFixture, sesFixture])
    assert.equal(take(fixture).result, 'forged', fixture.title);
  const long = changed(sesFixture.message({}), (body) => {
    body['padding'] = 'x'.repeat(limits.snsMessageBytes);
  });
  const received = receive(
    kindOf(sesFixture),
    signed(sesFixture, long),
    setupOf(sesFixture),
    nowMs,
    sesFixture.documents!,
  );
  assert.equal(received.result, 'forged');
  const { body } = padded(slackFixture.message({}), limits.jsonValues);
  const request = { ...signed(slackFixture, slackFixture.message({})), body: Buffer.from(body) };
  assert.throws(() => slackApp.read(request), tooMany);
});
