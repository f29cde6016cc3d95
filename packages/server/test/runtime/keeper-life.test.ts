import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { newId } from '../../src/domain/ids.ts';
import { createSandboxRecords } from '../../src/services/sandbox-records.ts';
import { createAgentStore } from '../../src/store/agents.ts';
import { createDeploymentStore } from '../../src/store/deployments.ts';
import { echo, runWorld, send, type Replica, type RunWorld } from '../support/run-world.ts';
import { gate } from '../support/scripts.ts';
import { until } from '../support/until.ts';

async function ask(world: RunWorld, replica: Replica) {
  const sent = await replica.runs.send(world.owner, send('hello', { agentId: world.agentId }));
  return replica.runs.outcome(world.owner, sent.runId, 60_000);
}

test('a sandbox that nobody uses is frozen, and runs on with the next turn', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const replica = await world.replica({ overrides: { freezeAfterMs: 50 } });
  await ask(world, replica);
  const [sandbox] = replica.driver.started;
  await until('it is frozen', () => sandbox!.isFrozen);
  assert.equal(replica.runtime.stats()['berth_sandboxes_frozen'], 1);
  const { state } = await replica.runtime.host.state(world.agentId);
  assert.equal(state, 'frozen');
  await ask(world, replica);
  assert.equal(replica.driver.started.length, 1);
  await until('it is frozen again', () => sandbox!.isFrozen);
});

test('a sandbox that a turn left full of processes is replaced for the next turn, in which nothing fails', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const left: number[] = [];
  const replica = await world.replica({
    async script(turn, sandbox) {
      left.push(sandbox.pids);
      // Many, but with room for a turn; then none.
      sandbox.pids = left.length === 1 ? sandbox.spec.limits.pids - 17 : sandbox.spec.limits.pids;
      return echo(turn, sandbox);
    },
  });
  for (let turn = 0; turn < 3; turn += 1) {
    assert.equal((await ask(world, replica)).run.status, 'completed');
  }
  const { pids } = replica.driver.started[0]!.spec.limits;
  assert.deepEqual(left, [1, pids - 17, 1], 'the third turn has a sandbox of its own');
  const reason = /limit/;
  await until('the first one is gone, and its row says why', async () => {
    const [row] = await world.db
      .sql`select reason from sandboxes where id = ${replica.driver.started[0]!.id}`;
    return reason.test(String(row!['reason']));
  });
});

test('a sandbox in which another turn works, or a command, is not ended for its many processes until nobody is in it', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const door = gate();
  t.after(() => door.open());
  const replica = await world.replica({
    async script(turn, sandbox) {
      if (turn.content === 'hello') sandbox.pids = sandbox.spec.limits.pids;
      else await door.opened;
      return echo(turn, sandbox);
    },
  });
  const slow = await replica.runs.send(world.owner, send('slow', { agentId: world.agentId }));
  await until('it works', () => replica.runtime.stats()['berth_runs_running'] === 1);
  await ask(world, replica);
  assert.equal(replica.driver.live.size, 1);
  door.open();
  assert.equal((await replica.runs.outcome(world.owner, slow.runId, 60_000)).run.status, 'completed');
  await until('then it is ended', () => replica.driver.live.size === 0);
});

test('where processes are slow to count, a full sandbox is found after its turn and ended', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const replica = await world.replica({
    async script(turn, sandbox) {
      sandbox.isSlowToCount = true;
      sandbox.pids = sandbox.spec.limits.pids;
      return echo(turn, sandbox);
    },
  });
  await ask(world, replica);
  await until('it is ended', () => replica.driver.live.size === 0);
});

test('where nothing can be frozen a sandbox is stopped to save its files, and one with a turn in it is left alone', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const door = gate();
  t.after(() => door.open());
  const replica = await world.replica({
    overrides: { canFreeze: false },
    async script(turn, sandbox) {
      sandbox.freeze = () => Promise.reject(new Error('no cgroup allows it'));
      await door.opened;
      return echo(turn, sandbox);
    },
  });
  const { quiesce } = replica.runtime.host;
  const answer = ask(world, replica);
  await until(
    'its turn runs',
    async () => (await replica.runtime.host.state(world.agentId)).runningTurns === 1,
  );
  await assert.rejects(
    quiesce(world.agentId, 'frozen', async () => 'saved'),
    { code: 'conflict' },
  );
  door.open();
  await answer;
  await until(
    'it has ended',
    async () => (await replica.runtime.host.state(world.agentId)).runningTurns === 0,
  );
  assert.equal(await quiesce(world.agentId, 'frozen', async () => 'saved'), 'saved');
  await until(
    'it is stopped',
    async () => (await replica.runtime.host.state(world.agentId)).state === 'stopped',
  );
  await ask(world, replica);
  assert.equal(replica.driver.started.length, 2);
});

