import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import type { Agent } from '../../src/domain/nouns.ts';
import { RepoError } from '../../src/domain/ports/repos.ts';
import { createResources, resourceWorld } from '../support/resources.ts';
import type { World } from '../support/resources.ts';
import { until } from '../support/until.ts';

const page = { limit: 100, cursor: null };
const url = 'https://example.com/team/agent.git';

let world: World;
before(async () => {
  world = await resourceWorld();
  const remote = { main: { 'AGENTS.md': '# 1' }, next: { 'AGENTS.md': '# 2' } };
  world.repos.remotes.set(url, new Map(Object.entries(remote)));
});
after(() => world.close());

const hosted = () => world.agents.create(world.owner, { name: 'Hosted' });
const active = async (agent: Agent) => (await world.agents.get(world.owner, agent.id)).deploymentId;
const newest = async (agent: Agent) => (await world.deployments.list(world.owner, agent.id, page)).items[0]!;
const generation = async (id: string) =>
  (await world.db.sql<{ generation: number }[]>`select generation from agents where id = ${id}`)[0]!
    .generation;

/** Pushes to main, and answers the lines that the pushing terminal saw. */
async function push(agent: Agent, files: Record<string, string>): Promise<string[]> {
  const lines: string[] = [];
  const commit = world.repos.commit(agent.id, 'main', files);
  await world.deployments.deployPushed(agent.id, { ref: 'main', commit }, (line) => lines.push(line));
  return lines;
}

test('a push deploys, tells how it goes and replaces the sandbox', async () => {
  const agent = await hosted();
  const start = await generation(agent.id);
  const lines = await push(agent, { 'agent.json': '{"command": ["./run"], "color": "blue"}' });
  const [deployment] = (await world.deployments.list(world.owner, agent.id, page)).items;
  assert.deepEqual(lines, [
    'Reading agent.json',
    'agent.json: the field "color" is not known and was ignored.',
    `Deployed ${deployment!.commit!.slice(0, 7)} as ${deployment!.id}`,
  ]);
  assert.equal(await active(agent), deployment!.id);
  assert.equal(await generation(agent.id), start + 1);
  assert.ok(deployment!.activatedAt);
  const launch = await world.deployments.waitForDeployment(agent.id, AbortSignal.timeout(60_000));
  assert.deepEqual(launch?.manifest.command, ['./run']);
  assert.ok(world.repos.kept.has(`${agent.id}:${deployment!.commit}`));
});

test('a push with a bad agent.json fails by name and leaves the active deployment alone', async () => {
  const agent = await hosted();
  await assert.rejects(push(agent, { 'agent.json': '{"command": "run"}' }), (error: Error) => {
    return error instanceof RepoError && error.message.startsWith('agent.json: command: must be an array');
  });
  await assert.rejects(push(agent, { 'agent.json': ' '.repeat(70_000) }), /agent\.json is larger than/);
  await assert.rejects(
    push(agent, { 'agent.json': '{"instructions": "none.md"}' }),
    /has no file "none\.md"/,
  );
  const { items } = await world.deployments.list(world.owner, agent.id, page);
  assert.deepEqual(
    items.map(({ status }) => status),
    ['failed', 'failed', 'failed', 'ready'],
  );
  assert.match(items[2]!.error!, /^agent\.json: command/);
  assert.equal(await active(agent), agent.deploymentId);
});

test('a ready deployment can be activated again, a failed one cannot', async () => {
  const agent = await hosted();
  await push(agent, { 'AGENTS.md': 'two' });
  await push(agent, { 'agent.json': '[]' }).catch(() => {});
  const [failed, second, first] = (await world.deployments.list(world.owner, agent.id, page)).items;
  assert.equal(await active(agent), second!.id);
  const start = await generation(agent.id);
  const activated = await world.deployments.activate(world.owner, agent.id, first!.id);
  assert.equal(activated.id, first!.id);
  assert.ok(activated.activatedAt! > first!.activatedAt!);
  assert.equal(await active(agent), first!.id);
  assert.equal(await generation(agent.id), start + 1);
  await world.deployments.activate(world.owner, agent.id, first!.id);
  assert.equal(await generation(agent.id), start + 1, 'nothing changed the second time');
  await assert.rejects(world.deployments.activate(world.owner, agent.id, failed!.id), { code: 'conflict' });
  for (const id of [newId(), 'no-id', (await hosted()).deploymentId!]) {
    await assert.rejects(world.deployments.activate(world.owner, agent.id, id), { code: 'not_found' });
    await assert.rejects(world.deployments.get(world.owner, agent.id, id), { code: 'not_found' });
  }
  await push(agent, { 'AGENTS.md': 'three' });
  assert.notEqual(await active(agent), first!.id, 'what is deployed later takes over from a roll-back');
});

