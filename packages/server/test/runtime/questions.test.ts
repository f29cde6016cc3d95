import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runWorld, send, type RunWorld } from '../support/run-world.ts';
import { newId } from '../../src/domain/ids.ts';
import type { Question } from '../../src/domain/questions.ts';
import { Questions } from '../../src/runtime/questions.ts';
import type { RunLife, RunWriter } from '../../src/services/run-life.ts';
import { writeRuns, type LaneWrite } from '../../src/store/lanes.ts';
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
  let isAsked = false;
  const { runs } = await world.replica({
    script: async (turn, sandbox) => {
      isAsked = true;
      await untilStopped(turn);
      return asking(turn, sandbox);
    },
    // Its harness waits for the answer, and is to have the time.
    overrides: { stopGraceMs: 60_000 },
  });
  const { runId } = await runs.send(owner, send('go', { agentId }));
  await until('it runs', () => isAsked);
  await runs.cancel(owner, runId);
  await until('it has ended', async () => (await runs.get(owner, runId)).status === 'cancelled');
  assert.deepEqual(await runs.questions(owner, runId), []);
  const rows = await world.db.sql`select 1 from questions where run_id = ${runId}`;
  assert.equal(rows.length, 0);
});

/** Somebody else holds the lane meanwhile: what is written to it waits at its first step, and a kill would leave what is there. */
async function whileLaneIsHeld(world: RunWorld, conversationId: string, work: () => Promise<void>) {
  await world.db.sql.begin(async (sql) => {
    await sql`select 1 from lanes where conversation_id = ${conversationId} for update`;
    await work();
  });
}

const writeWaits = (world: RunWorld) =>
  until('its write waits', async () => {
    const waiting = await world.db.sql`select 1 from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock'`;
    return waiting.length > 0;
  });

test('a question and the events that tell of it are one commit, with the position after it and what was said before', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { owner } = world;
  const agentId = await world.addAgent({ permissions: 'ask' });
  const goes = gate();
  t.after(() => goes.open());
  let isThere = false;
  const { runs } = await world.replica({
    // Its renewal of the lease would wait for the lane as well.
    leaseMs: 600_000,
    script: async (turn) => {
      isThere = true;
      await goes.opened;
      turn.onUpdate({ kind: 'text', text: 'well, half a \ud83d' });
      turn.onTold(50);
      const question = {
        kind: 'input',
        requestId: newId(),
        message: 'x',
        form: {},
        purpose: 'input',
      } as const;
      await turn.onQuestion(question, () => turn.onTold(100));
      return { outcome: 'completed' };
    },
  });
  const { runId, conversationId } = await runs.send(owner, send('go', { agentId }));
  await until('it runs', () => isThere);
  const asked = () => world.db.sql`select 1 from questions where run_id = ${runId}`;
  await whileLaneIsHeld(world, conversationId, async () => {
    goes.open();
    await writeWaits(world);
    assert.equal((await asked()).length, 0);
  });
  await until('it waits', async () => (await runs.get(owner, runId)).status === 'awaiting_input');
  assert.equal((await asked()).length, 1);
  const [lane] = await world.db.sql`select told from lanes where conversation_id = ${conversationId}`;
  assert.equal(Number(lane!['told']), 100);
  const log = await world.log(conversationId);
  assert.deepEqual(
    log.slice(3).map((event) => (event.type === 'message.delta' ? event.data.text : event.type)),
    ['well, half a \ufffd', 'input.requested', 'run.awaiting_input'],
  );
  await runs.cancel(owner, runId);
});

test('that nobody will answer a question is one commit with the event that says so', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { owner } = world;
  const agentId = await world.addAgent({ permissions: 'ask' });
  const ends = gate();
  t.after(() => ends.open());
  const { runs, life } = await world.replica({
    leaseMs: 600_000,
    // It ends its turn without the answer.
    script: async (turn, sandbox) => {
      void asking(turn, sandbox);
      await ends.opened;
      return { outcome: 'completed' };
    },
  });
  const { runId, conversationId } = await runs.send(owner, send('go', { agentId }));
  await until('it waits', async () => (await runs.get(owner, runId)).status === 'awaiting_input');
  const resolved = () =>
    world.db.sql`select 1 from questions where run_id = ${runId} and resolved_at is not null`;
  await whileLaneIsHeld(world, conversationId, async () => {
    ends.open();
    await writeWaits(world);
    assert.equal((await resolved()).length, 0);
  });
  await runs.outcome(owner, runId, 60_000);
  assert.equal((await resolved()).length, 1);
  assert.deepEqual(
    (await life.askedQuestions(runId)).map(({ state }) => state),
    ['cancelled'],
  );
  const types = (await world.log(conversationId)).map((event) => event.type);
  assert.equal(types.filter((type) => type === 'permission.resolved').length, 1);
});

