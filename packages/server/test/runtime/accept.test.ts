import assert from 'node:assert/strict';
import { test } from 'node:test';
import { limits } from '../../src/domain/limits.ts';
import { newId } from '../../src/domain/ids.ts';
import { runWorld, send } from '../support/run-world.ts';
import { gate, untilStopped } from '../support/scripts.ts';
import { until } from '../support/until.ts';

const code = (expected: string) => (error: unknown) => {
  assert.equal((error as { code?: string }).code, expected);
  return true;
};

test('the same send twice with one Idempotency-Key, at once and later, is one run with one answer', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  let turns = 0;
  const { runs } = await world.replica({
    async script(turn) {
      turns += 1;
      turn.onUpdate({ kind: 'text', text: 'once' });
      return { outcome: 'completed' };
    },
  });
  const other = await world.replica({ start: false });
  const idempotency = { key: 'k', requestHash: 'h' };
  const input = send('hello', { agentId, idempotency });
  const answers = await Promise.all([
    runs.send(owner, input),
    runs.send(owner, input),
    other.runs.send(owner, input),
    runs.send(owner, input),
  ]);
  assert.equal(new Set(answers.map((answer) => answer.runId)).size, 1);
  assert.equal(new Set(answers.map((answer) => answer.conversationId)).size, 1);
  assert.equal(answers.filter((answer) => !answer.replayed).length, 1);
  const outcomes = await Promise.all(answers.map(({ runId }) => runs.outcome(owner, runId, 60_000)));
  const later = await runs.send(owner, input);
  assert.equal(later.replayed, true);
  outcomes.push(await runs.outcome(owner, later.runId, 0));
  assert.ok(outcomes.every((outcome) => outcome.message?.content === 'once'));
  assert.equal(new Set(outcomes.map((outcome) => outcome.message?.id)).size, 1);
  assert.equal(turns, 1);

  const changed = send('hello', { agentId, idempotency: { key: 'k', requestHash: 'other' } });
  await assert.rejects(runs.send(owner, changed), code('idempotency_key_reused'));
  const elsewhere = { ...owner, keyId: newId() };
  assert.equal((await runs.send(elsewhere, input)).replayed, false);
});

test('an Idempotency-Key that another POST has used is refused, and one of a refused send is free again', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const { runs } = await world.replica();
  await world.db.sql`
    insert into idempotency (key_id, idempotency_key, request_hash, status) values (${owner.keyId}, 'used', 'h', 201)`;
  const used = send('hello', { agentId, idempotency: { key: 'used', requestHash: 'h' } });
  await assert.rejects(runs.send(owner, used), code('idempotency_key_reused'));

  const idempotency = { key: 'again', requestHash: 'h' };
  const lost = send('hello', { agentId, conversationId: newId(), idempotency });
  await assert.rejects(runs.send(owner, lost), code('not_found'));
  assert.equal((await runs.send(owner, send('hello', { agentId, idempotency }))).replayed, false);

  await world.db
    .sql`update idempotency set created_at = now() - interval '25 hours' where idempotency_key = 'again'`;
  assert.equal((await runs.send(owner, send('hello', { agentId, idempotency }))).replayed, false);
});

test('a run that has ended elsewhere is told with its answer, also before this process has heard of its end', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  // The two do not ring each other.
  const accepts = await world.replica({ start: false });
  const { runId } = await accepts.runs.send(owner, send('hello', { agentId }));
  await world.replica();
  await until('it has ended', async () => (await accepts.runs.get(owner, runId)).status === 'completed');
  const { run, message } = await accepts.runs.outcome(owner, runId, 0);
  assert.deepEqual([run.status, message?.content], ['completed', 'hello']);
});

