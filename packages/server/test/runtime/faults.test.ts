import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { runWorld, send, type RunWorld } from '../support/run-world.ts';
import { createCursors } from '../../src/domain/paging.ts';
import { createOutcomes } from '../../src/services/outcomes.ts';
import { createRunWriters } from '../../src/services/run-writer.ts';
import { createRuns } from '../../src/services/runs.ts';
import { createAgentStore } from '../../src/store/agents.ts';
import type { Database } from '../../src/store/database.ts';
import { silentLog } from '../support/log.ts';
import { gate, seeded, untilStopped } from '../support/scripts.ts';
import { inTime, until } from '../support/until.ts';

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
  // Nobody is told of what it accepts.
  await elsewhere.doorbell.close();
  let looks = 0;
  const replica = await world.replica({
    leaseMs: 800,
    overrides: { pollMs: 600_000 },
    lifeOf: (life) => ({
      ...life,
      claim: (...which) => life.claim(...which).finally(() => (looks += 1)),
    }),
  });
  // Else it could find the run by itself.
  await until('its only look is over', () => looks === 1);
  const { runId } = await elsewhere.runs.send(owner, send('go', { agentId }));
  // As when the answer to a claim is lost with its connection.
  const [claim] = await replica.life.claim(null, 1);
  assert.equal(claim?.runId, runId);
  const { run } = await replica.runs.outcome(owner, runId, 60_000);
  assert.deepEqual([run.status, run.attempt], ['completed', 2]);
});

interface Lost {
  /** Of the statement. */
  text: string;
  /** So many of them are answered before. */
  after?: number;
  /** What is done before its answer is lost; `run` executes it. */
  before(run: () => Promise<unknown>): Promise<unknown>;
}

/** Loses the answer to each of these statements once. */
function losing(db: Database, statements: Lost[]): Database {
  const left = statements.map((lost) => ({ after: 0, ...lost }));
  const sql = (strings: TemplateStringsArray, ...values: never[]) => {
    const run = () => db.sql(strings, ...values);
    const lost = left.find(({ text }) => strings.join('').includes(text));
    if (!lost || lost.after-- > 0) return run();
    left.splice(left.indexOf(lost), 1);
    return lost.before(run).then(() => {
      throw Object.assign(new Error('The connection was lost.'), { code: 'CONNECTION_CLOSED' });
    });
  };
  return { ...db, sql: sql as unknown as Database['sql'], outside: (work) => work() };
}

test('a write whose answer is lost, and the look for it too, is neither done twice nor taken for refused', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const { runs, life } = await world.replica({ start: false });
  const { runId, conversationId } = await runs.send(owner, send('go', { agentId }));
  const [claim] = await life.claim(null, 1);
  const db = losing(world.db, [
    { text: 'write_run(', before: (run) => run() },
    { text: 'write_no =', before: async () => undefined },
  ]);
  const writer = createRunWriters(db, life.publish, silentLog).open(claim!);
  writer.append({ type: 'message.delta', data: { runId, messageId: claim!.messageId, text: 'once' } });
  await writer.flushed();
  assert.equal(writer.lost.aborted, false);
  const deltas = (await world.log(conversationId)).filter((event) => event.type === 'message.delta');
  assert.equal(deltas.length, 1);
});

test('an end whose answer is lost is told to those who wait, also when the next run has begun by then', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const { runs, life } = await world.replica({ start: false });
  const first = await runs.send(owner, send('1', { agentId }));
  const { conversationId } = first;
  const [claim] = await life.claim(null, 1);
  await runs.send(owner, send('2', { agentId, conversationId }));
  const waiting = runs.outcome(owner, first.runId, 600_000);
  const db = losing(world.db, [{ text: 'write_run(', before: (run) => run() }]);
  const writer = createRunWriters(db, life.publish, silentLog).open(claim!);
  const settled = writer.settle({ status: 'failed', error: { code: 'lost', error: 'x' }, message: null }, []);
  await until('the next run has begun', async () => (await life.claim([conversationId], 1)).length === 1);
  await settled;
  assert.equal((await inTime('it is told', waiting)).run.status, 'failed');
});

test('an end that cannot be read when it is looked for is told all the same', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const accepts = await world.replica({ start: false });
  await accepts.doorbell.close();
  const { runId } = await accepts.runs.send(owner, send('hello', { agentId }));
  const hasEnded = async () => (await accepts.runs.get(owner, runId)).status === 'completed';
  const db = losing(accepts.db, [
    // The first is that of the caller, before it waits.
    { text: 'from runs r where id', after: 1, before: () => until('it has ended', hasEnded) },
  ]);
  const runs = createRuns({
    ...accepts,
    db,
    agents: createAgentStore(db),
    cursors: createCursors(randomBytes(32)),
    outcomes: createOutcomes(),
    maxActiveAgents: 1,
  });
  const waiting = runs.outcome(owner, runId, 600_000);
  await world.replica();
  const { run, message } = await inTime('it is told', waiting);
  assert.deepEqual([run.status, message?.content], ['completed', 'hello']);
});

test('a run whose claim is answered after a stop has begun is stopped like the others, and goes on with another node', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const elsewhere = await world.replica({ start: false });
  const { runId } = await elsewhere.runs.send(owner, send('go', { agentId }));
  const door = gate();
  let claimed = 0;
  const stopped = await world.replica({
    start: false,
    script: untilStopped,
    lifeOf: (life) => ({
      ...life,
      async claim(...which) {
        const claims = await life.claim(...which);
        claimed += claims.length;
        await door.opened;
        return claims;
      },
    }),
  });
  await stopped.runtime.start();
  await until('it is claimed', () => claimed === 1);
  const over = stopped.runtime.drain(0, false);
  // Those that were there have been told to stop by now.
  await new Promise((resolve) => setTimeout(resolve, 50));
  door.open();
  await inTime('the stop is over', over, 20_000);
  await elsewhere.runtime.start();
  const { run } = await elsewhere.runs.outcome(owner, runId, 60_000);
  assert.equal(run.status, 'completed');
  const retries = (await world.log(run.conversationId)).filter(({ type }) => type === 'run.retrying');
  assert.deepEqual(
    retries.map(({ data }) => (data as { reason?: string }).reason),
    ['The service was stopped; the run goes on with its next start.'],
  );
});
