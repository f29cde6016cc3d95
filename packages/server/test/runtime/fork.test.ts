import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { ConversationEvent } from '../../src/domain/events.ts';
import { newId } from '../../src/domain/ids.ts';
import { limits } from '../../src/domain/limits.ts';
import { DomainError } from '../../src/domain/errors.ts';
import type { MessagePart } from '../../src/domain/parts.ts';
import type { HistoryTurn } from '../../src/domain/ports/harness.ts';
import { createForks, type ForksDependencies } from '../../src/services/forks.ts';
import { createAgentStore } from '../../src/store/agents.ts';
import type { Replica, RunWorld } from '../support/run-world.ts';
import { echo, runWorld, send } from '../support/run-world.ts';
import { gate } from '../support/scripts.ts';
import { until } from '../support/until.ts';

let world: RunWorld;
let replica: Replica;
/** What the harness was told of the past, by what it was asked. */
const histories = new Map<string, HistoryTurn[]>();
const doors = { early: gate(), busy: gate(), later: gate() };
before(async () => {
  world = await runWorld();
  replica = await world.replica({
    async script(turn, sandbox) {
      histories.set(turn.content, await turn.history());
      const call = { kind: 'tool', title: 'make', toolKind: 'execute', toolCallId: 'a' } as const;
      turn.onUpdate({ ...call, phase: 'started', status: 'running', input: { text: 'nul \0' } });
      turn.onUpdate({ ...call, phase: 'finished', status: 'completed', output: 'made' });
      const door = /^hold (early|busy|later)/.exec(turn.content)?.[1] as keyof typeof doors | undefined;
      if (door) await doors[door].opened;
      if (!turn.content.startsWith('break')) return echo(turn, sandbox);
      turn.onUpdate({ kind: 'text', text: 'so ' });
      turn.onUpdate({ kind: 'text', text: 'far' });
      return { outcome: 'failed', code: 'model_error', message: 'It broke.' };
    },
  });
});
after(() => world.close());

const noFiles: ForksDependencies['snapshots'] = {
  hold: async (_, look) => ({
    seen: await look(),
    files: { copyTo: async () => undefined, release: async () => undefined },
  }),
};
const forksOf = (more: Partial<ForksDependencies> = {}) =>
  createForks({ db: world.db, agents: createAgentStore(world.db), snapshots: noFiles, ...more });

/** Says these one after another in a conversation; resolves with it. */
async function converse(...contents: string[]): Promise<string> {
  const { agentId, owner } = world;
  let conversationId: string | null = null;
  for (const content of contents) {
    const sent: { runId: string; conversationId: string } = await replica.runs.send(
      owner,
      send(content, { agentId, conversationId }),
    );
    conversationId = sent.conversationId;
    await replica.runs.outcome(owner, sent.runId, 60_000);
  }
  return conversationId!;
}

async function messagesOf(conversationId: string) {
  const query = { limit: 100, cursor: null };
  return (await replica.conversations.messages(world.owner, conversationId, query)).items;
}

/** Without what a fork has of its own: what is left must be the same. */
function plain(events: ConversationEvent[]): unknown[] {
  const names = new Map<string, string>();
  return events
    .filter(({ type }) => type !== 'message.delta')
    .map(({ type, at, data }) => {
      const text = JSON.stringify({ type, at, data }, (key, value: unknown) =>
        key === 'usage' ? undefined : value,
      );
      return text.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, (id) => {
        const name = names.get(id) ?? `#${names.size}`;
        names.set(id, name);
        return name;
      });
    });
}

const idsIn = (value: unknown) =>
  new Set(JSON.stringify(value).match(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g));

async function rowsOf(): Promise<number[]> {
  const [row] = await world.db.sql<{ counts: number[] }[]>`
    select array[(select count(*) from conversations), (select count(*) from lanes), (select count(*) from runs),
      (select count(*) from messages), (select count(*) from events), (select count(*) from usage_ledger)]::int[] as counts`;
  return row!.counts;
}

const refusedAs = (code: string, text: RegExp) => (error: unknown) =>
  error instanceof DomainError && error.code === code && text.test(error.message);

