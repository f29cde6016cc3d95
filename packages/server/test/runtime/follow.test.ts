import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ConversationEvent } from '../../src/domain/events.ts';
import type { EventScope } from '../../src/services/api.ts';
import { runWorld, send, type Replica } from '../support/run-world.ts';
import { gate, seeded, untilStopped } from '../support/scripts.ts';
import { inTime, until } from '../support/until.ts';

interface Reader {
  events: ConversationEvent[];
  ended: boolean;
  stop(): void;
}

async function read(
  replica: Replica,
  owner: Parameters<Replica['events']['follow']>[0],
  scope: EventScope,
  after = 0,
  room = Infinity,
  isPatient = false,
): Promise<Reader> {
  const reader: Reader = { events: [], ended: false, stop: () => {} };
  const sink = {
    write(events: ConversationEvent[]) {
      reader.events.push(...events);
      return reader.events.length < room;
    },
    drained: () => Promise.resolve(),
    end: () => void (reader.ended = true),
  };
  reader.stop = await replica.events.follow(owner, scope, after, sink, isPatient);
  return reader;
}

const seqs = (events: ConversationEvent[]) => events.map((event) => event.seq);
const text = (events: ConversationEvent[]) =>
  events.flatMap((event) => (event.type === 'message.delta' ? [event.data.text] : [])).join('');

test('a stream that is cut 100 times at random and resumed misses nothing and repeats nothing', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const random = seeded(7);
  const replica = await world.replica({
    async script(turn) {
      for (let i = 0; i < 150; i += 1) {
        turn.onUpdate({ kind: 'text', text: `${i} ` });
        if (i % 3 === 0) await new Promise((resolve) => setTimeout(resolve, random() * 12));
      }
      return { outcome: 'completed' };
    },
  });
  const other = await world.replica({ start: false });
  await other.life.beat();
  const { runId } = await replica.runs.send(owner, send('go', { agentId }));
  const got: ConversationEvent[] = [];
  let ended = false;
  for (let cut = 0; cut < 100 && !ended; cut += 1) {
    const from = random() < 0.5 ? replica : other;
    const reader = await read(from, owner, { runId }, got.at(-1)?.seq ?? 0, 1 + Math.floor(random() * 8));
    await new Promise((resolve) => setTimeout(resolve, random() * 10));
    reader.stop();
    got.push(...reader.events);
    ended = reader.ended;
  }
  const rest = await read(replica, owner, { runId }, got.at(-1)?.seq ?? 0);
  await until('the rest has come', () => rest.ended);
  got.push(...rest.events);
  assert.deepEqual(seqs(got), seqs(await world.log(got[0]!.conversationId)));
  const { message } = await replica.runs.outcome(owner, runId, 0);
  assert.equal(text(got), message?.content);
});

test('followers on another replica get everything as it happens, also after a lost connection', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const door = gate();
  const replica = await world.replica({
    // It does not look again who is there: it is told.
    leaseMs: 600_000,
    async script(turn) {
      turn.onUpdate({ kind: 'text', text: 'one ' });
      await door.opened;
      turn.onUpdate({ kind: 'text', text: 'two' });
      return { outcome: 'completed' };
    },
  });
  const other = await world.replica({ start: false });
  let isTold = false;
  replica.doorbell.on('nodes', () => (isTold = true));
  await other.life.beat();
  await until('it knows of the other one', () => isTold);
  const { runId, conversationId } = await replica.runs.send(owner, send('go', { agentId }));
  const waiting = other.runs.outcome(owner, runId, 60_000);
  const ofRun = await read(other, owner, { runId });
  const ofConversation = await read(other, owner, { conversationId });
  await until('the first delta is there', () => text(ofRun.events) === 'one ');
  await world.db.sql`
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and query ilike 'listen %'`;
  door.open();
  await until('the run has ended there', () => ofRun.ended);
  await until('so for the conversation', () => ofConversation.events.length === ofRun.events.length);
  assert.equal(text(ofRun.events), 'one two');
  assert.equal((await waiting).message?.content, 'one two');
  assert.equal(ofConversation.ended, false);
  const next = await replica.runs.send(owner, send('again', { agentId, conversationId }));
  await replica.runs.outcome(owner, next.runId, 60_000);
  await until(
    'the next run is there too',
    () =>
      ofConversation.events.at(-1)?.type === 'run.completed' &&
      ofConversation.events.at(-1)?.runId === next.runId,
  );
  assert.deepEqual(seqs(ofConversation.events), seqs(await world.log(conversationId)));
});

