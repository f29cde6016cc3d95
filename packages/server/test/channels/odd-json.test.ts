import assert from 'node:assert/strict';
import { test } from 'node:test';
import { kinds } from '../../src/channels/kinds.ts';
import { receive } from '../../src/domain/receive.ts';
import { discordFixture, twilioFixture } from './fixtures/chat.ts';
import { githubFixture } from './fixtures/code.ts';
import { json, kindOf, nowMs, setupOf, signed, type Fixture, type Unsigned } from './fixtures/fixture.ts';
import { resendFixture } from './fixtures/mail.ts';

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
