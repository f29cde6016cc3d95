import assert from 'node:assert/strict';
import { test } from 'node:test';
import { kinds } from '../../src/channels/kinds.ts';
import { splitText } from '../../src/channels/split.ts';
import { leadsTo } from '../../src/channels/specs.ts';
import { names } from '../../src/channels/code/mention.ts';
import { plainText } from '../../src/channels/slack/text.ts';
import type { HttpReply, ReplyTo } from '../../src/domain/ports/channel.ts';
import { discordFixture, telegramFixture, whatsappFixture } from './fixtures/chat.ts';
import { githubFixture, linearFixture } from './fixtures/code.ts';
import { channelId, nowMs, setupOf, signed, type Fixture } from './fixtures/fixture.ts';
import { slackDelivery, slackFixture, signSlack } from './fixtures/slack.ts';
import { googleChatFixture, teamsFixture } from './fixtures/tokens.ts';

const reply = (status: number, body: unknown = {}, headers: [string, string][] = []): HttpReply => ({
  status,
  headers: new Map(headers),
  body: Buffer.from(typeof body === 'string' ? body : JSON.stringify(body)),
});

const parseOne = (fixture: Fixture, unsigned = fixture.message({}), settings = {}) => {
  const setup = setupOf(fixture);
  return kinds[fixture.kind].parse(signed(fixture, unsigned), {
    ...setup,
    settings: { ...setup.settings, ...settings },
  }).events[0]!;
};

const stepsOf = (fixture: Fixture, text: string, replyTo: ReplyTo = parseOne(fixture).replyTo!) =>
  kinds[fixture.kind].reply({ text, replyTo, outboxId: channelId }, setupOf(fixture), nowMs);

