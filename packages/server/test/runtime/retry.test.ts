import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { HistoryTurn } from '../../src/domain/ports/harness.ts';
import { newId } from '../../src/domain/ids.ts';
import { acceptRun } from '../../src/store/run-life.ts';
import { fakeDriver } from '../support/fake-sandbox.ts';
import { echo, runWorld, send } from '../support/run-world.ts';
import { gate, never, untilStopped } from '../support/scripts.ts';
import { until } from '../support/until.ts';

for (const where of ['same', 'other'] as const) {
  test(`a run whose process died is tried again on the ${where} node, with its recorded tools and a new message`, async (t) => {
    const world = await runWorld();
    t.after(() => world.close());
    const { agentId, owner } = world;
    const nodeId = newId();
    const dead = await world.replica({
      nodeId,
      leaseMs: 800,
      async script(turn) {
        turn.onUpdate({ kind: 'text', text: 'void' });
        const call = {
          kind: 'tool',
          title: 'make',
          toolKind: 'execute',
          input: { command: 'make' },
        } as const;
        turn.onUpdate({ ...call, toolCallId: 'a', phase: 'started', status: 'running' });
        turn.onUpdate({ ...call, toolCallId: 'a', phase: 'finished', status: 'completed', output: 'made' });
        turn.onUpdate({ ...call, toolCallId: 'b', phase: 'started', status: 'running' });
        return untilStopped(turn);
      },
    });
    const { runId, conversationId } = await dead.runs.send(owner, send('go', { agentId }));
    await until('both calls are in the log', async () => {
      const log = await world.log(conversationId);
      return log.filter((event) => event.type === 'tool.started').length === 2;
    });
    const { deploymentId } = await dead.runs.get(owner, runId);
    await dead.crash();
    await world.deploy(agentId);

    const resumed: HistoryTurn[][] = [];
    const alive = await world.replica({
      ...(where === 'same' ? { nodeId } : {}),
      leaseMs: 800,
      script(turn, sandbox) {
        resumed.push(turn.resume);
        return echo(turn, sandbox);
      },
    });
    const { run, message } = await alive.runs.outcome(owner, runId, 60_000);
    assert.deepEqual([run.status, run.attempt, message?.content], ['completed', 2, 'go']);
    assert.equal(run.deploymentId, deploymentId);
    assert.deepEqual(
      resumed[0]?.[0]?.tools.map(({ toolCallId, status, output }) => [toolCallId, status, output]),
      [
        ['a', 'completed', 'made'],
        ['b', 'unknown', null],
      ],
    );
    const log = await world.log(conversationId);
    assert.deepEqual(
      log.map((event) => event.seq),
      log.map((_, index) => index + 1),
    );
    const ends = log.flatMap((event) => (event.type === 'tool.finished' ? [event.data] : []));
    assert.deepEqual(
      ends.map(({ toolCallId, title, status }) => [toolCallId, title, status]),
      [
        ['a', 'make', 'completed'],
        ['b', 'make', 'unknown'],
      ],
    );
    const retrying = log.find((event) => event.type === 'run.retrying');
    const deltas = log.flatMap((event) => (event.type === 'message.delta' ? [event.data] : []));
    const discarded = retrying?.type === 'run.retrying' ? retrying.data.discardedMessageId : null;
    assert.equal(deltas.find((delta) => delta.text === 'void')?.messageId, discarded);
    const kept = deltas.filter((delta) => delta.messageId === message?.id).map((delta) => delta.text);
    assert.equal(kept.join(''), 'go');
  });
}

test('a run that is lost too often fails as lost, and the next message is answered', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const nodeId = newId();
  let runId = '';
  let conversationId = '';
  for (let n = 0; n < 3; n += 1) {
    const door = gate();
    const dead = await world.replica({
      nodeId,
      script(turn) {
        door.open();
        return untilStopped(turn);
      },
    });
    if (n === 0) ({ runId, conversationId } = await dead.runs.send(owner, send('go', { agentId })));
    await door.opened;
    await dead.crash();
  }
  const alive = await world.replica({ nodeId });
  const { run } = await alive.runs.outcome(owner, runId, 60_000);
  assert.deepEqual([run.status, run.error?.code, run.attempt], ['failed', 'lost', 3]);
  const next = await alive.runs.send(owner, send('next', { agentId, conversationId }));
  assert.equal((await alive.runs.outcome(owner, next.runId, 60_000)).message?.content, 'next');
});

