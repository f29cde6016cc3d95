import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runWorld, send } from '../support/run-world.ts';

test('a message is accepted, executed and answered, and the log tells it without a gap', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const { runs } = await world.replica();
  const accepted = await runs.send(owner, send('one two three', { agentId }));
  const { run, message } = await runs.outcome(owner, accepted.runId, 60_000);
  assert.equal(run.status, 'completed', JSON.stringify(run.error));
  assert.equal(message?.content, 'one two three');
  const log = await world.log(accepted.conversationId);
  assert.deepEqual(
    log.map((event) => event.seq),
    log.map((_, index) => index + 1),
  );
  const types = log.map((event) => event.type).filter((type) => type !== 'message.delta');
  assert.deepEqual(types, [
    'message.created',
    'run.queued',
    'run.started',
    'message.created',
    'run.completed',
  ]);
  const deltas = log.flatMap((event) => (event.type === 'message.delta' ? [event.data.text] : []));
  assert.equal(deltas.join(''), 'one two three');
  assert.deepEqual(await runs.get(owner, accepted.runId), run);
});
