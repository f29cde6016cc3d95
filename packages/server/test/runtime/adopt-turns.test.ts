import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AdoptedHarness } from '../../src/domain/ports/harness.ts';
import type { Question } from '../../src/domain/questions.ts';
import { adoptTurns } from '../../src/runtime/adopt-turns.ts';
import type { AdoptedPlace } from '../../src/runtime/adopt-turns.ts';
import type { Resumption } from '../../src/runtime/runner.ts';
import type { Turn } from '../../src/runtime/turn.ts';
import { Upkeep } from '../../src/runtime/upkeep.ts';
import type { AskedQuestion } from '../../src/services/run-life.ts';
import { silentLog } from '../support/log.ts';
import { runWorld, send } from '../support/run-world.ts';
import { gate } from '../support/scripts.ts';
import { until } from '../support/until.ts';

type Dependencies = Parameters<typeof adoptTurns>[0];

test('a sandbox that names the run of another agent does not get it, whatever it knows of it', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const door = gate();
  t.after(() => door.open());
  const { runs, life } = await world.replica({
    async script() {
      await door.opened;
      return { outcome: 'completed' };
    },
  });
  const { agentId, owner } = world;
  const { runId, conversationId } = await runs.send(owner, send('mine', { agentId }));
  await until('it runs', async () => (await life.owned()).length === 1);
  const [lane] = await life.owned();
  assert.deepEqual([lane!.agentId, lane!.runId, lane!.conversationId], [agentId, runId, conversationId]);

  const begun: string[] = [];
  const asked: string[] = [];
  const place = (name: string): AdoptedPlace => ({
    kept: { agentId: name } as AdoptedPlace['kept'],
    harness: {
      unfinished: [{ conversationId, runId, attempt: 1, requestIds: [] }],
      begin: () => void begun.push(name),
    } as unknown as AdoptedHarness,
  });
  const deps = {
    life: {
      owned: () => life.owned(),
      forgetUntoldQuestions: async () => undefined,
      askedQuestions: async () => [],
      async adopt() {
        asked.push('adopt');
        return null;
      },
    },
    log: silentLog,
  } as unknown as Dependencies;
  assert.deepEqual(await adoptTurns(deps, [place('01890000-0000-7000-8000-000000000000')]), []);
  assert.deepEqual(asked, []);
  await adoptTurns(deps, [place(agentId)]);
  assert.deepEqual(asked, ['adopt']);
  // Their other turns wait for it.
  assert.equal(begun.length, 2);
});

test('what the earlier process had still on its way to the database when its turn was taken up is known', async () => {
  const asked: AskedQuestion[] = [];
  const resumed: Resumption[] = [];
  const claim = { runId: 'r', conversationId: 'c', deadlineAt: new Date(Date.now() + 60_000), told: 0 };
  const place = (requestIds: string[]) => ({
    kept: { agentId: 'a' } as AdoptedPlace['kept'],
    harness: {
      unfinished: [{ conversationId: 'c', runId: 'r', attempt: 1, requestIds }],
      begin: () => undefined,
    } as unknown as AdoptedHarness,
  });
  const deps = {
    life: {
      owned: async () => [{ conversationId: 'c', agentId: 'a', epoch: '1', runId: 'r', attempt: 1 }],
      forgetUntoldQuestions: async () => undefined,
      askedQuestions: async () => [...asked],
      async adopt() {
        // Its last statement is done before the lane is given away, and none is after.
        const question: Question = {
          kind: 'permission',
          requestId: 'q',
          toolCallId: 't',
          title: 't',
          options: [],
        };
        asked.push({ question, state: 'open' });
        return claim;
      },
      open: () => ({ lost: new AbortController().signal, claim, append: () => undefined }),
    },
    history: { attempt: async () => ({ content: '', needsBreak: false, tools: [], artifactIds: [] }) },
    keeper: { holdAdopted: () => ({}) },
    log: silentLog,
    execute(turn: Turn, from: Resumption) {
      resumed.push(from);
      void turn.abandon();
    },
  } as unknown as Dependencies;
  assert.deepEqual(await adoptTurns(deps, [place(['q'])]), ['c']);
  assert.deepEqual(
    resumed.map((from) => from.asked.length),
    [1],
  );
  // The harness waits for an answer, and its launcher does not say where.
  assert.deepEqual(await adoptTurns(deps, [place([])]), []);
  assert.equal(resumed.length, 1);
});

test('a turn that was taken up is kept, however long that took', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const door = gate();
  t.after(() => door.open());
  const { runs, life, nodeId } = await world.replica({
    // Its own upkeep does not look meanwhile.
    leaseMs: 600_000,
    async script() {
      await door.opened;
      return { outcome: 'completed' };
    },
  });
  const { conversationId } = await runs.send(world.owner, send('mine', { agentId: world.agentId }));
  await until('it runs', async () => (await life.owned()).length === 1);
  const [before] = await life.owned();
  await world.db.sql`update nodes set seen_at = now() - interval '1 day' where id = ${nodeId}`;
  const upkeep = new Upkeep({
    life,
    turns: new Map(),
    leaseMs: 60_000,
    maxAttempts: 3,
    cancel: async () => undefined,
    onBuried: () => undefined,
    log: silentLog,
  });
  await upkeep.begin([conversationId]);
  await upkeep.close();
  await world.db.sql`update nodes set seen_at = now() - interval '1 day' where id = ${nodeId}`;
  // Nor by one that stood still between its sign of life and its look for those of others.
  assert.equal(await life.reap({ isStart: false, kept: [], maxAttempts: 3 }), 0);
  assert.deepEqual([...(await life.owned())], [before]);
});