test('attempts that were lost while they waited for their sandbox do not count', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const nodeId = newId();
  const queued = { runId: '', conversationId: '' };
  for (let n = 0; n < 5; n += 1) {
    const waiting = gate();
    const gone = gate<never>();
    const driver = fakeDriver();
    driver.start = () => {
      waiting.open();
      return gone.opened;
    };
    const dead = await world.replica({ nodeId, driver });
    if (n === 0) Object.assign(queued, await dead.runs.send(owner, send('go', { agentId })));
    await waiting.opened;
    await dead.db.close();
    gone.open(Promise.reject(new Error('The process is gone.')) as never);
    await dead.crash();
  }
  const sent = gate();
  const dead = await world.replica({
    nodeId,
    script(turn) {
      sent.open();
      return untilStopped(turn);
    },
  });
  await sent.opened;
  await dead.crash();
  const alive = await world.replica({ nodeId });
  const { run, message } = await alive.runs.outcome(owner, queued.runId, 60_000);
  assert.deepEqual([run.status, run.attempt, message?.content], ['completed', 7, 'go']);
  const log = await world.log(queued.conversationId);
  const numbers = log.flatMap((event) => (event.type === 'run.started' ? [event.data.attempt] : []));
  assert.deepEqual(numbers, [1, 2, 3, 4, 5, 6, 7], 'they are told all the same');
});

for (const way of ['with the acceptance', 'by a look'] as const) {
  for (const isReady of [false, true]) {
    const what = isReady ? 'whose sandbox was ready, counts' : 'without a sandbox does not count';
    test(`an attempt that was claimed ${way} and lost at once, ${what}`, async (t) => {
      const world = await runWorld();
      t.after(() => world.close());
      const { agentId, owner } = world;
      const nodeId = newId();
      const [agent] = await world.db.sql<{ key: string }[]>`
        select id || ' ' || deployment_id || ' ' || generation as key from agents where id = ${agentId}`;
      const dead = await world.replica({ nodeId, start: false });
      dead.life.setExecutor({
        reserve: () => way === 'with the acceptance',
        ready: () => (isReady ? [agent!.key] : []),
        // As of a process that is killed before it does anything.
        begin() {},
      });
      const { runId } = await dead.runs.send(owner, send('go', { agentId }));
      if (way === 'by a look') assert.equal((await dead.life.claim(null, 1)).length, 1);
      assert.equal((await dead.runs.get(owner, runId)).status, 'running');
      await dead.crash();
      const alive = await world.replica({ nodeId, overrides: { runMaxAttempts: 1 } });
      const { run } = await alive.runs.outcome(owner, runId, 60_000);
      const expected = isReady ? ['failed', 'lost', 1] : ['completed', undefined, 2];
      assert.deepEqual([run.status, run.error?.code, run.attempt], expected);
    });
  }
}

test('what was noted by a clock that has been set back since is neither waited for nor taken for alive', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const dead = await world.replica({ start: false });
  await dead.life.beat();
  const lost = await dead.runs.send(owner, send('lost', { agentId }));
  assert.equal((await dead.life.claim(null, 1)).length, 1);
  const waiting = await dead.runs.send(owner, send('waiting', { agentId: await world.addAgent() }));
  await dead.crash();
  await world.db.sql`update nodes set seen_at = now() + interval '2 hours'`;
  await world.db.sql`update lanes set ready_at = now() + interval '2 hours' where state = 'ready'`;
  const alive = await world.replica({ leaseMs: 800 });
  for (const { runId } of [waiting, lost])
    assert.equal((await alive.runs.outcome(owner, runId, 60_000)).run.status, 'completed');
});

test('a message is ready at once, also when the clock of its service is ahead of the one of the database', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const { life } = await world.replica({ start: false });
  const [runId, messageId, conversationId] = [newId(), newId(), newId()];
  const at = new Date(Date.now() + 40_000);
  const accepted = await acceptRun(world.db, {
    ...{ orgId: owner.orgId, agentId, conversationId, isNewConversation: true, title: 'A' },
    ...{ source: 'api', keyId: owner.keyId, idempotency: null, onBusy: 'enqueue', runId, messageId },
    ...{ content: 'hi', extras: null, at, maxQueued: 10, maxAgents: 10, claimant: null },
    events: [
      {
        type: 'message.created',
        data: {
          ...{ id: messageId, agentId, conversationId, runId, role: 'user', content: 'hi' },
          createdAt: at.toISOString(),
        },
      },
      { type: 'run.queued', data: { runId, messageId } },
    ],
  });
  assert.equal(accepted.result, 'accepted');
  assert.equal((await life.claim(null, 1))[0]?.runId, runId);
});

