import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { createInboundQueue } from '../../src/store/inbound-queue.ts';
import type { Script } from '../support/fake-sandbox.ts';
import { slackApi } from '../support/slack-api.ts';
import { until } from '../support/until.ts';
import { slackSecret } from './fixtures/slack.ts';
import { channelParts, channelWorld, slackRequest, threadMessage } from './world.ts';

let world: Awaited<ReturnType<typeof channelWorld>>;
let slack: Awaited<ReturnType<typeof slackApi>>;

/** Steps that a turn waits for, by the word of its message. */
const steps = new Map<string, ReturnType<typeof Promise.withResolvers<void>>>();
const step = (name: string) => {
  const found = steps.get(name) ?? Promise.withResolvers<void>();
  steps.set(name, found);
  return found;
};

/** Says `one`, then `two` and then ` three`, each when the test lets it; what happens then is in the message. */
const script: Script = async (turn) => {
  const [, name = '', end = ''] = /(\w+) then (\w+)/.exec(turn.content) ?? [];
  const say = (text: string) => turn.onUpdate({ kind: 'text', text });
  say('one');
  await step(`${name} 1`).promise;
  say(' two');
  await step(`${name} 2`).promise;
  if (end === 'fail') return { outcome: 'failed', code: 'harness_error', message: 'It broke.' };
  say(end === 'long' ? ` three${'\n\nparagraph'.repeat(2_000)}` : ' three');
  return { outcome: 'completed' };
};

before(async () => {
  slack = await slackApi();
  world = await channelWorld({ script });
  world.worker.start();
});
after(async () => {
  for (const { resolve } of steps.values()) resolve();
  await world?.close();
  await slack?.close();
});

async function channel(settings: Record<string, boolean>, at: typeof world): Promise<string> {
  const made = await at.service.create(at.owner, at.agentId, {
    kind: 'slack',
    credentials: { signingSecret: slackSecret, botToken: 'xoxb-secret' },
    settings,
    apiBaseUrl: slack.url,
  });
  return made.channel.id;
}

let threads = 0;
/** Delivers a message in a channel of its own; what is known of its answer. */
async function ask(
  name: string,
  end: string,
  settings: Record<string, boolean> = { streaming: true },
  at = world,
) {
  const channelId = await channel(settings, at);
  const thread = `1800000009.${String((threads += 1)).padStart(6, '0')}`;
  const request = slackRequest(threadMessage(thread, thread, `${name} then ${end}`));
  await at.inbox.receive('slack', channelId, request);
  return {
    thread,
    shown: (text: string) =>
      until(`"${text}" is shown`, () => slack.in(thread).find((message) => message.text === text)),
    go(number: 1 | 2) {
      step(`${name} ${number}`).resolve();
    },
    event: async () => {
      const [row] = await at.db.sql<{ id: string; state: string; reason: string | null }[]>`
        select id, state, reason from inbound_events where channel_id = ${channelId}`;
      return row!;
    },
    async settled(state: string) {
      return until(`the event is ${state}`, async () => {
        const row = await this.event();
        return row.state === state ? row : null;
      });
    },
  };
}

test('an answer appears with its first words, grows, and is whole in the end, in one message', async () => {
  const asked = await ask('grow', 'end');
  const first = await asked.shown('one');
  assert.equal(first.isGrowing, true);
  asked.go(1);
  await asked.shown('one two');
  asked.go(2);
  await asked.settled('done');
  const [message, ...others] = slack.in(asked.thread);
  assert.deepEqual(others, []);
  assert.deepEqual([message!.text, message!.isGrowing], ['one two three', false]);
  // On a slow machine there is time to show the last words too before the turn has ended; nothing is shown twice.
  const grown = message!.texts.slice(0, -1);
  const all = ['one', 'one two', 'one two three'];
  assert.deepEqual(grown, all.slice(0, Math.max(grown.length, 2)));
  assert.match(message!.mark, /:0$/);
});

test('a long answer goes on in further messages, the first of which is the one that grew', async () => {
  const asked = await ask('long', 'long');
  await asked.shown('one');
  asked.go(1);
  asked.go(2);
  await asked.settled('done');
  const [first, second, ...others] = slack.in(asked.thread);
  assert.deepEqual(others, []);
  assert.ok(first!.updates > 0 && first!.text.startsWith('one two three\n\nparagraph'));
  assert.deepEqual([first!.isGrowing, second!.isGrowing, second!.updates], [false, false, 0]);
  assert.match(second!.mark, /:1$/);
});

test('a rate limit of Slack holds back what is in between, and never the end', async () => {
  const asked = await ask('limit', 'end');
  let ends = 0;
  slack.answerBy((method, sent) => {
    const { growing } = sent.metadata.event_payload;
    if (method !== 'chat.update' || !sent.markdown_text.startsWith('one two')) return undefined;
    if (!growing && (ends += 1) > 1) return undefined;
    const headers = { 'retry-after': growing ? '60' : '0' };
    return { status: 429, headers, body: { ok: false, error: 'ratelimited' } };
  });
  await asked.shown('one');
  asked.go(1);
  await until('Slack has refused an update', () =>
    slack.calls.some(({ path, body }) => path === '/chat.update' && body.includes('"one two"')),
  );
  asked.go(2);
  await asked.settled('done');
  slack.answerBy(null);
  assert.deepEqual(
    slack.in(asked.thread).map(({ text, isGrowing, updates }) => [text, isGrowing, updates]),
    [['one two three', false, 1]],
  );
  assert.equal(ends, 2);
});

