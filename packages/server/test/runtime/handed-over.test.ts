import assert from 'node:assert/strict';
import { test } from 'node:test';
import { until } from '../support/until.ts';
import { echo, runWorld, send } from '../support/run-world.ts';
import type { Replica } from '../support/run-world.ts';

/** The first look of a scheduler goes before everything that comes; a run that has ended came after it. */
async function settled(world: Awaited<ReturnType<typeof runWorld>>, { runs }: Replica): Promise<void> {
  const { runId } = await runs.send(world.owner, send('before', { agentId: world.agentId }));
  await runs.outcome(world.owner, runId, 60_000);
}

/** A script that waits, for every turn, until it is let go. */
function held() {
  const gate = Promise.withResolvers<void>();
  return {
    release: () => gate.resolve(),
    script: (async (turn, sandbox) => {
      await gate.promise;
      return echo(turn, sandbox);
    }) satisfies typeof echo,
  };
}

async function commitsOf(world: Awaited<ReturnType<typeof runWorld>>, conversationId: string) {
  return world.db.sql<{ type: string; xmin: string }[]>`
    select type, xmin::text from events where conversation_id = ${conversationId} order by seq limit 3`;
}

const opening = ['message.created', 'run.queued', 'run.started'];

test('a run that nothing stands before begins with the commit that accepts it, in its first turn and in later ones', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  // While it looks by itself what there is, nothing is handed over: it may have to wait for its turn.
  const replica = await world.replica({ overrides: { pollMs: 600_000 } });
  await settled(world, replica);
  const { runs } = replica;
  const first = await runs.send(owner, send('one', { agentId }));
  assert.equal((await runs.outcome(owner, first.runId, 60_000)).message?.content, 'one');
  const { conversationId } = first;
  const second = await runs.send(owner, send('two', { agentId, conversationId }));
  assert.equal((await runs.outcome(owner, second.runId, 60_000)).message?.content, 'two');
  for (const { runId } of [first, second]) {
    const rows = await world.db.sql<{ type: string; xmin: string }[]>`
      select type, xmin::text from events where run_id = ${runId} order by seq limit 3`;
    assert.deepEqual(
      rows.map((row) => row.type),
      opening,
    );
    assert.equal(new Set(rows.map((row) => row.xmin)).size, 1);
  }
});

test('a message to a busy conversation waits for its turn and is claimed after it', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const { script, release } = held();
  const { runs } = await world.replica({ script });
  const { conversationId, runId } = await runs.send(owner, send('one', { agentId }));
  const second = await runs.send(owner, send('two', { agentId, conversationId }));
  assert.equal((await runs.get(owner, second.runId)).status, 'queued');
  release();
  await runs.outcome(owner, runId, 60_000);
  assert.equal((await runs.outcome(owner, second.runId, 60_000)).message?.content, 'two');
});

test('a process without room claims nothing along, and who waits goes before who comes', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const { script, release } = held();
  const { runs } = await world.replica({ script, overrides: { maxConcurrentRuns: 1 } });
  const sent: Awaited<ReturnType<typeof runs.send>>[] = [];
  for (const content of ['one', 'two', 'three'])
    sent.push(await runs.send(owner, send(content, { agentId })));
  const waiting = async () => {
    const statuses = [];
    for (const { runId } of sent) statuses.push((await runs.get(owner, runId)).status);
    return statuses.join(' ');
  };
  await until('one runs and the others wait', async () => (await waiting()) === 'running queued queued');
  release();
  for (const { runId } of sent) await runs.outcome(owner, runId, 60_000);
  const begun = await world.db.sql<{ run_id: string }[]>`
    select run_id from events where type = 'run.started' order by at, seq`;
  assert.deepEqual(
    begun.map((row) => row.run_id),
    sent.map(({ runId }) => runId),
  );
  const [, second] = sent;
  const commits = await commitsOf(world, second!.conversationId);
  assert.notEqual(commits[0]!.xmin, commits[2]!.xmin);
});

test('an agent that is at home on another node is left to it', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const here = await world.replica();
  const first = await here.runs.send(owner, send('one', { agentId }));
  await here.runs.outcome(owner, first.runId, 60_000);
  const there = await world.replica();
  const second = await there.runs.send(owner, send('two', { agentId }));
  assert.equal((await there.runs.outcome(owner, second.runId, 60_000)).message?.content, 'two');
  const [lane] = await world.db.sql<{ started: number }[]>`
    select count(*)::int as started from events where run_id = ${second.runId} and type = 'run.started'`;
  assert.equal(lane!.started, 1);
  const commits = await commitsOf(world, second.conversationId);
  assert.notEqual(commits[0]!.xmin, commits[2]!.xmin);
  assert.equal(there.driver.started.length, 0);
});