test('a fork has the whole log under ids of its own, without gap, deltas or costs, and the original is as it was', async () => {
  const { owner, agentId, db } = world;
  const id = await converse('one two', 'break', 'three');
  await db.sql`update runs set input_tokens = 7, output_tokens = 5, cost_micros = 9 where conversation_id = ${id}`;
  const before = await world.log(id);
  const fork = await forksOf().fork(owner, id, {});
  assert.deepEqual([fork.agentId, fork.title, fork.source], [agentId, 'one two', 'fork']);
  assert.notEqual(fork.id, id);
  const log = await world.log(fork.id);
  assert.deepEqual(
    log.map(({ seq }) => seq),
    log.map((_, index) => index + 1),
  );
  assert.deepEqual(plain(log), plain(before));
  const shared = [...idsIn(log)].filter((one) => idsIn(before).has(one));
  const { deploymentId } = (await replica.runs.listForAgent(owner, agentId, { limit: 1, cursor: null }))
    .items[0]!;
  assert.deepEqual(shared.sort(), [agentId, deploymentId!].sort());
  // Nothing else has what the failed turn had said.
  const deltas = log.filter(({ type }) => type === 'message.delta').map(({ data }) => data);
  assert.deepEqual(
    deltas.map((data) => ('text' in data ? data.text : '')),
    ['so far'],
  );
  const ends = log.flatMap((event) => ('usage' in event.data ? [event.data.usage] : []));
  assert.equal(ends.length, 3);
  for (const usage of ends) assert.deepEqual(usage, { inputTokens: 0, outputTokens: 0, cost: '0.000000' });
  const runs = await replica.runs.listForAgent(owner, agentId, { limit: 100, cursor: null });
  const own = runs.items.filter(({ conversationId }) => conversationId === fork.id).toReversed();
  assert.deepEqual(
    own.map(({ status, usage, error }) => [status, usage.inputTokens, usage.costMicros, error?.code]),
    [
      ['completed', 0, 0n, undefined],
      ['failed', 0, 0n, 'model_error'],
      ['completed', 0, 0n, undefined],
    ],
  );
  const said = (messages: Awaited<ReturnType<typeof messagesOf>>) =>
    messages.map(({ role, content, createdAt }) => [role, content, createdAt]);
  assert.deepEqual(said(await messagesOf(fork.id)), said(await messagesOf(id)));
  assert.deepEqual(await world.log(id), before);
  const [ledger] = await db.sql`select count(*)::int as count from usage_ledger
    where run_id in (select id from runs where conversation_id = ${fork.id})`;
  assert.deepEqual(ledger, { count: 0 });
});

test('the harness of a fork is told the same past as that of the original, and both go on apart', async () => {
  const { owner, agentId } = world;
  const id = await converse('red', 'break it', 'green');
  const fork = await forksOf().fork(owner, id, {});
  for (const [conversationId, content] of [
    [id, 'the original goes on'],
    [fork.id, 'the fork goes on'],
  ] as const) {
    const { runId } = await replica.runs.send(owner, send(content, { agentId, conversationId }));
    const { run } = await replica.runs.outcome(owner, runId, 60_000);
    assert.equal(run.status, 'completed');
  }
  const told = histories.get('the fork goes on')!;
  assert.deepEqual(told, histories.get('the original goes on'));
  assert.deepEqual(
    told.map(({ role, content }) => [role, content]),
    [
      ['user', 'red'],
      ['assistant', 'red'],
      ['user', 'break it'],
      ['assistant', 'so far'],
      ['user', 'green'],
      ['assistant', 'green'],
    ],
  );
  const log = await world.log(fork.id);
  assert.deepEqual(
    log.map(({ seq }) => seq),
    log.map((_, index) => index + 1),
  );
  assert.ok(!JSON.stringify(log).includes('the original goes on'));
});

