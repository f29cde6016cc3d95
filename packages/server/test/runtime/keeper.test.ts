import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { fakeDriver, fakeLinks } from '../support/fake-sandbox.ts';
import { echo, runWorld, send, type Replica, type RunWorld } from '../support/run-world.ts';
import { gate } from '../support/scripts.ts';
import { inTime, until } from '../support/until.ts';

async function ask(
  world: RunWorld,
  { runs }: Replica,
  agentId: string,
  content = 'hi',
  conversationId: string | null = null,
) {
  const sent = await runs.send(world.owner, send(content, { agentId, conversationId }));
  return { ...sent, outcome: await runs.outcome(world.owner, sent.runId, 60_000) };
}

test('a sandbox stays warm for the turns of all conversations, and ends when it is idle', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId } = world;
  const all = gate();
  let turns = 0;
  let hadSocket = false;
  const replica = await world.replica({
    overrides: { idleMs: 300 },
    // It is not idle before the last of them has begun, and may be gone soon after.
    async script(turn, sandbox) {
      turns += 1;
      if (turns === 3) {
        hadSocket = existsSync(`${sandbox.spec.runDir}/gateway.sock`);
        all.open();
      }
      await all.opened;
      return echo(turn, sandbox);
    },
  });
  await Promise.all([1, 2, 3].map(() => ask(world, replica, agentId)));
  assert.equal(replica.driver.started.length, 1);
  const { spec } = replica.driver.started[0]!;
  assert.ok(hadSocket);
  await until('it has ended', () => replica.driver.live.size === 0);
  await until('its folder is gone', () => !existsSync(spec.runDir));
  await until('its row says so and the agent is free', async () => {
    const [row] = await world.db.sql`
      select s.state, s.reason, a.node_id from sandboxes s join agents a on a.id = s.agent_id`;
    return row!['state'] === 'stopped' && row!['reason'] === 'It was idle.' && row!['node_id'] === null;
  });
  assert.equal((await ask(world, replica, agentId)).outcome.run.status, 'completed');
  assert.equal(replica.driver.started.length, 2);
});

test('a stop waits for no harness that has not answered yet, and its turn goes on with the next start', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const nodeId = newId();
  const openLink = fakeLinks(echo);
  const slow = await world.replica({
    nodeId,
    overrides: {
      openLink: async (place) => ({
        ...(await openLink(place)),
        // As the real one: it gives up when the sandbox has ended, or after a minute.
        connect: (sandbox) => sandbox.exited.then(() => Promise.reject(new Error('The sandbox has ended.'))),
      }),
    },
  });
  const { runId } = await slow.runs.send(owner, send('hi', { agentId }));
  await until('its sandbox is being started', () => slow.driver.live.size === 1);
  await inTime('the drain is over', slow.runtime.drain(0, false));
  assert.equal(slow.driver.live.size, 0, 'nothing is left of it');
  const next = await world.replica({ nodeId });
  const { run } = await next.runs.outcome(owner, runId, 60_000);
  assert.deepEqual([run.status, run.attempt], ['completed', 2]);
});

test('after a deployment running turns end on the old sandbox, and new ones wait for a new one', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const door = gate();
  const seen: [string, string][] = [];
  const replica = await world.replica({
    async script(turn, sandbox) {
      seen.push([turn.content, sandbox.id]);
      if (turn.content === 'old') await door.opened;
      return echo(turn, sandbox);
    },
  });
  const old = await replica.runs.send(owner, send('old', { agentId }));
  await until('it is in its turn', () => seen.length === 1);
  const deploymentId = await world.deploy(agentId);
  const fresh = await replica.runs.send(owner, send('new', { agentId }));
  await until('it is claimed', async () => (await replica.runs.get(owner, fresh.runId)).status === 'running');
  assert.equal(replica.driver.started.length, 1);
  door.open();
  const { run: oldRun } = await replica.runs.outcome(owner, old.runId, 60_000);
  const { run: newRun } = await replica.runs.outcome(owner, fresh.runId, 60_000);
  assert.equal(oldRun.status, 'completed');
  assert.equal(newRun.deploymentId, deploymentId);
  assert.notEqual(oldRun.deploymentId, deploymentId);
  assert.equal(replica.driver.started.length, 2);
  assert.equal(seen[1]![1], replica.driver.started[1]!.id);
});