test('a deploy of a hosted agent resolves a branch or commit, main when none is named', async () => {
  const agent = await hosted();
  const commit = world.repos.commit(agent.id, 'topic', { 'AGENTS.md': 'topic' });
  const main = await world.deployments.create(world.owner, agent.id, {});
  assert.deepEqual([main.status, main.ref], ['ready', 'main']);
  const topic = await world.deployments.create(world.owner, agent.id, { ref: 'refs/heads/topic' });
  assert.deepEqual([topic.status, topic.ref, topic.commit], ['ready', 'topic', commit]);
  assert.equal(await active(agent), topic.id);
  const missing = await world.deployments.create(world.owner, agent.id, { ref: 'none' });
  assert.deepEqual([missing.status, missing.commit], ['failed', null]);
  assert.match(missing.error!, /no branch, tag or commit "none"/);
  for (const ref of ['', '-x', 'a b', 'a..b', 'a:b', 'a~1', '@{1}', 'a\u0000', '/x', 'x'.repeat(256)]) {
    const refused = { code: 'invalid_request' };
    await assert.rejects(
      world.deployments.create(world.owner, agent.id, { ref }),
      refused,
      JSON.stringify(ref),
    );
  }
});

test('a deploy of an external agent fetches first, with the token of the agent', async () => {
  const agent = await world.agents.create(world.owner, { name: 'External', gitUrl: url });
  await world.work.idle();
  await world.secrets.put(world.owner, agent.id, 'GIT_TOKEN', { value: 'git-token' });
  const next = await world.deployments.create(world.owner, agent.id, { ref: 'next' });
  assert.deepEqual([next.status, next.ref, next.source], ['ready', 'next', 'fetch']);
  const fetches = world.repos.fetches.filter(({ agentId }) => agentId === agent.id);
  assert.deepEqual(
    fetches.map(({ ref, token }) => [ref, token]),
    [
      [null, null],
      ['next', 'git-token'],
    ],
  );
});

test('the git token is sent only to the origin for which it was set', async () => {
  const { agents, secrets, deployments, owner, repos } = world;
  const agent = await hosted();
  const setToken = (value: string) => secrets.put(owner, agent.id, 'GIT_TOKEN', { value });
  const tokens = () => repos.fetches.flatMap(({ agentId, token }) => (agentId === agent.id ? [token] : []));
  const deploy = () => deployments.create(owner, agent.id, { ref: 'next' });
  const moveTo = async (gitUrl: string) => {
    await agents.update(owner, agent.id, { gitUrl });
    await world.work.idle();
    return (await deployments.list(owner, agent.id, page)).items[0]!;
  };
  const isRefused = ({ status, error }: { status: string; error: string | null }, origin: string) => {
    assert.equal(status, 'failed');
    assert.ok(error!.includes(origin) && error!.includes('Set GIT_TOKEN again'), error!);
  };
  for (const gitUrl of ['https://git.example.com/a.git', 'https://git.example.com:8443/a.git']) {
    const files = { 'AGENTS.md': 'fetched' };
    repos.remotes.set(
      gitUrl,
      new Map([
        ['main', files],
        ['next', files],
      ]),
    );
  }
  // Set while the service held the repository, it was for no server at all.
  await setToken('first');
  isRefused(await moveTo('https://git.example.com/a.git'), 'https://git.example.com');
  assert.deepEqual(tokens(), []);
  await setToken('second');
  assert.equal((await deploy()).status, 'ready');
  await moveTo('https://GIT.example.com:443/another.git');
  assert.deepEqual(tokens(), ['second', 'second']);

  isRefused(await moveTo('https://git.evil.example/a.git'), 'https://git.evil.example');
  isRefused(await moveTo('https://git.example.com:8443/a.git'), 'https://git.example.com:8443');
  isRefused(await deploy(), 'https://git.example.com:8443');
  assert.deepEqual(tokens(), ['second', 'second']);
  await setToken('third');
  assert.equal((await deploy()).status, 'ready');
  await secrets.remove(owner, agent.id, 'GIT_TOKEN');
  await moveTo('https://public.example.com/a.git');
  assert.deepEqual(tokens(), ['second', 'second', 'third', null]);
});

test('deployments of one agent are worked off one at a time, in their order', async () => {
  const agent = await world.agents.create(world.owner, { name: 'Ordered', gitUrl: url });
  await world.work.idle();
  const gate = Promise.withResolvers<void>();
  world.repos.gate = gate.promise;
  const before = world.repos.fetches.length;
  const settled: string[] = [];
  const refs = ['main', 'next', 'main', 'next'];
  const made = refs.map(async (ref) => {
    const { id } = await world.deployments.create(world.owner, agent.id, { ref });
    settled.push(id);
  });
  const rows = async () => (await world.deployments.list(world.owner, agent.id, page)).items;
  await until(
    'all are pending',
    async () => (await rows()).filter((d) => d.status === 'pending').length === 4,
  );
  // It is begun after its row is there, and reads the agent and its token before.
  await until('one of them is fetched', () => world.repos.fetches.length > before);
  assert.equal(world.repos.fetches.length, before + 1);
  gate.resolve();
  await Promise.all(made);
  assert.equal(await active(agent), (await rows())[0]!.id);
  assert.equal(world.repos.fetches.length, before + 4);
  assert.equal(new Set(settled).size, 4);
});