test('a fork at a message ends with its turn, whoever wrote it, also when the next was sent before that had ended', async () => {
  const { owner, agentId } = world;
  const first = await replica.runs.send(owner, send('hold early', { agentId }));
  const { conversationId } = first;
  const second = await replica.runs.send(owner, send('came early', { agentId, conversationId }));
  doors.early.open();
  await replica.runs.outcome(owner, second.runId, 60_000);
  const messages = (await messagesOf(conversationId)).toReversed();
  const of = (runId: string) => messages.filter((message) => message.runId === runId).map(({ id }) => id);
  assert.equal(of(first.runId).length, 2);
  for (const messageId of of(first.runId)) {
    const fork = await forksOf().fork(owner, conversationId, { messageId, title: 'Another way' });
    assert.equal(fork.title, 'Another way');
    assert.deepEqual(
      (await messagesOf(fork.id)).map(({ content }) => content),
      ['hold early', 'hold early'],
    );
    const log = await world.log(fork.id);
    assert.deepEqual(
      log.map(({ seq, type }) => [seq, type]),
      [
        [1, 'message.created'],
        [2, 'run.queued'],
        [3, 'run.started'],
        [4, 'tool.started'],
        [5, 'tool.finished'],
        [6, 'message.created'],
        [7, 'run.completed'],
      ],
    );
  }
  const whole = await forksOf().fork(owner, conversationId, { messageId: of(second.runId)[0]! });
  assert.equal((await messagesOf(whole.id)).length, 4);
});

test('a conversation that is not at rest is busy, and a message must be one of its own', async () => {
  const { owner, agentId } = world;
  const sent = await replica.runs.send(owner, send('hold busy', { agentId }));
  // It writes nothing more until it is let go.
  await until('it is held', async () =>
    (await world.log(sent.conversationId)).some(({ type }) => type === 'tool.finished'),
  );
  const id = await converse('mine');
  const elsewhere = (await messagesOf(await converse('theirs')))[0]!.id;
  const counts = await rowsOf();
  await assert.rejects(
    forksOf().fork(owner, sent.conversationId, {}),
    refusedAs('conversation_busy', /ended/),
  );
  for (const messageId of [elsewhere, newId(), 'x'])
    await assert.rejects(
      forksOf().fork(owner, id, { messageId }),
      refusedAs('invalid_request', /^messageId: /),
    );
  const toAgentId = await world.addAgent();
  await assert.rejects(
    forksOf().fork(owner, id, { messageId: elsewhere, toAgentId }),
    refusedAs('invalid_request', /^messageId: /),
  );
  assert.deepEqual(await rowsOf(), counts);
  doors.busy.open();
  await replica.runs.outcome(owner, sent.runId, 60_000);
  assert.ok(await forksOf().fork(owner, sent.conversationId, {}));
});

test('an earlier turn can be forked while a later one goes on, by the same agent alone', async () => {
  const { owner, agentId } = world;
  const id = await converse('one', 'two');
  const [, , , first] = await messagesOf(id);
  const sent = await replica.runs.send(owner, send('hold later', { agentId, conversationId: id }));
  await until('it is held', async () =>
    (await world.log(id)).some(({ type, runId }) => type === 'tool.finished' && runId === sent.runId),
  );
  const queued = await replica.runs.send(owner, send('three', { agentId, conversationId: id }));
  const fork = await forksOf().fork(owner, id, { messageId: first!.id });
  assert.deepEqual(
    (await messagesOf(fork.id)).map(({ content }) => content),
    ['one', 'one'],
  );
  const of = async (runId: string) =>
    (await messagesOf(id)).find((message) => message.runId === runId && message.role === 'user')!.id;
  for (const runId of [sent.runId, queued.runId])
    await assert.rejects(
      forksOf().fork(owner, id, { messageId: await of(runId) }),
      refusedAs('conversation_busy', /ended/),
    );
  const toAgentId = await world.addAgent();
  await assert.rejects(
    forksOf().fork(owner, id, { messageId: first!.id, toAgentId }),
    refusedAs('conversation_busy', /ended/),
  );
  const { runId } = await replica.runs.send(owner, send('four', { agentId, conversationId: fork.id }));
  await replica.runs.outcome(owner, runId, 60_000);
  doors.later.open();
  await replica.runs.outcome(owner, queued.runId, 60_000);
});