test('a stream of a run has only its events, and one of a run that is over ends at once', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const replica = await world.replica();
  const first = await replica.runs.send(owner, send('1', { agentId }));
  const { conversationId } = first;
  const second = await replica.runs.send(owner, send('2', { agentId, conversationId }));
  const live = await read(replica, owner, { runId: second.runId });
  await until('it has ended', () => live.ended);
  assert.ok(live.events.every((event) => event.runId === second.runId));
  const past = await read(replica, owner, { runId: second.runId });
  await until('it has ended again', () => past.ended);
  assert.deepEqual(past.events, live.events);
  const behind = await read(replica, owner, { runId: second.runId }, live.events.at(-1)!.seq);
  assert.ok(behind.ended);
  assert.deepEqual(behind.events, []);
});

test('who waits for the end alone is told everything, and no text is written sooner for it', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  let door = gate();
  const replica = await world.replica({
    async script(turn) {
      await door.opened;
      turn.onUpdate({ kind: 'text', text: 'one ' });
      turn.onUpdate({ kind: 'text', text: 'two' });
      return { outcome: 'completed' };
    },
  });
  for (const [isPatient, pieces] of [
    [true, ['one two']],
    [false, ['one ', 'two']],
  ] as const) {
    door = gate();
    const { conversationId, runId } = await replica.runs.send(owner, send('go', { agentId }));
    const reader = await read(replica, owner, { runId }, 0, Infinity, isPatient);
    const passing = await read(replica, owner, { runId });
    passing.stop();
    passing.stop();
    assert.equal(replica.life.isWatched(conversationId), !isPatient);
    door.open();
    await until('the run has ended', () => reader.ended);
    assert.deepEqual(
      reader.events.flatMap((event) => (event.type === 'message.delta' ? [event.data.text] : [])),
      pieces,
    );
    assert.deepEqual(seqs(reader.events), seqs(await world.log(conversationId)));
    assert.equal(replica.life.isWatched(conversationId), false);
  }
});

test('a drain ends all streams, and a full sink is let go', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const replica = await world.replica({
    script: (turn) => {
      turn.onUpdate({ kind: 'text', text: 'x' });
      return untilStopped(turn);
    },
  });
  const { conversationId, runId } = await replica.runs.send(owner, send('1', { agentId }));
  const open = await read(replica, owner, { conversationId });
  const full = await read(replica, owner, { conversationId }, 0, 1);
  await until('it runs', () => open.events.some((event) => event.type === 'message.delta'));
  // What it reads first may come later than what the other one hears.
  await until('the full one has had its only write', () => full.events.length > 0);
  const count = full.events.length;
  await replica.runs.cancel(owner, runId);
  await until('the end is there', () => open.events.at(-1)?.type === 'run.cancelled');
  assert.equal(full.events.length, count);
  replica.hub.drain();
  assert.ok(open.ended);
});

test('whoever comes while the service drains is told what there is, and waits for nothing', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const replica = await world.replica({ script: untilStopped });
  const { conversationId, runId } = await replica.runs.send(owner, send('1', { agentId }));
  replica.hub.drain();
  replica.outcomes.drain();
  const fresh = await replica.runs.send(owner, send('2', { agentId }));
  for (const scope of [{ conversationId }, { runId }, { runId: fresh.runId }]) {
    const late = await read(replica, owner, scope);
    await until('it has ended', () => late.ended);
    assert.deepEqual(
      late.events.slice(0, 2).map(({ type }) => type),
      ['message.created', 'run.queued'],
    );
  }
  for (const id of [runId, fresh.runId]) {
    const { run } = await inTime('nobody waits', replica.runs.outcome(owner, id, 600_000));
    assert.notEqual(run.status, 'cancelled');
    assert.equal(run.endedAt, null);
  }
});

test('pages of events come newest first or after a cursor, and old deltas go when their message stays', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const { runs, events, life, conversations } = await world.replica();
  const { runId, conversationId } = await runs.send(owner, send('a b c', { agentId }));
  await runs.outcome(owner, runId, 60_000);
  const all = await world.log(conversationId);
  const page = await events.list(owner, { conversationId }, { limit: 2, cursor: null });
  assert.deepEqual(seqs(page.items), seqs(all).slice(-2).reverse());
  const next = await events.list(owner, { conversationId }, { limit: 100, cursor: page.nextCursor });
  assert.deepEqual(seqs(next.items), seqs(all).slice(0, -2).reverse());
  assert.deepEqual(seqs((await events.after(owner, { runId }, 2, 2)).events), [3, 4]);

  assert.equal(await life.compact(), 0);
  await world.db.sql`update runs set ended_at = now() - interval '25 hours'`;
  assert.ok((await life.compact()) > 0);
  const left = await world.log(conversationId);
  assert.deepEqual(seqs(left), seqs(all.filter((event) => event.type !== 'message.delta')));
  const messages = await conversations.messages(owner, conversationId, { limit: 10, cursor: null });
  assert.deepEqual(
    messages.items.map((message) => message.content),
    ['a b c', 'a b c'],
  );
  const replica = await world.replica();
  const past = await read(replica, owner, { conversationId });
  await until('what is left has come', () => past.events.length === left.length);
});
