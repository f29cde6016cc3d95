import assert from 'node:assert/strict';
import { test } from 'node:test';
import { boundedKey } from '../../src/domain/bounded-key.ts';
import { kinds } from '../../src/channels/kinds.ts';
import { genericHmacFixture, githubFixture } from './fixtures/code.ts';
import { json, setupOf, signed } from './fixtures/fixture.ts';
import { mime, mimeFixture } from './fixtures/mail.ts';

test('a GitHub event that starts a turn as its channel lists it is the same one under another id of its delivery', () => {
  const setup = setupOf(githubFixture, {
    settings: { ...githubFixture.settings, events: ['push'], respondTo: 'all' },
  });
  const read = (delivery: string, after: string) => {
    const unsigned = json({
      after,
      sender: { login: 'ada', type: 'User' },
      repository: { full_name: 'octo/hello' },
    });
    const { headers, ...request } = signed(githubFixture, unsigned);
    const told = new Map([...headers, ['x-github-event', 'push'], ['x-github-delivery', delivery]]);
    return kinds.github.parse({ ...request, headers: told }, setup).events[0]!;
  };
  const [first, again, other] = [read('1', 'a'), read('2', 'a'), read('3', 'b')];
  assert.equal(first.ignore, null);
  assert.notEqual(first.deliveryKey, again.deliveryKey);
  assert.equal(first.messageKey, again.messageKey);
  assert.notEqual(first.messageKey, other.messageKey);
});

test('a GitHub event that says neither when it was nor which one it is is another one under another id of its delivery', () => {
  const setup = setupOf(githubFixture, {
    settings: { ...githubFixture.settings, events: ['workflow_dispatch'], respondTo: 'all' },
  });
  const read = (delivery: string) => {
    const unsigned = json({
      inputs: { task: 'report' },
      ref: 'refs/heads/main',
      sender: { login: 'ada', type: 'User' },
      repository: { full_name: 'octo/hello' },
    });
    const { headers, ...request } = signed(githubFixture, unsigned);
    const told = new Map([
      ...headers,
      ['x-github-event', 'workflow_dispatch'],
      ['x-github-delivery', delivery],
    ]);
    return kinds.github.parse({ ...request, headers: told }, setup).events[0]!;
  };
  assert.equal(read('1').ignore, null);
  assert.notEqual(read('1').messageKey, read('2').messageKey);
  assert.equal(read('1').messageKey, read('1').messageKey);
});

test('ids that are alike in their first hundreds of characters are two ids, and no key is too long to be stored', () => {
  const long = 'x'.repeat(2_000);
  const generic = (end: string) => {
    const settings = { deliveryId: '{{id}}', messageId: '{{id}}', conversation: '{{id}}' };
    const setup = setupOf(genericHmacFixture, { settings: { ...genericHmacFixture.settings, ...settings } });
    return kinds.generic.parse(signed(genericHmacFixture, json({ id: long + end })), setup).events[0]!;
  };
  const mail = (end: string) => {
    const raw = mime({ id: '1' }).replace('<q1@', `<${long}${end}@`);
    const request = signed(mimeFixture, { body: raw, headers: { 'X-Envelope-To': 'agent@berth.example' } });
    return kinds.email.parse(request, setupOf(mimeFixture)).events[0]!;
  };
  const keysOf = ({ deliveryKey, messageKey, conversationKey }: ReturnType<typeof generic>) =>
    [deliveryKey, messageKey, conversationKey].flatMap((key) => (key === null ? [] : [boundedKey(key)]));
  assert.equal(keysOf(generic('a')).filter((key) => keysOf(generic('b')).includes(key)).length, 0);
  assert.notEqual(mail('a').messageKey, mail('b').messageKey);
  for (const key of [...keysOf(generic('a')), ...keysOf(mail('a'))]) assert.ok(key.length <= 300);
});
