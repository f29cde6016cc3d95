import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import type { DomainError } from '../../src/domain/errors.ts';
import type { OpenHarnessLink } from '../../src/domain/ports/harness.ts';
import { fakeLinks, type FakeSandbox, type Script } from '../support/fake-sandbox.ts';
import { echo, runWorld, send } from '../support/run-world.ts';
import { gate } from '../support/scripts.ts';
import { inTime, until } from '../support/until.ts';

const SILENT = ['silent'];

/** An agent whose harness says nothing until `speaks`, or for ever where its program is another in a later deployment. */
async function silentWorld(t: TestContext, script: Script = echo) {
  const world = await runWorld();
  t.after(() => world.close());
  const speaks = gate();
  const links = fakeLinks(script);
  const openLink: OpenHarnessLink = async (place) => {
    const link = await links(place);
    return {
      ...link,
      async connect(sandbox, options) {
        const { spec } = sandbox as FakeSandbox;
        // As the real one: it gives up when the sandbox has ended, or after a minute.
        const ended = sandbox.exited.then(() => Promise.reject(new Error('The sandbox has ended.')));
        ended.catch(() => undefined);
        if (spec.command[0] === SILENT[0]) await Promise.race([speaks.opened, ended]);
        return link.connect(sandbox, options);
      },
    };
  };
  const replica = await world.replica({
    overrides: { openLink, launch: ({ command }) => ({ command: command ?? ['none'], env: {}, binds: [] }) },
  });
  const agentId = await world.addAgent({ command: SILENT });
  const { driver, runs } = replica;
  return {
    ...{ world, replica, agentId, driver, speaks },
    ask: (content: string) => runs.send(world.owner, send(content, { agentId })),
    outcome: async (runId: string) => (await runs.outcome(world.owner, runId, 60_000)).run,
    cancel: (runId: string) => runs.cancel(world.owner, runId),
    started: (count: number) => until(`${count} were started`, () => driver.started.length === count),
  };
}

test('a run that is cancelled while the harness of its sandbox says nothing frees its agent at once', async (t) => {
  const { ask, outcome, cancel, started, driver, replica, agentId } = await silentWorld(t);
  const { runId } = await ask('hi');
  await started(1);
  await cancel(runId);
  assert.equal((await inTime('the run has ended', outcome(runId))).status, 'cancelled');
  await until('its sandbox is gone', () => driver.live.size === 0);
  await until('nobody waits', async () => (await replica.runtime.host.state(agentId)).state === 'stopped');
});

test('a start goes on while one run waits for it still, and a cancelled one does not wait for its end', async (t) => {
  const { ask, outcome, cancel, started, driver, speaks, replica } = await silentWorld(t);
  const [first, second] = [await ask('one'), await ask('two')];
  await started(1);
  await until('both wait', () => replica.runtime.stats()['berth_runs_running'] === 2);
  // Who began the start and who came later are alike, so whichever it is that is cancelled.
  await cancel(first.runId);
  assert.equal((await inTime('the first has ended', outcome(first.runId))).status, 'cancelled');
  assert.equal(driver.live.size, 1);
  speaks.open();
  assert.equal((await outcome(second.runId)).status, 'completed');
  assert.equal(driver.started.length, 1);
});

test('a start whose last run is cancelled ends, also when another one began it', async (t) => {
  const { ask, outcome, cancel, started, driver, replica } = await silentWorld(t);
  const [first, second] = [await ask('one'), await ask('two')];
  await started(1);
  await until('both wait', () => replica.runtime.stats()['berth_runs_running'] === 2);
  for (const { runId } of [first, second]) {
    await cancel(runId);
    assert.equal((await inTime('it has ended', outcome(runId))).status, 'cancelled');
  }
  await until('its sandbox is gone', () => driver.live.size === 0);
  assert.equal(driver.started.length, 1);
});

test('a message for a newer deployment waits for no harness of the older one that says nothing', async (t) => {
  const { ask, outcome, cancel, started, world, agentId, driver, replica } = await silentWorld(t);
  const old = await ask('old');
  await started(1);
  const deploymentId = await world.deploy(agentId, { command: ['speaks'] });
  const fresh = await ask('new');
  const run = await inTime('it is answered', outcome(fresh.runId));
  assert.deepEqual([run.status, run.deploymentId], ['completed', deploymentId]);
  // The older one has its deployment, and another try when nobody needs the agent.
  await started(3);
  assert.deepEqual(
    driver.started.map(({ spec }) => spec.command[0]),
    ['silent', 'speaks', 'silent'],
  );
  // That one is not ended for others.
  const third = await ask('third');
  await until('both wait', () => replica.runtime.stats()['berth_runs_running'] === 2);
  assert.ok(driver.live.has(driver.started[2]!.id));
  await cancel(old.runId);
  assert.equal((await outcome(old.runId)).status, 'cancelled');
  assert.equal((await inTime('it is answered', outcome(third.runId))).status, 'completed');
});

test('a kill ends a sandbox that is being started, and the run that waits for it gets another', async (t) => {
  const { ask, outcome, started, driver, speaks, replica, agentId } = await silentWorld(t);
  const { runId } = await ask('hi');
  await started(1);
  await inTime('the kill is over', replica.runtime.host.kill(agentId));
  assert.ok(!driver.live.has(driver.started[0]!.id));
  await started(2);
  speaks.open();
  assert.equal((await outcome(runId)).status, 'completed');
});

