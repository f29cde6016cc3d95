import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runWorld, send } from '../support/run-world.ts';
import { newId } from '../../src/domain/ids.ts';
import type { Script } from '../support/fake-sandbox.ts';
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
  const { runs } = await world.replica({ script: asking });
  const other = await world.replica({ start: false });
  await other.life.beat();
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