test('an older deployment that is settled late does not take the place of a newer one', async () => {
  const agent = await hosted();
  const { orgId, id: agentId } = agent;
  const commit = world.repos.commit(agent.id, 'main', { 'AGENTS.md': 'late' });
  const late = await world.stores.deployments.insert({
    id: newId(),
    orgId,
    agentId,
    commit,
    ref: 'main',
    source: 'push',
  });
  await push(agent, { 'AGENTS.md': 'newer' });
  const newer = await active(agent);
  assert.equal((await world.work.settle(late)).status, 'ready');
  assert.equal(await active(agent), newer);
});

test('a deployment that a crash left pending is taken up by the next start', async () => {
  const agent = await hosted();
  const { orgId, id: agentId } = agent;
  const commit = world.repos.commit(agent.id, 'main', { 'AGENTS.md': 'resumed' });
  const { id } = await world.stores.deployments.insert({
    id: newId(),
    orgId,
    agentId,
    commit,
    ref: 'main',
    source: 'push',
  });
  const restarted = createResources(world.db, world.bells, world.repos);
  await restarted.work.resume();
  await restarted.work.idle();
  assert.equal(await active(agent), id);
});

test('an error that is not meant for the caller does not show on the deployment', async () => {
  const agent = await hosted();
  const { keep } = world.repos;
  const failures = [
    Object.assign(new Error('/host/path: EACCES'), { code: 'EACCES', syscall: 'open' }),
    Object.assign(new Error('spawn /host/path ENOENT'), { code: 'ENOENT', syscall: 'spawn git' }),
  ];
  for (const failure of failures) {
    world.repos.keep = async () => {
      throw failure;
    };
    const pushed = push(agent, { 'AGENTS.md': 'x' }).finally(() => (world.repos.keep = keep));
    await assert.rejects(pushed, (error: Error) => {
      return error instanceof RepoError && !error.message.includes('/host/path');
    });
    assert.equal((await newest(agent)).status, 'failed');
  }
  assert.equal(await active(agent), agent.deploymentId);
});

test('a deployment outlives a database that is away for a moment', async () => {
  const agent = await hosted();
  const { deployments } = world.stores;
  const { markReady } = deployments;
  deployments.markReady = async () => {
    throw Object.assign(new Error('write CONNECTION_CLOSED'), { code: 'CONNECTION_CLOSED' });
  };
  const away = world.deployments
    .create(world.owner, agent.id, {})
    .finally(() => (deployments.markReady = markReady));
  await assert.rejects(away, { code: 'unavailable' });
  const { id, status } = await newest(agent);
  assert.equal(status, 'pending');
  await world.work.resume();
  await world.work.idle();
  assert.equal(await active(agent), id);
});

test('a deployment made in a transaction that is rolled back leaves nothing, one that is committed is worked off', async () => {
  const agent = await hosted();
  const rolledBack = world.db.tx(async () => {
    await world.deployments.create(world.owner, agent.id, {});
    throw new Error('rolled back');
  });
  await assert.rejects(rolledBack, /rolled back/);
  assert.equal((await world.deployments.list(world.owner, agent.id, page)).items.length, 1);
  const { id, status } = await world.db.tx(() => world.deployments.create(world.owner, agent.id, {}));
  assert.equal(status, 'pending');
  await world.work.idle();
  assert.equal((await world.deployments.get(world.owner, agent.id, id)).status, 'ready');
});

test('waiting for a deployment ends when it is given up', async () => {
  const gate = Promise.withResolvers<void>();
  world.repos.gate = gate.promise;
  const agent = await world.agents.create(world.owner, { name: 'Slow', gitUrl: url });
  const controller = new AbortController();
  const waiting = world.deployments.waitForDeployment(agent.id, controller.signal);
  controller.abort(new Error('cancelled'));
  await assert.rejects(waiting, /cancelled/);
  gate.resolve();
  await world.work.idle();
});

test('of an agent that is deleted while its repository is fetched no repository is left', async () => {
  const gate = Promise.withResolvers<void>();
  world.repos.gate = gate.promise;
  const before = world.repos.fetches.length;
  const { id } = await world.agents.create(world.owner, { name: 'Deleted', gitUrl: url });
  await until('it is being fetched', () => world.repos.fetches.length > before);
  await world.agents.remove(world.owner, id);
  await until('it was removed', () => world.removed.includes(id));
  await world.repos.remove(id);
  gate.resolve();
  await world.work.idle();
  assert.equal(world.repos.has(id), false);
});