test('a kill waits for no sandbox that others start meanwhile in place of the one that it ends', async (t) => {
  const { ask, outcome, started, driver, speaks, replica, agentId } = await silentWorld(t);
  const asked = [await ask('one'), await ask('two')];
  await started(1);
  await until('both wait', () => replica.runtime.stats()['berth_runs_running'] === 2);
  await inTime('the kill is over', replica.runtime.host.kill(agentId));
  assert.ok(!driver.live.has(driver.started[0]!.id));
  await started(2);
  assert.ok(driver.live.has(driver.started[1]!.id));
  speaks.open();
  for (const { runId } of asked) assert.equal((await outcome(runId)).status, 'completed');
});

test('who waits in vain for a sandbox is told what it was that took so long', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const door = gate();
  t.after(() => door.open());
  const silent = await world.addAgent({ command: SILENT });
  const links = fakeLinks(async (turn, sandbox) => {
    await door.opened;
    return echo(turn, sandbox);
  });
  const openLink: OpenHarnessLink = async (place) => {
    const link = await links(place);
    return {
      ...link,
      async connect(sandbox, options) {
        const { spec, exited } = sandbox as FakeSandbox;
        if (spec.command[0] === SILENT[0])
          await exited.then(() => Promise.reject(new Error('The sandbox has ended.')));
        return link.connect(sandbox, options);
      },
    };
  };
  const launch = ({ command }: { command: string[] | null }) => ({
    ...{ command: command ?? ['none'], env: {}, binds: [] },
  });
  let patience = new AbortController();
  const hostPatience = () => (patience = new AbortController()).signal;
  const { runtime, runs, driver } = await world.replica({
    overrides: { openLink, launch, maxSandboxes: 1, hostPatience },
  });
  const { host } = runtime;
  const failureOf = (agentId: string): Promise<DomainError> =>
    host.start(agentId).then(
      () => assert.fail('It has started.'),
      (error: DomainError) => error,
    );
  const first = failureOf(silent);
  await until('it is being started', () => driver.live.size === 1);
  patience.abort();
  assert.deepEqual(
    [(await first).code, (await first).message],
    ['unavailable', 'The sandbox did not start within 60 s.'],
  );
  await until('its sandbox is gone', () => runtime.stats()['berth_sandboxes'] === 0);

  await runs.send(world.owner, send('hold it', { agentId: world.agentId }));
  await until('a turn is in the only sandbox', async () => {
    const { state, runningTurns } = await host.state(world.agentId);
    return state === 'running' && runningTurns === 1;
  });
  const other = await world.addAgent();
  const second = failureOf(other);
  await until('it waits', async () => (await host.state(other)).state === 'starting');
  patience.abort();
  assert.equal((await second).code, 'too_many_sandboxes');
  assert.match((await second).message, /^All 1 sandboxes/);

  await world.deploy(world.agentId);
  // That it waits is not to be seen, so it is asked more and more patiently.
  let turns = 0;
  await until('it is told what it waits for', async () => {
    const third = failureOf(world.agentId);
    turns += 1;
    for (let turn = 0; turn < turns; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    patience.abort();
    const { code, message } = await third;
    return code === 'conflict' && message.startsWith('A turn of an earlier deployment');
  });
});

test('a stop that is asked for while a turn waits for its sandbox waits for that turn as well', async (t) => {
  const door = gate();
  t.after(() => door.open());
  const { ask, outcome, started, driver, replica, agentId, speaks } = await silentWorld(
    t,
    async (turn, sandbox) => {
      await door.opened;
      return echo(turn, sandbox);
    },
  );
  const { host } = replica.runtime;
  const { runId } = await ask('one');
  await started(1);
  const stopping = host.stop(agentId);
  speaks.open();
  await until('its turn is under way', async () => (await host.state(agentId)).runningTurns === 1);
  door.open();
  const { status, attempt } = await outcome(runId);
  assert.deepEqual([status, attempt, driver.started.length], ['completed', 1, 1]);
  assert.equal((await stopping).state, 'stopped');
});

test('whoever waits for a start that is ended meanwhile is told that it was, and by what', async (t) => {
  const { replica, agentId, started, driver, world } = await silentWorld(t);
  const { host } = replica.runtime;
  const ends: [string, () => Promise<unknown>, string][] = [
    ['conflict', () => host.kill(agentId), 'It was killed.'],
    ['conflict', () => replica.runtime.removeAgent(agentId), 'Its agent was deleted.'],
    [
      'unavailable',
      () => replica.runtime.drain(0, false),
      'The service is stopping; try again when it runs.',
    ],
  ];
  for (const [index, [code, end, reason]] of ends.entries()) {
    const told = host.start(agentId).then(
      () => assert.fail('It has started.'),
      (error: DomainError) => error,
    );
    await started(index + 1);
    await until('it is being started', () => driver.live.size === 1);
    await end();
    const { code: found, message } = await inTime('it is told', told);
    assert.equal(found, code);
    assert.ok(message.endsWith(reason), message);
    assert.doesNotMatch(message, /berth doctor/);
  }
  const rows = await world.db.sql<{ reason: string }[]>`
    select reason from sandboxes where agent_id = ${agentId} order by id`;
  for (const [index, reason] of ['It was killed.', 'Its agent was deleted.', 'is stopping.'].entries())
    assert.ok(rows[index]!.reason.endsWith(reason), rows[index]!.reason);
});
