import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runWorld, send, type RunWorld } from '../support/run-world.ts';
import { seeded } from '../support/scripts.ts';

/** Ends all connections of the service but the asking one, as a restart of the database does. */
async function cut(world: RunWorld): Promise<void> {
  await world.db.sql`select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()`;
}

/** A read whose connection was cut is simply asked again. */
async function again<T>(work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await work();
    } catch (error) {
      if (tries === 20) throw error;
    }
  }
}

test('connections that break in the middle of turns lose no event and write none twice', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const random = seeded(11);
  const { runs } = await world.replica({
    leaseMs: 2_000,
    async script(turn) {
      for (let i = 0; i < 60 && !turn.signal.aborted; i += 1) {
        turn.onUpdate({ kind: 'text', text: `${i} ` });
        await new Promise((resolve) => setTimeout(resolve, random() * 15));
      }
      return turn.signal.aborted ? { outcome: 'cancelled' } : { outcome: 'completed' };
    },
  });
  const sent = await Promise.all([1, 2, 3, 4].map((n) => runs.send(owner, send(`${n}`, { agentId }))));
  for (let i = 0; i < 6; i += 1) {
    await new Promise((resolve) => setTimeout(resolve, 60));
    await again(() => cut(world));
  }
  for (const { runId, conversationId } of sent) {
    const outcome = await again(() => runs.outcome(owner, runId, 60_000));
    assert.equal(outcome.run.status, 'completed', JSON.stringify(outcome.run.error));
    const log = await again(() => world.log(conversationId));
    assert.deepEqual(
      log.map((event) => event.seq),
      log.map((_, index) => index + 1),
    );
    const messageId = outcome.message!.id;
    const text = log.flatMap((e) =>
      e.type === 'message.delta' && e.data.messageId === messageId ? [e.data.text] : [],
    );
    assert.equal(text.join(''), outcome.message!.content);
    assert.equal(outcome.message!.content, Array.from({ length: 60 }, (_, i) => `${i} `).join(''));
    assert.equal(log.filter((event) => event.type === 'run.completed').length, 1);
  }
});

test('a row that the database refuses ends its own run, not the others of the same write', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  await world.db.sql`alter table events add constraint no_poison check (data::text not like '%poison%')`;
  const { runs } = await world.replica({
    overrides: { runMaxAttempts: 1 },
    async script(turn) {
      turn.onUpdate({ kind: 'text', text: turn.content === 'bad' ? 'poison' : 'fine' });
      return { outcome: 'completed' };
    },
  });
  const sent = await Promise.all(
    ['good', 'bad', 'good'].map((content) => runs.send(owner, send(content, { agentId }))),
  );
  const ended = await Promise.all(
    [sent[0]!, sent[2]!].map(({ runId }) => runs.outcome(owner, runId, 60_000)),
  );
  assert.ok(ended.every(({ run }) => run.status === 'completed'));
  const { run } = await runs.outcome(owner, sent[1]!.runId, 60_000);
  assert.equal(run.status, 'failed');
});

test('a run that the process has lost sight of is found and tried again', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const elsewhere = await world.replica({ start: false });
  const replica = await world.replica({ leaseMs: 800, overrides: { pollMs: 600_000 } });
  const { runId } = await elsewhere.runs.send(owner, send('go', { agentId }));
  // As when the answer to a claim is lost with its connection.
  const [claim] = await replica.life.claim(null, 1);
  assert.equal(claim?.runId, runId);
  const { run } = await replica.runs.outcome(owner, runId, 60_000);
  assert.deepEqual([run.status, run.attempt], ['completed', 2]);
});