test('a sandbox that could not be frozen goes on', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const replica = await world.replica({});
  await ask(world, replica);
  const [sandbox] = replica.driver.started;
  sandbox!.freeze = () => Promise.reject(new Error('no cgroup allows it'));
  await assert.rejects(replica.runtime.host.quiesce(world.agentId, 'frozen', async () => 'saved'));
  assert.equal((await replica.runtime.host.state(world.agentId)).state, 'running');
  await ask(world, replica);
  assert.equal(replica.driver.started.length, 1);
});

test('a sandbox that could not be thawed still counts as frozen, and the next turn thaws it', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const replica = await world.replica({});
  await ask(world, replica);
  const [sandbox] = replica.driver.started;
  const thaw = sandbox!.thaw.bind(sandbox);
  sandbox!.thaw = () => Promise.reject(new Error('The engine is busy.'));
  await assert.rejects(
    replica.runtime.host.quiesce(world.agentId, 'frozen', async () => 'saved'),
    /busy/,
  );
  assert.equal((await replica.runtime.host.state(world.agentId)).state, 'frozen');
  sandbox!.thaw = thaw;
  await ask(world, replica);
  assert.equal(sandbox!.isFrozen, false);
  assert.equal(replica.driver.started.length, 1);
});

test('the files of a sandbox that ends at the moment at which it is to be frozen are saved all the same', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const records = createSandboxRecords(world.db);
  const replica = await world.replica({
    overrides: {
      records: {
        ...records,
        // What is left of it takes longer to be cleared away than it is waited for that it ends.
        async ended(...what) {
          await delay(1_200);
          await records.ended(...what);
        },
      },
    },
  });
  await ask(world, replica);
  const [sandbox] = replica.driver.started;
  sandbox!.freeze = async () => {
    sandbox!.end({ reason: 'exit', code: 1, signal: null });
    throw new Error('It has ended.');
  };
  const { host } = replica.runtime;
  assert.equal(await host.quiesce(world.agentId, 'frozen', async () => 'saved'), 'saved');
  await until('it is gone', async () => (await host.state(world.agentId)).state === 'stopped');
});

test('a sandbox with a turn in it is not frozen, however long the turn takes', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  let frozen = 0;
  const replica = await world.replica({
    overrides: { freezeAfterMs: 50 },
    script: async (turn, sandbox) => {
      const freeze = sandbox.freeze.bind(sandbox);
      sandbox.freeze = () => {
        frozen += 1;
        return freeze();
      };
      await new Promise((resolve) => setTimeout(resolve, 1_500));
      assert.equal(frozen, 0);
      return echo(turn, sandbox);
    },
  });
  await ask(world, replica);
  await until('it is frozen after it', () => frozen === 1);
});

test('a connection to a server inside keeps its sandbox from freezing, but not from being replaced', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const replica = await world.replica({ overrides: { freezeAfterMs: 50 } });
  const { host } = replica.runtime;
  const target = { port: 80, command: null };
  const connection = await (await host.control(world.agentId)).connect(target);
  const otherId = await world.addAgent();
  await host.start(otherId);
  await until('it was time to freeze', async () => (await host.state(otherId)).state === 'frozen');
  assert.equal((await host.state(world.agentId)).state, 'running');
  const { sandboxId } = await host.state(world.agentId);
  await world.deploy(world.agentId);
  await ask(world, replica);
  assert.notEqual((await host.state(world.agentId)).sandboxId, sandboxId);
  connection.destroy();
});

