import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { test } from 'node:test';
import type { ConversationEvent } from '../../src/domain/events.ts';
import { createCursors } from '../../src/domain/paging.ts';
import { createRuns } from '../../src/services/runs.ts';
import { createAgentStore } from '../../src/store/agents.ts';
import { echo, runWorld, send, type Replica } from '../support/run-world.ts';
import { seeded } from '../support/scripts.ts';
import { inTime } from '../support/until.ts';

test('32 conversations at once: each has one run at a time, in the order accepted, and a log without a gap', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const busy = new Set<string>();
  let overlaps = 0;
  const { runs } = await world.replica({
    async script(turn, sandbox) {
      if (busy.has(turn.conversationId)) overlaps += 1;
      busy.add(turn.conversationId);
      await new Promise((resolve) => setImmediate(resolve));
      const result = await echo(turn, sandbox);
      busy.delete(turn.conversationId);
      return result;
    },
  });
  const firsts = await Promise.all(
    Array.from({ length: 32 }, (_, i) => runs.send(owner, send(`0 of ${i}`, { agentId }))),
  );
  const ids: string[][] = firsts.map(({ runId }) => [runId]);
  for (let n = 1; n < 6; n += 1) {
    await Promise.all(
      firsts.map(async ({ conversationId }, i) => {
        const { runId } = await runs.send(owner, send(`${n} of ${i}`, { agentId, conversationId }));
        ids[i]!.push(runId);
      }),
    );
  }
  const outcomes = await Promise.all(ids.flat().map((runId) => runs.outcome(owner, runId, 60_000)));
  assert.ok(outcomes.every(({ run }) => run.status === 'completed'));
  assert.equal(overlaps, 0);
  for (const [i, { conversationId }] of firsts.entries()) {
    const log = await world.log(conversationId);
    assert.deepEqual(
      log.map((event) => event.seq),
      log.map((_, index) => index + 1),
    );
    const started = log.flatMap((event) => (event.type === 'run.started' ? [event.data.runId] : []));
    assert.deepEqual(started, ids[i]);
    const said = log.flatMap((e) =>
      e.type === 'message.created' && e.data.role === 'assistant' ? [e.data.content] : [],
    );
    assert.deepEqual(
      said,
      [0, 1, 2, 3, 4, 5].map((n) => `${n} of ${i}`),
    );
  }
});

for (const seed of [1, 2, 3]) {
  test(`sends, deltas, cancels and interrupts of one conversation at the same moment leave a whole log (seed ${seed})`, async (t) => {
    const world = await runWorld();
    t.after(() => world.close());
    const { agentId, owner } = world;
    const random = seeded(seed);
    const { runs } = await world.replica({
      async script(turn) {
        for (let i = 0; i < 5 + random() * 10 && !turn.signal.aborted; i += 1) {
          turn.onUpdate({ kind: 'text', text: `${i} ` });
          if (random() < 0.3) await new Promise((resolve) => setTimeout(resolve, random() * 4));
        }
        return turn.signal.aborted ? { outcome: 'cancelled' } : { outcome: 'completed' };
      },
    });
    const first = await runs.send(owner, send('begin', { agentId }));
    const { conversationId } = first;
    const ids = [first.runId];
    for (let round = 0; round < 15; round += 1) {
      const work = Array.from({ length: 4 }, async () => {
        const onBusy = random() < 0.15 ? ('interrupt' as const) : ('enqueue' as const);
        const { runId } = await runs.send(owner, send('more', { agentId, conversationId, onBusy }));
        ids.push(runId);
        if (random() < 0.2) await runs.cancel(owner, runId).catch(() => undefined);
      });
      await Promise.all(work);
    }
    // Whoever is not told looks at the end of the time, which would hide it.
    const outcomes = await inTime(
      'each is told of the end',
      Promise.all(ids.map((id) => runs.outcome(owner, id, 60_000))),
      50_000,
    );
    assert.ok(outcomes.every(({ run }) => run.status === 'completed' || run.status === 'cancelled'));
    const log = await world.log(conversationId);
    assert.deepEqual(
      log.map((event) => event.seq),
      log.map((_, index) => index + 1),
    );
    const ends = log.filter((event) => ['run.completed', 'run.cancelled'].includes(event.type));
    assert.equal(new Set(ends.map((event) => event.runId)).size, ids.length);
    assert.equal(ends.length, ids.length);
    const [lane] = await world.db
      .sql`select state, pending, run_id from lanes where conversation_id = ${conversationId}`;
    assert.deepEqual({ ...lane }, { state: 'idle', pending: 0, run_id: null });
  });
}

/** Runs of a replica whose answers of acceptance are held back. */
function heldRuns(replica: Replica) {
  const accepted = Promise.withResolvers<void>();
  const read = Promise.withResolvers<void>();
  const runs = createRuns({
    ...replica,
    db: new Proxy(replica.db, {
      get(db, name) {
        if (name !== 'sql') return Reflect.get(db, name);
        return (strings: TemplateStringsArray, ...values: never[]) => {
          const query = db.sql(strings, ...values);
          if (!strings.join('').includes('accept_run')) return query;
          return query.then(async (rows) => {
            accepted.resolve();
            await read.promise;
            return rows;
          });
        };
      },
    }),
    agents: createAgentStore(replica.db),
    cursors: createCursors(randomBytes(32)),
    maxActiveAgents: 1_000,
  });
  return { runs, accepted: accepted.promise, read: () => read.resolve() };
}

test('who waits for a message, or reads along, is told at once that an interrupt has cancelled it, also when that is known before it is known to be accepted', async (t) => {
  const begun = Promise.withResolvers<void>();
  const goOn = Promise.withResolvers<void>();
  const world = await runWorld();
  t.after(() => {
    goOn.resolve();
    return world.close();
  });
  const { agentId, owner } = world;
  const replica = await world.replica({
    script: async ({ signal }) => {
      begun.resolve();
      await once(signal, 'abort');
      // Nothing else happens in the conversation that would make a reader look again.
      await goOn.promise;
      return { outcome: 'cancelled' };
    },
    overrides: { stopGraceMs: 600_000 },
  });
  const { runs, events } = replica;
  const { conversationId } = await runs.send(owner, send('begin', { agentId }));
  await inTime('the first has begun', begun.promise);
  const held = heldRuns(replica);
  const sent = held.runs.send(owner, send('more', { agentId, conversationId }));
  await inTime('it is accepted', held.accepted);
  await runs.send(owner, send('stop', { agentId, conversationId, onBusy: 'interrupt' }));
  held.read();
  const { runId } = await sent;
  const told: string[] = [];
  const streamed = new Promise<void>((end) => {
    const write = (batch: ConversationEvent[]) => {
      told.push(...batch.map(({ type }) => type));
      return true;
    };
    void events.follow(owner, { runId }, 0, { write, end, drained: async () => {} });
  });
  const { run } = await inTime('it is told', held.runs.outcome(owner, runId, 120_000), 30_000);
  assert.equal(run.status, 'cancelled');
  await inTime('its stream ends', streamed, 30_000);
  assert.deepEqual(told, ['message.created', 'run.queued', 'run.cancelled']);
});