test('an answer whose run fails says that it ends there, and a replay answers anew', async () => {
  const asked = await ask('break', 'fail');
  await asked.shown('one');
  asked.go(1);
  asked.go(2);
  const failed = await asked.settled('failed');
  assert.equal(failed.reason, 'It broke.');
  const [message] = slack.in(asked.thread);
  assert.equal(message!.text, 'one two\n\n_The agent could not finish this answer._');
  assert.equal(message!.isGrowing, false);
  await world.inboundEvents.replay(world.owner, failed.id);
  await asked.settled('failed');
  assert.equal(slack.in(asked.thread)[0]!.text, message!.text);
  assert.ok(slack.in(asked.thread).every(({ isGrowing }) => !isGrowing));
});

test('a first message that nobody heard of is found by its mark, and made whole', async () => {
  const asked = await ask('unheard', 'end');
  slack.answerBy((method) => (method === 'chat.postMessage' ? null : undefined));
  await asked.shown('one');
  slack.answerBy(null);
  asked.go(1);
  asked.go(2);
  await asked.settled('done');
  assert.deepEqual(
    slack.in(asked.thread).map(({ text, isGrowing, updates }) => [text, isGrowing, updates]),
    [['one two three', false, 1]],
  );
});

test('an answer whose message somebody deletes while it grows is said whole, in a message of its own', async () => {
  const asked = await ask('deleted', 'end');
  const message = await asked.shown('one');
  Object.assign(message, { ts: 'deleted', thread: 'deleted' });
  asked.go(1);
  asked.go(2);
  assert.equal((await asked.settled('done')).reason, null);
  assert.deepEqual(
    slack.in(asked.thread).map(({ text, isGrowing }) => [text, isGrowing]),
    [['one two three', false]],
  );
});

test('that the end of an answer that failed is too many for Slack counts as no attempt', async () => {
  const asked = await ask('failing', 'fail');
  await asked.shown('one');
  let refusals = 0;
  slack.answerBy((_, sent) => {
    if (sent.metadata.event_payload.growing || (refusals += 1) > 2) return undefined;
    return { status: 429, headers: { 'retry-after': '0' }, body: { ok: false, error: 'ratelimited' } };
  });
  asked.go(1);
  asked.go(2);
  const { id } = await asked.settled('failed');
  slack.answerBy(null);
  assert.equal(refusals, 3);
  const [row] = await world.db.sql`select attempts from inbound_events where id = ${id}`;
  assert.equal(row!['attempts'], 1);
});

test('nothing is shown before its end where the channel does not want that', async () => {
  const asked = await ask('off', 'end', {});
  asked.go(1);
  asked.go(2);
  await asked.settled('done');
  assert.deepEqual(
    slack.in(asked.thread).map(({ text, updates }) => [text, updates]),
    [['one two three', 0]],
  );
});

for (const isNameKept of [true, false]) {
  const whose = isNameKept ? 'whose name is kept' : 'of which nobody heard whether it was sent';
  test(`a process that dies amid an answer leaves its message, ${whose}, to the next one, where it grows on and is made whole`, async (t) => {
    const options = { script, leaseMs: 1_000, nodeId: newId() };
    const first = await channelWorld(options);
    t.after(() => first.close());
    first.worker.start();
    const asked = await ask(`die${isNameKept ? '' : 'unheard'}`, 'end', { streaming: true }, first);
    const message = await asked.shown('one');
    await until('its name is kept', async () => {
      const rows = await first.db.sql`select 1 from channel_answers where external_id = ${message.ts}`;
      return rows.length === 1;
    });
    await first.replica.crash();
    if (!isNameKept) await first.db.sql`update channel_answers set external_id = null`;
    const next = channelParts(await first.addReplica(options));
    t.after(() => next.close());
    next.worker.start();
    asked.go(1);
    const grown = await asked.shown('one two');
    assert.deepEqual([grown.ts, grown.isGrowing], [message.ts, true]);
    asked.go(2);
    const { id } = await asked.settled('done');
    assert.deepEqual(
      slack.in(asked.thread).map(({ text, isGrowing }) => [text, isGrowing]),
      [['one two three', false]],
    );
    // The kill costs the event nothing: the one attempt is the next process's own.
    const [row] = await first.db.sql`select attempts, cut_offs from inbound_events where id = ${id}`;
    assert.deepEqual({ ...row }, { attempts: 1, cut_offs: 0 });
  });
}

test('while one process shows an answer no other one shows it too, and one that is stopped leaves it at once', async (t) => {
  const at = await channelWorld({ script });
  t.after(() => at.close());
  const replica = await at.addReplica({ script });
  const first = channelParts(replica);
  t.after(() => first.close());
  first.worker.start();
  const asked = await ask('other', 'end', { streaming: true }, at);
  await asked.shown('one');
  const { id } = await asked.event();
  const queue = createInboundQueue(at.db);
  assert.equal(await queue.holdTurn(id, newId(), 30_000), false);
  assert.equal(await queue.holdTurn(id, replica.nodeId, 600_000), true);
  const claim = { perOrg: 16, except: [], turnsPerOrg: 64, leaseMs: 60_000, checkMs: 5_000, patience: 5 };
  const looked = () => queue.claimDue({ ...claim, nodeId: newId() });
  assert.deepEqual(await looked(), { due: [], underWay: [], looked: 0 });
  // Its runs go on where they are; what it showed is for the next one.
  await first.close();
  const next = channelParts(await at.addReplica({ script }));
  t.after(() => next.close());
  next.worker.start();
  asked.go(1);
  const grown = await asked.shown('one two');
  assert.equal(grown.isGrowing, true);
  asked.go(2);
  await asked.settled('done');
  assert.equal(slack.in(asked.thread).length, 1);
});