test('a busy conversation refuses with onBusy reject, and with interrupt cancels all that is unfinished and runs this one', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const { runs } = await world.replica({
    script: (turn) =>
      turn.content === 'slow' ? untilStopped(turn) : Promise.resolve({ outcome: 'completed' }),
  });
  const slow = await runs.send(owner, send('slow', { agentId }));
  const { conversationId } = slow;
  await until('the first runs', async () => (await runs.get(owner, slow.runId)).status === 'running');
  const queued = await runs.send(owner, send('queued', { agentId, conversationId }));
  const rejected = send('no', { agentId, conversationId, onBusy: 'reject' });
  await assert.rejects(runs.send(owner, rejected), code('conversation_busy'));
  const now = await runs.send(owner, send('now', { agentId, conversationId, onBusy: 'interrupt' }));
  assert.equal((await runs.outcome(owner, now.runId, 60_000)).run.status, 'completed');
  assert.equal((await runs.outcome(owner, slow.runId, 60_000)).run.status, 'cancelled');
  assert.equal((await runs.outcome(owner, queued.runId, 60_000)).run.status, 'cancelled');
  const free = await runs.send(owner, { ...rejected, content: 'yes' });
  assert.equal((await runs.outcome(owner, free.runId, 60_000)).run.status, 'completed');
});

test('too many waiting messages of a conversation and too many active agents are refused, and fit again later', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const door = gate();
  const { runs } = await world.replica({
    maxActiveAgents: 2,
    async script() {
      await door.opened;
      return { outcome: 'completed' };
    },
  });
  const first = await runs.send(owner, send('1', { agentId }));
  await until('it runs', async () => (await runs.get(owner, first.runId)).status === 'running');
  const { conversationId } = first;
  for (let i = 0; i < limits.queuedRunsPerConversation; i += 1) {
    await runs.send(owner, send('x', { agentId, conversationId }));
  }
  await assert.rejects(runs.send(owner, send('x', { agentId, conversationId })), code('queue_full'));

  const agents = await Promise.all([world.addAgent(), world.addAgent(), world.addAgent()]);
  const sends = await Promise.allSettled(agents.map((id) => runs.send(owner, send('x', { agentId: id }))));
  assert.equal(sends.filter((result) => result.status === 'fulfilled').length, 1);
  for (const result of sends) if (result.status === 'rejected') code('too_many_sandboxes')(result.reason);
  await runs.send(owner, send('an active agent is welcome', { agentId }));
  door.open();
  await until('everything has ended', async () => {
    const [row] = await world.db
      .sql`select count(*)::int as n from runs where status in ('queued', 'running')`;
    return row!['n'] === 0;
  });
  for (const id of agents)
    await runs.send(owner, send('x', { agentId: id })).catch(code('too_many_sandboxes'));
});

test("what is not the caller's, or is gone, is not found", async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const { runs, conversations, events } = await world.replica();
  const { runId, conversationId } = await runs.send(owner, send('hello', { agentId }));
  await runs.outcome(owner, runId, 60_000);
  const otherAgent = await world.addAgent();
  const foreign = { ...owner, orgId: newId(), keyId: newId() };
  const bound = { ...owner, binding: 'agent-bound' as const, agentId: otherAgent };
  for (const caller of [foreign, bound]) {
    await assert.rejects(runs.get(caller, runId), code('not_found'));
    await assert.rejects(runs.outcome(caller, runId, 0), code('not_found'));
    await assert.rejects(runs.cancel(caller, runId), code('not_found'));
    await assert.rejects(conversations.get(caller, conversationId), code('not_found'));
    await assert.rejects(runs.send(caller, send('x', { agentId, conversationId })), code('not_found'));
    const sink = { write: () => assert.fail('nothing may be written'), drained: async () => {}, end() {} };
    await assert.rejects(events.follow(caller, { runId }, 0, sink), code('not_found'));
  }
  await assert.rejects(
    runs.send(owner, send('x', { agentId: otherAgent, conversationId })),
    code('not_found'),
  );
  await conversations.remove(owner, conversationId);
  await assert.rejects(runs.get(owner, runId), code('not_found'));
  await assert.rejects(conversations.get(owner, conversationId), code('not_found'));
  await assert.rejects(runs.send(owner, send('x', { agentId, conversationId })), code('not_found'));
});