test('attempts that an orderly stop of the service ended do not count', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const nodeId = newId();
  let runId = '';
  for (let n = 0; n < 4; n += 1) {
    const begun = gate();
    const stopped = await world.replica({
      nodeId,
      script(turn) {
        begun.open();
        return untilStopped(turn);
      },
    });
    if (n === 0) ({ runId } = await stopped.runs.send(owner, send('go', { agentId })));
    await begun.opened;
    // The last one is lost; with the three before it that would be once too often.
    if (n === 3) await stopped.crash();
    else await stopped.runtime.drain(0, false);
  }
  const alive = await world.replica({ nodeId });
  const { run } = await alive.runs.outcome(owner, runId, 60_000);
  assert.deepEqual([run.status, run.attempt], ['completed', 5]);
});

test('a turn whose sandbox has no room on the disk of the service waits until there is some', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const driver = fakeDriver();
  const noRoom = () => Object.assign(new Error('write'), { code: 'ENOSPC' });
  // More than the tries that a sandbox has which fails for another reason.
  driver.failures = Array.from({ length: 8 }, () => new Error('It did not start.', { cause: noRoom() }));
  const { runs } = await world.replica({ driver, overrides: { roomDelayMs: 5, freeBytes: async () => 0 } });
  const { runId } = await runs.send(owner, send('go', { agentId }));
  const { run, message } = await runs.outcome(owner, runId, 60_000);
  assert.deepEqual([run.status, run.attempt, message?.content], ['completed', 1, 'go']);
  assert.equal(driver.failures.length, 0);
});

test('a turn whose own disk is full does not wait for room on that of the service', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const driver = fakeDriver();
  driver.failures = Array.from({ length: 3 }, () => Object.assign(new Error('write'), { code: 'ENOSPC' }));
  const { runs } = await world.replica({ driver, overrides: { freeBytes: async () => 1e12 } });
  const { runId } = await runs.send(owner, send('go', { agentId }));
  const { run } = await runs.outcome(owner, runId, 60_000);
  assert.deepEqual([run.status, run.error?.code], ['failed', 'sandbox_unavailable']);
});

test('a turn that the service cannot execute is not begun for ever', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const { runs } = await world.replica({
    overrides: {
      runMaxAttempts: 2,
      waitForActive: () => Promise.reject(new Error('A fault of ours.')),
    },
  });
  const undeployed = await world.addAgent();
  await world.db.sql`update agents set deployment_id = null where id = ${undeployed}`;
  const { runId } = await runs.send(owner, send('go', { agentId: undeployed }));
  const { run } = await runs.outcome(owner, runId, 60_000);
  assert.deepEqual([run.status, run.error?.code, run.attempt], ['failed', 'harness_error', 2]);
  const other = await runs.send(owner, send('go', { agentId }));
  assert.equal((await runs.outcome(owner, other.runId, 60_000)).run.status, 'completed');
});

test('the owner of an earlier epoch writes nothing more and ends its turn quietly', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const door = gate();
  let turns = 0;
  const { runs, life } = await world.replica({
    async script(turn) {
      turns += 1;
      if (turns > 1) {
        turn.onUpdate({ kind: 'text', text: 'new owner' });
        return { outcome: 'completed' };
      }
      await door.opened;
      turn.onUpdate({ kind: 'text', text: 'from the past' });
      return { outcome: 'completed' };
    },
  });
  const { runId, conversationId } = await runs.send(owner, send('go', { agentId }));
  await until('it is in its turn', () => turns === 1);
  const [owned] = await life.owned();
  const error = { code: 'lost' as const, error: 'x' };
  await life.endAttempt(owned!, { reason: 'for the test', maxAttempts: 3, error, delayMs: 0 });
  const { run, message } = await runs.outcome(owner, runId, 60_000);
  assert.deepEqual([run.status, run.attempt, message?.content], ['completed', 2, 'new owner']);
  const before = await world.log(conversationId);
  door.open();
  await until('the old turn is over', async () => (await life.owned()).length === 0);
  const again = await runs.send(owner, send('again', { agentId, conversationId }));
  await runs.outcome(owner, again.runId, 60_000);
  const after = await world.log(conversationId);
  assert.deepEqual(after.slice(0, before.length), before);
  assert.ok(!JSON.stringify(after).includes('from the past'));
});