test('a message for a newer deployment waits for the end of a command in the older sandbox', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const replica = await world.replica({ overrides: { replacedCommandMs: 60_000 } });
  const control = await replica.runtime.host.control(world.agentId);
  const command = await control.exec({ command: ['sleep', '60'] });
  await world.deploy(world.agentId);
  const answered = ask(world, replica);
  await until('it is waited for', () => replica.runtime.stats()['berth_runs_running'] === 1);
  assert.equal(replica.driver.started.length, 1);
  // Its end is noticed by itself: nothing else happens.
  command.kill();
  assert.equal((await answered).run.status, 'completed');
  assert.equal(replica.driver.started.length, 2);
});

test('a command that ends with its sandbox tells what that ended for', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { runtime, driver } = await world.replica();
  const ends = [
    [{ reason: 'oom', code: null, signal: 'SIGKILL' }, 'sandbox_oom', 'The sandbox ran out of memory.'],
    [
      { reason: 'disk_full', code: null, signal: 'SIGKILL' },
      'sandbox_disk_full',
      "The agent's disk is full.",
    ],
    [{ reason: 'exit', code: 1, signal: null }, 'sandbox_ended', 'The sandbox has ended by itself.'],
    [null, 'sandbox_ended', 'It was killed.'],
  ] as const;
  for (const [exit, code, error] of ends) {
    const control = await runtime.host.control(world.agentId);
    const command = await control.exec({ command: ['sleep', '60'] });
    if (exit) driver.started.at(-1)!.end(exit);
    else await runtime.host.kill(world.agentId);
    assert.deepEqual(await command.exited, { code: null, signal: null, sandboxEnd: { code, error } });
  }
});

test('a command in a sandbox that is left to the next process of the node ends at once for this one', async (t) => {
  const door = gate();
  // Before the world is closed, which waits for the turn.
  t.after(() => door.open());
  const world = await runWorld();
  t.after(() => world.close());
  let begun = 0;
  const { runtime, runs, driver } = await world.replica({
    overrides: { isDetached: true },
    async script() {
      begun += 1;
      await door.opened;
      return { outcome: 'completed' };
    },
  });
  await runs.send(world.owner, send('hello', { agentId: world.agentId }));
  await until('it is in its turn', () => begun === 1);
  const command = await (await runtime.host.control(world.agentId)).exec({ command: ['sleep', '60'] });
  let exit: unknown = null;
  void command.exited.then((told) => (exit = told));
  await runtime.drain(0, true);
  assert.equal(driver.live.size, 1);
  assert.deepEqual(exit, { code: null, signal: null });
});

test('a shell that was left open does not keep an agent from answering on its newer deployment', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const replica = await world.replica({ overrides: { replacedCommandMs: 20 } });
  await (await replica.runtime.host.control(world.agentId)).exec({ command: ['bash', '-l'] });
  await world.deploy(world.agentId);
  assert.equal((await ask(world, replica)).run.status, 'completed');
  assert.equal(replica.driver.started.length, 2);
});

test('an agent that has open connections only gives its place to another one', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { runtime } = await world.replica({ overrides: { maxSandboxes: 2 } });
  const idleId = await world.addAgent();
  await runtime.host.start(idleId);
  await (await runtime.host.control(world.agentId)).connect({ port: 80, command: null });
  // Those that nobody uses go first.
  await runtime.host.start(await world.addAgent());
  assert.equal((await runtime.host.state(idleId)).state, 'stopped');
  assert.equal((await runtime.host.state(world.agentId)).state, 'running');
});

test('a sandbox that was started before the first message stays until its agent is another node’s', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { driver, runtime } = await world.replica();
  const { state, sandboxId } = await runtime.host.start(world.agentId);
  assert.equal(state, 'running');
  await runtime.reconcile();
  assert.ok(driver.live.has(sandboxId!), 'nobody else has the agent');
  const other = await world.replica();
  await world.db.sql`update agents set node_id = ${other.nodeId} where id = ${world.agentId}`;
  await runtime.reconcile();
  assert.ok(!driver.live.has(sandboxId!));
});

test('a command does not keep the sandbox of a deleted agent that is another node’s', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { driver, runtime } = await world.replica();
  const other = await world.replica();
  await (await runtime.host.control(world.agentId)).exec({ command: ['sleep', '60'] });
  await world.db.sql`update agents set node_id = ${other.nodeId} where id = ${world.agentId}`;
  await runtime.reconcile();
  assert.equal(driver.live.size, 1);
  await world.db.sql`update agents set deleted_at = now() where id = ${world.agentId}`;
  await runtime.reconcile();
  assert.equal(driver.live.size, 0);
});