test('with no room the least recently used idle sandbox gives way, and runs wait while all are in use', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const [second, third] = [await world.addAgent(), await world.addAgent()];
  const door = gate();
  const replica = await world.replica({
    overrides: { maxSandboxes: 2 },
    async script(turn, sandbox) {
      if (turn.content === 'wait') await door.opened;
      return echo(turn, sandbox);
    },
  });
  await ask(world, replica, agentId);
  await ask(world, replica, second);
  await ask(world, replica, third);
  const live = () => [...replica.driver.live.values()].map(({ spec }) => spec.volumeDir.slice(-36));
  assert.deepEqual(live().sort(), [second, third].sort());
  const busy = await Promise.all(
    [second, third].map((id) => replica.runs.send(owner, send('wait', { agentId: id }))),
  );
  await until('both run', () => replica.runtime.stats()['berth_runs_running'] === 2);
  const waiting = await replica.runs.send(owner, send('x', { agentId }));
  await until('it is claimed', () => replica.runtime.stats()['berth_runs_running'] === 3);
  assert.equal(replica.driver.started.length, 3);
  door.open();
  for (const { runId } of [...busy, waiting]) {
    assert.equal((await replica.runs.outcome(owner, runId, 60_000)).run.status, 'completed');
  }
});

test('a sandbox that does not start is tried again, then the run fails with a text that says so', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId } = world;
  const replica = await world.replica();
  replica.driver.failures.push(new Error('/secret/path'));
  assert.equal((await ask(world, replica, agentId)).outcome.run.status, 'completed');
  await world.deploy(agentId);
  for (let i = 0; i < 3; i += 1) replica.driver.failures.push(new Error('/secret/path'));
  const { run } = (await ask(world, replica, agentId)).outcome;
  assert.equal(run.error?.code, 'sandbox_unavailable');
  assert.ok(!run.error.error.includes('secret'));
  assert.equal((await ask(world, replica, agentId)).outcome.run.status, 'completed');
});

test('an agent without a deployment fails its run clearly', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId } = world;
  const replica = await world.replica();
  await world.db.sql`update agents set deployment_id = null where id = ${agentId}`;
  assert.equal((await ask(world, replica, agentId)).outcome.run.error?.code, 'deployment_missing');
});

test('a start ends every sandbox that an earlier process has left, and settles its row', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId } = world;
  const driver = fakeDriver();
  const first = await world.replica({ driver });
  await ask(world, first, agentId);
  assert.equal(driver.live.size, 1);
  const second = await world.replica({ driver, nodeId: first.nodeId });
  assert.equal(driver.live.size, 0);
  const rows = await world.db.sql`select state from sandboxes where state in ('starting', 'running')`;
  assert.equal(rows.length, 0);
  assert.equal((await ask(world, second, agentId)).outcome.run.status, 'completed');
});

test('a harness without a session gets the earlier turns with their tools, also of turns that were stopped', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const histories: unknown[] = [];
  const replica = await world.replica({
    async script(turn, sandbox) {
      if (turn.content === 'tools') {
        const call = { kind: 'tool', toolCallId: 't', title: 'ls', toolKind: 'execute' } as const;
        turn.onUpdate({ ...call, phase: 'started', status: 'running', input: { command: 'ls' } });
        turn.onUpdate({ ...call, phase: 'finished', status: 'completed', output: 'file' });
      }
      if (turn.content === 'breaks') {
        turn.onUpdate({ kind: 'text', text: 'half' });
        return { outcome: 'failed', code: 'model_error', message: 'no' };
      }
      histories.push(await turn.history());
      return echo(turn, sandbox);
    },
  });
  const { conversationId } = await ask(world, replica, agentId, 'tools');
  await ask(world, replica, agentId, 'breaks', conversationId);
  await ask(world, replica, agentId, 'last', conversationId);
  const tool = {
    toolCallId: 't',
    title: 'ls',
    input: { command: 'ls' },
    output: 'file',
    status: 'completed',
  };
  assert.deepEqual(histories.at(-1), [
    { role: 'user', content: 'tools', tools: [] },
    { role: 'assistant', content: 'tools', tools: [tool] },
    { role: 'user', content: 'breaks', tools: [] },
    { role: 'assistant', content: 'half', tools: [] },
  ]);
  assert.deepEqual(histories[0], []);
  assert.ok(owner);
});