test('a drain lets turns end, and leaves those that do not to the next start', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const nodeId = newId();
  const door = gate();
  t.after(() => door.open());
  let begun = 0;
  const first = await world.replica({
    nodeId,
    async script() {
      begun += 1;
      await door.opened;
      return { outcome: 'completed' };
    },
  });
  const short = await first.runs.send(owner, send('short', { agentId }));
  await until('it is in its turn', () => begun === 1);
  // It is over with the turn; how long that takes is the machine's to say.
  const drained = first.runtime.drain(60_000, false);
  const late = await first.runs.send(owner, send('late', { agentId }));
  door.open();
  await drained;
  assert.equal((await first.runs.get(owner, short.runId)).status, 'completed');
  assert.equal((await first.runs.get(owner, late.runId)).status, 'queued');
  assert.equal(first.driver.live.size, 0);

  const second = await world.replica({
    nodeId,
    script(turn) {
      begun += 1;
      return untilStopped(turn);
    },
  });
  const long = await second.runs.send(owner, send('long', { agentId }));
  await until('both are in their turns', () => begun === 3);
  await second.runtime.drain(300, false);
  assert.equal(second.driver.live.size, 0);
  const third = await world.replica({ nodeId });
  for (const { runId } of [long, late]) {
    const { run } = await third.runs.outcome(owner, runId, 60_000);
    assert.deepEqual([run.status, run.attempt], ['completed', 2]);
  }
});

test('a harness that ends by itself fails its run, one that runs out of memory says so', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const { runs } = await world.replica({
    async script(turn, sandbox) {
      const isOom = turn.content === 'oom';
      sandbox.end({
        reason: isOom ? 'oom' : turn.content === 'full' ? 'disk_full' : 'exit',
        code: 1,
        signal: null,
      });
      return never;
    },
  });
  for (const [content, code] of [
    ['exit', 'harness_exit'],
    ['oom', 'sandbox_oom'],
    ['full', 'sandbox_disk_full'],
  ]) {
    const { runId } = await runs.send(owner, send(content!, { agentId }));
    const { run } = await runs.outcome(owner, runId, 60_000);
    assert.deepEqual([run.status, run.error?.code], ['failed', code]);
  }
});

test('a run that was given away while its turn went on is tried again when that turn has stopped', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  let active = 0;
  let most = 0;
  const { runs, life } = await world.replica({
    leaseMs: 60_000,
    async script(turn, sandbox) {
      active += 1;
      most = Math.max(most, active);
      try {
        return await (turn.attempt === 1 ? untilStopped(turn) : echo(turn, sandbox));
      } finally {
        active -= 1;
      }
    },
  });
  const { runId } = await runs.send(world.owner, send('go', { agentId: world.agentId }));
  await until('it runs', () => active === 1);
  const [lane] = await life.owned();
  const error = { code: 'lost' as const, error: 'Lost.' };
  await life.endAttempt(lane!, { reason: 'Lost.', maxAttempts: null, error, delayMs: 0 });
  const { run, message } = await runs.outcome(world.owner, runId, 60_000);
  assert.deepEqual([run.status, run.attempt, message?.content, most], ['completed', 2, 'go', 1]);
});

test('a turn that cannot be begun leaves no sandbox held that was being started for it', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const driver = fakeDriver();
  const { start } = driver;
  const failed = gate();
  driver.start = async (spec) => {
    await failed.opened;
    return start(spec);
  };
  const { runs, runtime } = await world.replica({
    driver,
    overrides: { runMaxAttempts: 1 },
    lifeOf: (life) => ({
      ...life,
      async extras() {
        // The sandbox is there when it is known that the turn cannot be begun.
        setImmediate(failed.open);
        throw new Error('They cannot be read.');
      },
    }),
  });
  const parts = [{ kind: 'data' as const, data: {}, mediaType: 'application/json' }];
  const { runId } = await runs.send(owner, send('go', { agentId, parts }));
  assert.equal((await runs.outcome(owner, runId, 60_000)).run.status, 'failed');
  await until('nobody is in the sandbox', async () => {
    const { state, runningTurns } = await runtime.host.state(agentId);
    return state === 'running' && runningTurns === 0;
  });
});