test('a fork of more events or bytes than it may have is refused and leaves nothing, and an earlier message helps', async () => {
  const { owner } = world;
  assert.deepEqual([limits.forkEvents, limits.forkBytes], [20_000, 32 * 1024 * 1024]);
  const id = await converse('short', 'x'.repeat(5_000));
  const first = (await messagesOf(id)).at(-1)!.id;
  const most = { events: 14, bytes: 1_000_000 };
  for (const less of [
    { ...most, events: 13 },
    { ...most, bytes: 9_000 },
  ]) {
    const forks = forksOf({ most: less });
    const counts = await rowsOf();
    await assert.rejects(forks.fork(owner, id, {}), refusedAs('conflict', /events.*messageId/));
    assert.deepEqual(await rowsOf(), counts);
    await forks.fork(owner, id, { messageId: first });
  }
  assert.ok(await forksOf({ most }).fork(owner, id, {}));
});

test('a fork whose files could not be copied leaves nothing of itself', async () => {
  const { owner } = world;
  const id = await converse('with files');
  const toAgentId = await world.addAgent();
  let released = 0;
  const hold: ForksDependencies['snapshots']['hold'] = async (_, look) => ({
    seen: await look(),
    files: {
      copyTo: () => Promise.reject(new DomainError('conflict', 'A turn is under way.')),
      release: async () => void (released += 1),
    },
  });
  const counts = await rowsOf();
  await assert.rejects(
    forksOf({ snapshots: { hold } }).fork(owner, id, { toAgentId }),
    refusedAs('conflict', /turn/),
  );
  assert.deepEqual([await rowsOf(), released], [counts, 1]);
});

test('a copied row is the whole row but for ids, with all that a message carries beside its text', async () => {
  const { owner, agentId, db } = world;
  const extras = {
    parts: [{ kind: 'file', name: 'a.txt', mediaType: 'text/plain', bytes: 'aGk=' }] as MessagePart[],
    clientMessageId: 'mine',
    metadata: { k: [1, '√'] },
  };
  const sent = await replica.runs.send(owner, send('with a file', { agentId, ...extras }));
  await replica.runs.outcome(owner, sent.runId, 60_000);
  const fork = await forksOf().fork(owner, sent.conversationId, {});
  const [message] = (await messagesOf(fork.id)).toReversed();
  assert.deepEqual(message!.extras, extras);
  const plainRows = async (id: string) => {
    const own = ['id', 'run_id', 'conversation_id', 'user_message_id', 'message_id', 'key_id'];
    return db.sql`
      select to_jsonb(m) - ${own}::text[] as row from messages m where conversation_id = ${id} union all
      select to_jsonb(r) - ${own}::text[] from runs r where conversation_id = ${id}`;
  };
  assert.deepEqual(await plainRows(fork.id), await plainRows(sent.conversationId));
});

test('a fork to another agent is that agent’s alone, and appears when its files are there', async () => {
  const { owner } = world;
  const id = await converse('move');
  const toAgentId = await world.addAgent();
  const list = () => replica.conversations.listForAgent(owner, toAgentId, { limit: 10, cursor: null });
  const runsOf = () => replica.runs.listForAgent(owner, toAgentId, { limit: 10, cursor: null });
  let seen: number[] = [];
  const hold: ForksDependencies['snapshots']['hold'] = async (_, look) => ({
    seen: await look(),
    files: {
      async copyTo() {
        seen = [(await list()).items.length, (await runsOf()).items.length];
      },
      release: async () => undefined,
    },
  });
  const fork = await forksOf({ snapshots: { hold } }).fork(owner, id, { toAgentId });
  assert.deepEqual(seen, [0, 0]);
  assert.deepEqual((await list()).items, [fork]);
  const { items } = await runsOf();
  assert.deepEqual(
    items.map(({ agentId, deploymentId }) => [agentId, deploymentId]),
    [[toAgentId, null]],
  );
  const log = await world.log(fork.id);
  assert.ok(log.every(({ data }) => !JSON.stringify(data).includes(world.agentId)));
  const { runId } = await replica.runs.send(
    owner,
    send('go on', { agentId: toAgentId, conversationId: fork.id }),
  );
  assert.equal((await replica.runs.outcome(owner, runId, 60_000)).run.status, 'completed');
  assert.deepEqual(
    histories.get('go on')!.map(({ content }) => content),
    ['move', 'move'],
  );
});