test('what is on the host without a row, or in a row without being on the host, is found and ended', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const replica = await world.replica();
  await ask(world, replica);
  const { driver, runtime, nodeId } = replica;
  const spec = driver.started[0]!.spec;
  const stray = newId();
  await driver.start({ ...spec, id: stray });
  const ghost = newId();
  const [row] = await world.db.sql`select org_id, deployment_id from sandboxes limit 1`;
  await createSandboxRecords(world.db).starting({
    id: ghost,
    orgId: row!['org_id'],
    agentId: world.agentId,
    nodeId,
    driver: 'fake',
    deploymentId: row!['deployment_id'],
    model: 'demo/guide',
    generation: 1,
    tokenHash: 'x',
  });
  await runtime.reconcile();
  assert.ok(driver.live.has(stray), 'what is seen once may just be in between');
  await runtime.reconcile();
  assert.ok(!driver.live.has(stray));
  assert.ok(driver.live.has(spec.id), 'what is kept stays');
  assert.equal(runtime.stats()['berth_sandboxes_leaked'], 0);
  const [ended] = await world.db.sql`select state, reason from sandboxes where id = ${ghost}`;
  assert.deepEqual({ ...ended }, { state: 'stopped', reason: 'It was not there any more.' });
});

test('one that cannot be removed keeps neither others from being removed nor the service from its start', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const nodeId = newId();
  const first = await world.replica({ nodeId });
  await ask(world, first);
  const { driver } = first;
  const [spec] = driver.started.map((sandbox) => sandbox.spec);
  await first.crash();
  const [stuck, others] = [newId(), [newId(), newId()]];
  for (const id of [stuck, ...others]) await driver.start({ ...spec!, id });
  const { remove } = driver;
  driver.remove = (id) => (id === stuck ? Promise.reject(new Error('It is busy.')) : remove(id));
  const { runtime, ...next } = await world.replica({ nodeId, driver });
  assert.deepEqual([...driver.live.keys()], [stuck], 'the start ends what it can');
  for (const id of others) await driver.start({ ...spec!, id });
  await runtime.reconcile();
  await runtime.reconcile();
  assert.deepEqual([...driver.live.keys()], [stuck]);
  assert.equal(runtime.stats()['berth_sandboxes_leaked'], 1);
  assert.equal((await ask(world, { ...next, runtime })).run.status, 'completed');
  driver.remove = remove;
});

test('a sandbox that cannot be removed is counted as leaked until it can be', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const replica = await world.replica();
  await ask(world, replica);
  const { driver, runtime } = replica;
  const stray = newId();
  await driver.start({ ...driver.started[0]!.spec, id: stray });
  const { remove } = driver;
  driver.remove = () => Promise.reject(new Error('It is busy.'));
  await runtime.reconcile();
  await runtime.reconcile();
  assert.equal(runtime.stats()['berth_sandboxes_leaked'], 1);
  driver.remove = remove;
  await runtime.reconcile();
  assert.equal(runtime.stats()['berth_sandboxes_leaked'], 0);
  assert.ok(!driver.live.has(stray));
});

test('a sandbox that somebody asked for just before its agent was deleted is not started any more', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId } = world;
  const door = gate();
  t.after(() => door.open());
  // The agent is read for its settings and for its deployment, at the same time.
  let asked = 0;
  const records = createSandboxRecords(world.db);
  const { runtime, driver } = await world.replica({
    overrides: {
      records: {
        ...records,
        async target(id) {
          const target = await records.target(id);
          asked += 1;
          return target;
        },
      },
      async waitForActive(id) {
        const active = await createDeploymentStore(world.db).activeOf(id);
        asked += 1;
        await door.opened;
        return active;
      },
    },
  });
  const starting = runtime.host.start(agentId);
  await until('it is about to start', () => asked === 2);
  await createAgentStore(world.db).markDeleted(agentId);
  await runtime.removeAgent(agentId);
  door.open();
  await assert.rejects(starting, { code: 'unavailable', message: 'Its agent was deleted.' });
  assert.equal(driver.started.length, 0);
  assert.equal(driver.removedVolumes.length, 1);
});