test('a question whose answer the end of its turn overtakes is resolved once: by the caller', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { owner } = world;
  const agentId = await world.addAgent({ permissions: 'ask' });
  const { runs } = await world.replica({
    // The answer is on record, and has not come to the turn.
    lifeOf: (life) => ({ ...life, answers: async () => [] }),
    script: asking,
  });
  const { runId, conversationId } = await runs.send(owner, send('go', { agentId }));
  await until('it waits', async () => (await runs.get(owner, runId)).status === 'awaiting_input');
  const [question] = await runs.questions(owner, runId);
  await runs.respond(owner, runId, { requestId: question!.requestId, optionId: 'no' });
  assert.equal((await runs.cancel(owner, runId)).status, 'cancelled');
  const resolved = (await world.log(conversationId)).filter((event) => event.type === 'permission.resolved');
  assert.deepEqual(
    resolved.map(({ data }) => data.by),
    ['caller'],
  );
});

test('a question is written with its lane, and not where the lane is another owner’s', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const door = gate();
  t.after(() => door.open());
  const { runs, life } = await world.replica({
    async script() {
      await door.opened;
      return { outcome: 'completed' };
    },
  });
  for (let n = 0; n < 2; n += 1) await runs.send(owner, send('go', { agentId }));
  await until('both run', async () => (await life.owned()).length === 2);
  const lanes = await life.owned();
  const shares = lanes.map(({ conversationId, runId, epoch }, at): LaneWrite => {
    const question = {
      kind: 'permission',
      requestId: newId(),
      toolCallId: 't',
      title: 't',
      options,
    } as const;
    const nothing = { told: null, events: [], error: null, message: null };
    const owned = { conversationId, runId, epoch: String(BigInt(epoch) + BigInt(at)) };
    return { ...owned, ...nothing, status: 'awaiting_input', writeNo: 1_000, asked: [question] };
  });
  const written = await writeRuns(world.db, shares, [], new Date());
  assert.deepEqual([...written.keys()], [lanes[0]!.conversationId]);
  const asked = await Promise.all(lanes.map(async ({ runId }) => [...(await life.askedQuestions(runId))]));
  assert.deepEqual(asked, [[{ question: shares[0]!.asked[0], state: 'open' }], []]);
});

test('a question that an earlier process has cancelled is answered so: its harness may wait for it', async () => {
  const questions = new Questions({} as RunLife, {} as RunWriter, 'ask');
  const question: Question = { kind: 'permission', requestId: 'q', toolCallId: 't', title: 't', options };
  assert.deepEqual(await questions.askedBefore(question, true), { kind: 'permission', optionId: null });
  assert.equal(questions.isWaiting, false);
});

test('a question of an earlier version that was written without its events is forgotten where its turn is taken up, and others are not', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { owner } = world;
  const agentId = await world.addAgent({ permissions: 'ask' });
  const question: Question = { kind: 'permission', requestId: newId(), toolCallId: 't', title: 't', options };
  const { runs, life } = await world.replica({
    async script(turn) {
      await turn.onQuestion(question, () => undefined);
      return { outcome: 'completed' };
    },
  });
  const { runId } = await runs.send(owner, send('go', { agentId }));
  await until('it waits', async () => (await runs.get(owner, runId)).status === 'awaiting_input');
  for (const at of [null, new Date()])
    await world.db.sql`
      insert into questions (run_id, request_id, kind, question, resolved_at)
        values (${runId}, ${at === null ? 'untold' : 'over'}, 'permission', '{}', ${at})`;
  await life.forgetUntoldQuestions(runId);
  const left = await world.db.sql<{ id: string }[]>`
    select request_id as id from questions where run_id = ${runId} order by request_id`;
  assert.deepEqual(left.map(({ id }) => id).toSorted(), [question.requestId, 'over'].toSorted());
});
