import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Replica } from '../support/run-world.ts';
import { runWorld, send } from '../support/run-world.ts';
import { never, untilStopped } from '../support/scripts.ts';
import { until } from '../support/until.ts';

async function running(replica: Replica, world: Awaited<ReturnType<typeof runWorld>>, runId: string) {
  await until('the run runs', async () => (await replica.runs.get(world.owner, runId)).status === 'running');
}

test('a queued run is cancelled at once, and a cancelled one answers a second cancel with itself', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const replica = await world.replica({ script: untilStopped });
  const { runs } = replica;
  const first = await runs.send(owner, send('first', { agentId }));
  await running(replica, world, first.runId);
  const { conversationId } = first;
  const second = await runs.send(owner, send('second', { agentId, conversationId }));
  assert.equal((await runs.cancel(owner, second.runId)).status, 'cancelled');
  assert.equal((await runs.cancel(owner, second.runId)).status, 'cancelled');
  assert.equal((await runs.get(owner, first.runId)).status, 'running');
  const [lane] = await world.db.sql`select pending from lanes where conversation_id = ${conversationId}`;
  assert.equal(lane!['pending'], 0);
});

test('cancelling a running run reaches the harness, keeps what it said in the log, and ends open tool calls', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const replica = await world.replica({
    script(turn) {
      turn.onUpdate({ kind: 'text', text: 'half' });
      const call = { kind: 'tool', toolCallId: 't1', title: 'sleep', toolKind: 'execute' } as const;
      turn.onUpdate({ ...call, phase: 'started', status: 'running' });
      return untilStopped(turn);
    },
  });
  const { runs } = replica;
  const { runId, conversationId } = await runs.send(owner, send('go', { agentId }));
  await until('it has begun to speak', async () =>
    (await world.log(conversationId)).some((e) => e.type === 'tool.started'),
  );
  const run = await runs.cancel(owner, runId);
  assert.equal(run.status, 'cancelled');
  const types = (await world.log(conversationId)).map((event) => event.type);
  assert.deepEqual(types.slice(-4), ['message.delta', 'tool.started', 'tool.finished', 'run.cancelled']);
  await assert.rejects(
    async () => {
      const other = await runs.send(owner, send('x', { agentId: await world.addAgent() }));
      const done = other.runId;
      // A claim that came after the update would set the run going again.
      await until('it has begun', async () =>
        (await world.log(other.conversationId)).some((e) => e.type === 'tool.started'),
      );
      await world.db.sql`update runs set status = 'completed' where id = ${done}`;
      await runs.cancel(owner, done);
    },
    { code: 'conflict' },
  );
});

test('a run that is cancelled before its process knows that it has claimed it is cancelled', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const { promise: told, resolve: tell } = Promise.withResolvers<void>();
  let claimed = 0;
  const replica = await world.replica({
    script: untilStopped,
    // Else the upkeep finds it before long.
    leaseMs: 600_000,
    lifeOf: (life) => ({
      ...life,
      async claim(...which) {
        const claims = await life.claim(...which);
        claimed += claims.length;
        if (claims.length > 0) await told;
        return claims;
      },
    }),
  });
  t.after(() => tell());
  const edge = await world.replica({ start: false, leaseMs: 600_000 });
  // It knows of the other one now, and rings it.
  await edge.life.beat();
  const { runId } = await edge.runs.send(owner, send('go', { agentId }));
  await until('it is claimed', () => claimed === 1);
  let isTold = false;
  replica.doorbell.on('cancel', () => (isTold = true));
  const cancelled = edge.runs.cancel(owner, runId);
  await until('the owner was told', () => isTold);
  tell();
  await cancelled;
  await until('it is cancelled', async () => (await edge.runs.get(owner, runId)).status === 'cancelled');
});

test('a harness that ignores the cancel loses its sandbox, and the other turns in it are tried again', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  let starts = 0;
  const replica = await world.replica({
    async script(turn) {
      if (turn.content === 'stubborn') return never;
      starts += 1;
      if (starts === 1) return untilStopped(turn);
      turn.onUpdate({ kind: 'text', text: 'second try' });
      return { outcome: 'completed' };
    },
  });
  const { runs, driver } = replica;
  const stubborn = await runs.send(owner, send('stubborn', { agentId }));
  const other = await runs.send(owner, send('other', { agentId }));
  await running(replica, world, stubborn.runId);
  await running(replica, world, other.runId);
  await until('both are in the sandbox', () => starts === 1 && driver.started.length === 1);
  assert.equal((await runs.cancel(owner, stubborn.runId)).status, 'cancelled');
  const { run, message } = await runs.outcome(owner, other.runId, 60_000);
  assert.deepEqual([run.status, run.attempt, message?.content], ['completed', 2, 'second try']);
  assert.equal(driver.started.length, 2);
  const retrying = (await world.log(other.conversationId)).find((event) => event.type === 'run.retrying');
  assert.ok(retrying);
});

test('a run that takes too long fails with timeout', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const replica = await world.replica({ script: untilStopped, runTimeoutMs: 150 });
  const { runId } = await replica.runs.send(owner, send('go', { agentId }));
  const { run } = await replica.runs.outcome(owner, runId, 60_000);
  assert.deepEqual([run.status, run.error?.code], ['failed', 'timeout']);
});

test('a cancel on another replica reaches the run, by the doorbell and without it', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const replica = await world.replica({ script: untilStopped, leaseMs: 800 });
  const other = await world.replica({ start: false });
  await other.life.beat();
  const first = await replica.runs.send(owner, send('go', { agentId }));
  await running(replica, world, first.runId);
  assert.equal((await other.runs.cancel(owner, first.runId)).status, 'cancelled');
  const second = await replica.runs.send(owner, send('go', { agentId }));
  await running(replica, world, second.runId);
  await world.db.sql`update runs set cancel_requested_at = now() where id = ${second.runId}`;
  const { run } = await replica.runs.outcome(owner, second.runId, 60_000);
  assert.equal(run.status, 'cancelled');
});

test('deleting a conversation ends what runs and waits in it', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const replica = await world.replica({ script: untilStopped });
  const { runs, conversations } = replica;
  const first = await runs.send(owner, send('1', { agentId }));
  const { conversationId } = first;
  await running(replica, world, first.runId);
  await runs.send(owner, send('2', { agentId, conversationId }));
  await conversations.remove(owner, conversationId);
  await until('all have ended', async () => {
    const rows = await world.db.sql`select status from runs where conversation_id = ${conversationId}`;
    return rows.every((row) => row['status'] === 'cancelled');
  });
});

test('removing an agent ends its runs, its sandbox and its volume', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const { runs, runtime, driver } = await world.replica({ script: untilStopped });
  const { runId } = await runs.send(owner, send('1', { agentId }));
  await until('its sandbox lives', () => driver.live.size === 1);
  await world.db.sql`update agents set deleted_at = now() where id = ${agentId}`;
  await runtime.removeAgent(agentId);
  await runtime.removeAgent(agentId);
  assert.equal(driver.live.size, 0);
  assert.ok(driver.removedVolumes[0]?.endsWith(agentId));
  const [row] = await world.db.sql`select status from runs where id = ${runId}`;
  assert.equal(row!['status'], 'cancelled');
});
