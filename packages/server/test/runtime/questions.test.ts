import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runWorld, send } from '../support/run-world.ts';
import { newId } from '../../src/domain/ids.ts';
import type { Script } from '../support/fake-sandbox.ts';
import { gate, untilStopped } from '../support/scripts.ts';
import { until } from '../support/until.ts';

const options = [
  { optionId: 'always', name: 'Always', kind: 'allow_always' },
  { optionId: 'once', name: 'Once', kind: 'allow_once' },
  { optionId: 'no', name: 'No', kind: 'reject_once' },
];

const asking: Script = async (turn) => {
  const answer = await turn.onQuestion(
    { kind: 'permission', requestId: newId(), toolCallId: 't1', title: 'rm -rf', options },
    () => undefined,
  );
  turn.onUpdate({ kind: 'text', text: `chosen: ${answer.kind === 'permission' && answer.optionId}` });
  return turn.signal.aborted ? { outcome: 'cancelled' } : { outcome: 'completed' };
};

test('with permissions auto the least that allows is chosen, and the log says so', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const { runs } = await world.replica({ script: asking });
  const { runId, conversationId } = await runs.send(owner, send('go', { agentId }));
  assert.equal((await runs.outcome(owner, runId, 60_000)).message?.content, 'chosen: once');
  const resolved = (await world.log(conversationId)).find((event) => event.type === 'permission.resolved');
  assert.equal(resolved?.type === 'permission.resolved' && resolved.data.by, 'policy');
});

test('with permissions ask the run waits for the caller, whose answer may come by another replica', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { owner } = world;
  const agentId = await world.addAgent({ permissions: 'ask' });
  const answered = gate();
  t.after(() => answered.open());
  const { runs, life } = await world.replica({
    // It counts the other one only once, and that one is there for as long.
    leaseMs: 600_000,
    script: async (turn, sandbox) => {
      const result = await asking(turn, sandbox);
      await answered.opened;
      return result;
    },
  });
  const other = await world.replica({ start: false });
  await other.life.beat();
  await life.beat();
  const { runId, conversationId } = await runs.send(owner, send('go', { agentId }));
  await until('it waits', async () => (await runs.get(owner, runId)).status === 'awaiting_input');
  const requested = (await world.log(conversationId)).find((event) => event.type === 'permission.requested');
  assert.ok(requested?.type === 'permission.requested');
  const { requestId } = requested.data;
  await assert.rejects(runs.respond(owner, runId, { requestId: 'none', optionId: 'once' }), {
    code: 'invalid_request',
  });
  await assert.rejects(runs.respond(owner, runId, { requestId, optionId: 'other' }), {
    code: 'invalid_request',
  });
  const seen: string[] = [];
  const stop = await other.events.follow(owner, { runId }, 0, {
    write: (events) => seen.push(...events.map(({ type }) => type)) > 0,
    drained: () => Promise.resolve(),
    end: () => undefined,
  });
  t.after(() => stop());
  assert.equal((await other.runs.respond(owner, runId, { requestId, optionId: 'no' })).status, 'running');
  answered.open();
  assert.equal((await runs.outcome(owner, runId, 60_000)).message?.content, 'chosen: no');
  await assert.rejects(runs.respond(owner, runId, { requestId, optionId: 'no' }), { code: 'conflict' });
  const types = (await world.log(conversationId)).map((event) => event.type);
  const at = types.indexOf('permission.requested');
  assert.deepEqual(types.slice(at, at + 4), [
    'permission.requested',
    'run.awaiting_input',
    'permission.resolved',
    'run.resumed',
  ]);
  await until('the end was told', async () => seen.includes('run.completed'));
  assert.deepEqual(seen, types, 'who follows the run sees its answer as it comes');
});

test('a cancel resolves a request that waits', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { owner } = world;
  const agentId = await world.addAgent({ permissions: 'ask' });
  const { runs } = await world.replica({ script: asking });
  const { runId, conversationId } = await runs.send(owner, send('go', { agentId }));
  await until('it waits', async () => (await runs.get(owner, runId)).status === 'awaiting_input');
  assert.equal((await runs.cancel(owner, runId)).status, 'cancelled');
  const resolved = (await world.log(conversationId)).find((event) => event.type === 'permission.resolved');
  assert.equal(resolved?.type === 'permission.resolved' && resolved.data.by, 'cancel');
});

test('a run ends in the log after its question, also when its harness stops before that is taken back', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { owner } = world;
  const agentId = await world.addAgent({ permissions: 'ask' });
  const slow = gate();
  t.after(() => slow.open());
  let isStopped = false;
  const stop = () => void (isStopped = true);
  const { runs } = await world.replica({
    lifeOf: (life) => ({
      ...life,
      async cancelQuestion(...which) {
        await slow.opened;
        return life.cancelQuestion(...which);
      },
    }),
    // It does not wait for its answer.
    script: (turn, sandbox) => Promise.race([asking(turn, sandbox), untilStopped(turn).finally(stop)]),
  });
  const { runId, conversationId } = await runs.send(owner, send('go', { agentId }));
  await until('it waits', async () => (await runs.get(owner, runId)).status === 'awaiting_input');
  const cancelled = runs.cancel(owner, runId);
  await until('it is to stop', () => isStopped);
  // Time enough to end.
  for (let look = 0; look < 10; look += 1)
    assert.equal((await runs.get(owner, runId)).status, 'awaiting_input');
  slow.open();
  await cancelled;
  await until('it has ended', async () => (await runs.get(owner, runId)).status === 'cancelled');
  const types = (await world.log(conversationId)).map((event) => event.type);
  assert.deepEqual(types.slice(-2), ['permission.resolved', 'run.cancelled']);
});

test('a question that comes while its turn is being stopped is not left open', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { owner } = world;
  const agentId = await world.addAgent({ permissions: 'ask' });
  const slow = gate();
  t.after(() => slow.open());
  let isAsked = false;
  let isStopped = false;
  const { runs } = await world.replica({
    lifeOf: (life) => ({
      ...life,
      async ask(...what) {
        isAsked = true;
        await slow.opened;
        return life.ask(...what);
      },
    }),
    script: async (turn, sandbox) => {
      turn.signal.addEventListener('abort', () => (isStopped = true));
      await asking(turn, sandbox);
      return untilStopped(turn);
    },
    // Its harness waits for the answer, and is to have the time.
    overrides: { stopGraceMs: 60_000 },
  });
  const { runId } = await runs.send(owner, send('go', { agentId }));
  await until('it asks', () => isAsked);
  const cancelled = runs.cancel(owner, runId);
  await until('it is to stop', () => isStopped);
  slow.open();
  await cancelled;
  await until('it has ended', async () => (await runs.get(owner, runId)).status === 'cancelled');
  assert.deepEqual(await runs.questions(owner, runId), []);
});