test('a long answer is split at paragraphs, lines or words, and nothing of it is lost', () => {
  const paragraphs = Array.from({ length: 50 }, (_, index) =>
    `Paragraph ${index} ${'word '.repeat(20)}`.trim(),
  );
  const parts = splitText(paragraphs.join('\n\n'), 500);
  assert.ok(parts.every((part) => part.length <= 500));
  assert.equal(parts.join('\n\n'), paragraphs.join('\n\n'));
  const emoji = splitText('🎉'.repeat(1_000), 101);
  assert.ok(emoji.every((part) => part.isWellFormed() && part.length <= 101));
  assert.equal(emoji.join(''), '🎉'.repeat(1_000));
  const code = splitText(`Look:\n\`\`\`ts\n${'  const a = 1;\n'.repeat(60)}\`\`\`\nDone.`, 300);
  assert.ok(code.every((part) => part.length <= 300));
  for (const part of code) assert.equal((part.match(/^```/gm) ?? []).length % 2, 0, part);
  assert.equal(code.join('\n').match(/const a = 1;/g)!.length, 60);
  assert.deepEqual(splitText('  ', 10), []);
});

test('every kind splits by its own limit and numbers its parts', () => {
  for (const [fixture, limit] of [
    [slackFixture, 12_000],
    [telegramFixture, 4_096],
    [discordFixture, 2_000],
    [whatsappFixture, 4_096],
  ] as const) {
    const steps = stepsOf(fixture, 'word '.repeat(6_000));
    assert.ok(steps.length >= Math.ceil(30_000 / limit), fixture.title);
    assert.ok(steps.length <= Math.ceil(30_000 / limit) + 2, fixture.title);
    assert.equal(new Set(steps.map((step) => step.mark)).size, steps.length);
  }
});

test('Slack answers in the thread of the message, and finds its answer again by metadata', () => {
  const [step] = stepsOf(slackFixture, 'Yes.');
  const body = JSON.parse(step!.call.body!) as Record<string, unknown>;
  assert.equal(step!.call.url, 'https://slack.com/api/chat.postMessage');
  assert.equal(body['thread_ts'], '1759999999.000001');
  assert.ok(JSON.stringify(body['metadata']).includes(step!.mark));
  assert.match(step!.lookup!.url, /conversations\.replies\?.*ts=1759999999\.000001/);
  const inThread = parseOne(
    slackFixture,
    slackDelivery({
      type: 'message',
      user: 'U1',
      text: 'go on',
      ts: '2.1',
      thread_ts: '1.1',
      channel: 'C1',
      channel_type: 'channel',
    }),
  );
  assert.equal(inThread.conversationKey, 'T061EG9R6:C1:1.1');
  assert.equal(inThread.onlyIfKnown, true);
  assert.equal(inThread.ignore, null);
  const direct = parseOne(
    slackFixture,
    slackDelivery({ type: 'message', user: 'U1', text: 'hi', ts: '2.1', channel: 'D1', channel_type: 'im' }),
  );
  assert.equal(direct.conversationKey, 'T061EG9R6:D1');
  assert.equal(
    JSON.parse(stepsOf(slackFixture, 'Yes.', direct.replyTo!)[0]!.call.body!).thread_ts,
    undefined,
  );
});

test('a mention that comes as two Slack events under two ids is one message', () => {
  const asMention = parseOne(slackFixture);
  const asMessage = parseOne(
    slackFixture,
    slackDelivery(
      {
        type: 'message',
        user: 'U061F7AUR',
        text: '<@U0BOT> is it up?',
        ts: '1759999999.000001',
        channel: 'C0LAN2Q65',
        channel_type: 'channel',
      },
      'Ev9',
    ),
  );
  assert.notEqual(asMessage.deliveryKey, asMention.deliveryKey);
  assert.equal(asMessage.messageKey, asMention.messageKey);
  assert.equal(asMessage.ignore, null);
});

test('Slack commands and actions are answered over their own URL, and only over one of Slack', () => {
  const form = (fields: Record<string, string>) => ({
    body: new URLSearchParams(fields).toString(),
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
  });
  const command = (url: string) => ({
    command: '/ask',
    text: 'is it up?',
    team_id: 'T1',
    channel_id: 'C1',
    user_id: 'U1',
    trigger_id: '1.2.3',
    response_url: url,
  });
  const event = parseOne(slackFixture, form(command('https://hooks.slack.com/commands/1')));
  assert.equal(event.text, '/ask is it up?');
  assert.equal(
    stepsOf(slackFixture, 'Yes.', event.replyTo!)[0]!.call.url,
    'https://hooks.slack.com/commands/1',
  );
  const stolen = parseOne(slackFixture, form(command('https://hooks.slack.com.evil.example/1')));
  assert.equal(
    stepsOf(slackFixture, 'Yes.', stolen.replyTo!)[0]!.call.url,
    'https://slack.com/api/chat.postMessage',
  );
  const payload = JSON.stringify({
    type: 'block_actions',
    team: { id: 'T1' },
    user: { id: 'U1', username: 'ada' },
    channel: { id: 'C1' },
    message: { ts: '5.1', thread_ts: '4.1' },
    actions: [{ action_id: 'approve', value: 'yes', action_ts: '6.1' }],
    response_url: 'https://hooks.slack.com/actions/1',
  });
  const action = parseOne(slackFixture, form({ payload }));
  assert.equal(action.kind, 'slack.action');
  assert.equal(action.text, 'approve: yes');
  assert.equal(action.conversationKey, 'T1:C1:4.1');
  assert.equal(kinds.slack.lane(signed(slackFixture, form({ payload }))), 'reserved');
  assert.ok(signSlack(form({ payload }), nowMs)['X-Slack-Signature']!.startsWith('v0='));
});

test('a Slack answer begins with its mark, is changed, and is found again; the answer to a command never grows', () => {
  const setup = setupOf(slackFixture);
  const answer = { text: 'Ye', replyTo: parseOne(slackFixture).replyTo!, outboxId: channelId };
  const stream = kinds.slack.stream!;
  const bodyOf = (call: { body: string | null }) => JSON.parse(call.body!) as Record<string, unknown>;
  const start = bodyOf(stream.start(answer, setup)!);
  assert.deepEqual([start['thread_ts'], start['markdown_text']], ['1759999999.000001', 'Ye']);
  const mark = `${channelId}:0`;
  assert.deepEqual(start['metadata'], {
    event_type: 'berth_answer',
    event_payload: { mark, growing: true },
  });
  const update = stream.update({ ...answer, text: 'Yes' }, '7.1', setup);
  assert.equal(update.url, 'https://slack.com/api/chat.update');
  assert.deepEqual([bodyOf(update)['ts'], bodyOf(update)['markdown_text']], ['7.1', 'Yes']);
  const [step] = stepsOf(slackFixture, 'Yes.');
  const end = bodyOf(step!.change!('7.1'));
  assert.deepEqual([end['ts'], end['markdown_text']], ['7.1', 'Yes.']);
  assert.ok(!JSON.stringify(end['metadata']).includes('growing'));
  const messages = [{ ts: '6.1' }, { ts: '7.1', metadata: start['metadata'] }];
  assert.deepEqual(stream.find(reply(200, { ok: true, messages }), answer), {
    externalId: '7.1',
    isGrowing: true,
  });
  assert.equal(stream.find(reply(200, { ok: true, messages: messages.slice(0, 1) }), answer), null);
  const toCommand = { ...answer, replyTo: { ...answer.replyTo, responseUrl: 'https://hooks.slack.com/x' } };
  assert.equal(stream.start(toCommand, setup), null);
  assert.equal(stream.start({ ...answer, text: ' ' }, setup), null);
});

test('what a provider answers is sent, again later, or failed', () => {
  const outcome = (kind: keyof typeof kinds, ...given: Parameters<typeof reply>) =>
    kinds[kind].readReply(reply(...given));
  assert.deepEqual(outcome('slack', 200, { ok: true, ts: '1.2' }), { outcome: 'sent', externalId: '1.2' });
  assert.equal(outcome('slack', 200, { ok: false, error: 'channel_not_found' }).outcome, 'failed');
  assert.deepEqual(
    outcome('slack', 429, { ok: false, error: 'ratelimited' }, [['retry-after', '30']]).outcome,
    'retry',
  );
  assert.deepEqual(outcome('telegram', 429, { ok: false, parameters: { retry_after: 7 } }), {
    outcome: 'retry',
    afterMs: 7_000,
    reason: 'Telegram answered with status 429.',
    isTooMany: true,
  });
  assert.equal(outcome('github', 503).outcome, 'retry');
  assert.equal(outcome('github', 403).outcome, 'failed');
  assert.equal(outcome('linear', 200, { errors: [{ message: 'Entity already exists' }] }).outcome, 'sent');
  assert.equal(
    outcome('linear', 400, { errors: [{ message: 'x', extensions: { code: 'RATELIMITED' } }] }).outcome,
    'retry',
  );
  assert.deepEqual(outcome('email', 200, { MessageID: 'm' }), { outcome: 'sent', externalId: 'm' });
  const dated = reply(429, {}, [
    ['date', 'Thu, 09 Oct 2025 08:53:20 GMT'],
    ['retry-after', 'Thu, 09 Oct 2025 08:54:20 GMT'],
  ]);
  assert.deepEqual(kinds.github.readReply(dated), {
    outcome: 'retry',
    afterMs: 60_000,
    reason: 'The provider answered with status 429.',
    isTooMany: true,
  });
});

test('what may be sent twice says so: ids of our own at Linear and Google Chat, the first answer of Discord', () => {
  const [first, again] = [stepsOf(linearFixture, 'Yes.'), stepsOf(linearFixture, 'Yes.')];
  assert.equal(first[0]!.repeat, 'same');
  assert.equal(first[0]!.call.body, again[0]!.call.body);
  assert.match(first[0]!.call.body!, /"id":"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-a[0-9a-f]{3}-[0-9a-f]{12}"/);
  const [chat] = stepsOf(googleChatFixture, 'Yes.');
  assert.match(
    chat!.call.url,
    /^https:\/\/chat\.googleapis\.com\/v1\/spaces\/AAAA\/messages\?.*requestId=[0-9a-f]{32}/,
  );
  assert.equal(chat!.call.token!.tokenField, 'access_token');
  const discord = stepsOf(discordFixture, 'x'.repeat(3_000));
  assert.deepEqual(
    discord.map((step) => [step.call.method, step.repeat]),
    [
      ['PATCH', 'same'],
      ['POST', 'again'],
    ],
  );
});

test('an answer on GitHub bears a hidden mark, by which it is looked for', () => {
  const [step] = stepsOf(githubFixture, 'Yes.');
  assert.equal(step!.call.url, 'https://api.github.com/repos/octo/hello/issues/7/comments');
  assert.ok((JSON.parse(step!.call.body!) as { body: string }).body.includes(step!.mark));
  assert.match(step!.lookup!.url, /since=2025-10-09/);
  const own = parseOne(
    githubFixture,
    githubFixture.message({ text: `@berth x <!-- berth:${channelId}:0 -->` }),
  );
  assert.equal(own.ignore, 'own_message');
});

test('Teams is answered only at addresses of Microsoft', () => {
  const unsigned = teamsFixture.message({});
  const evil = {
    ...unsigned,
    body: String(unsigned.body).replaceAll(
      'https://smba.trafficmanager.net/emea/',
      'https://smba.trafficmanager.net.evil.example/',
    ),
  };
  assert.equal(parseOne(teamsFixture, evil).replyTo, null);
  // The token names another address than the activity.
  assert.equal(
    kinds.teams.verify(signed(teamsFixture, evil), setupOf(teamsFixture), nowMs, teamsFixture.documents!)
      .verdict,
    'forged',
  );
  const [step] = stepsOf(teamsFixture, 'Yes.');
  assert.match(step!.call.url, /^https:\/\/smba\.trafficmanager\.net\/emea\/v3\/conversations\//);
});

test('a URL of a payload gets our token only when it leads to the provider', () => {
  const setup = setupOf(slackFixture);
  const hosts = ['files.slack.com', '.slack-files.com'];
  assert.equal(leadsTo('https://files.slack.com/a', hosts, setup), true);
  assert.equal(leadsTo('https://x.slack-files.com/a', hosts, setup), true);
  for (const url of [
    'http://files.slack.com/a',
    'https://files.slack.com.evil.example/',
    'https://user@files.slack.com/',
    'https://files.slack.com:444/',
    'https://evilslack-files.com/',
    'https://evil.example/?files.slack.com',
    'file:///etc/passwd',
    '//files.slack.com/a',
  ])
    assert.equal(leadsTo(url, hosts, setup), false, url);
  assert.equal(leadsTo('http://127.0.0.1:9/x', hosts, { ...setup, apiBaseUrl: 'http://127.0.0.1:9' }), true);
});

test('mentions and markup are read as people mean them', () => {
  assert.equal(names('hey @Berth, look', 'berth'), true);
  for (const text of ['@berthold', 'x@berth', '@berth-two', '`@berth`', 'berth'])
    assert.equal(names(text, 'berth'), false, text);
  assert.equal(
    plainText('<@U0BOT> see <https://x.example|the page> &amp; <#C1|general> <!here>', 'U0BOT'),
    'see the page (https://x.example) & #general @here',
  );
});
