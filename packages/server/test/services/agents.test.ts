import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { RepoError } from '../../src/domain/ports/repos.ts';
import { createAgentStore } from '../../src/store/agents.ts';
import { resourceWorld } from '../support/resources.ts';
import type { World } from '../support/resources.ts';
import { until } from '../support/until.ts';

const page = { limit: 100, cursor: null };
const url = 'https://example.com/team/agent.git';

let world: World;
before(async () => {
  world = await resourceWorld();
  world.repos.remotes.set(url, new Map([['main', { 'AGENTS.md': '# External' }]]));
});
after(() => world.close());

const generation = async (id: string) =>
  (await world.db.sql<{ generation: number }[]>`select generation from agents where id = ${id}`)[0]!
    .generation;
const newest = async (agentId: string) =>
  (await world.deployments.list(world.owner, agentId, page)).items[0]!;

test('an agent without a gitUrl has a repository and an active deployment when it is answered', async () => {
  const agent = await world.agents.create(world.owner, { name: ' Plain ' });
  assert.equal(agent.name, 'Plain');
  assert.equal(agent.description, '');
  assert.equal(agent.model, 'demo/guide');
  assert.equal(agent.externalGitUrl, null);
  const { id, commit, status } = await newest(agent.id);
  assert.deepEqual([id, status], [agent.deploymentId, 'ready']);
  assert.match((await world.repos.readFile(agent.id, commit!, 'AGENTS.md', 10_000))!.toString(), /Plain/);
  assert.ok(world.repos.kept.has(`${agent.id}:${commit}`));
});

test('an agent with a gitUrl is answered at once and deployed after the commit', async () => {
  const gate = Promise.withResolvers<void>();
  world.repos.gate = gate.promise;
  const agent = await world.agents.create(world.owner, { name: 'External', gitUrl: url });
  assert.equal(agent.deploymentId, null);
  assert.equal((await newest(agent.id)).status, 'pending');
  const waiting = world.deployments.waitForDeployment(agent.id, AbortSignal.timeout(10_000));
  gate.resolve();
  const active = await waiting;
  assert.equal((await world.agents.get(world.owner, agent.id)).deploymentId, active?.id);
  assert.deepEqual((await newest(agent.id)).ref, 'main');
});

test('an agent whose repository cannot be fetched has a failed deployment, and nothing waits for it', async () => {
  const agent = await world.agents.create(world.owner, {
    name: 'Lost',
    gitUrl: 'https://example.com/none.git',
  });
  const active = await world.deployments.waitForDeployment(agent.id, AbortSignal.timeout(10_000));
  assert.equal(active, null);
  const { status, error } = await newest(agent.id);
  assert.equal(status, 'failed');
  assert.match(error!, /There is no default branch at https:\/\/example\.com\/none\.git/);
});

test('a bad field is refused by name and leaves no agent behind', async () => {
  const bad: [object, string][] = [
    [{ name: '' }, 'name'],
    [{ name: '   ' }, 'name'],
    [{ name: 'x'.repeat(101) }, 'name'],
    [{ name: 'a\nb' }, 'name'],
    [{ name: 'a\u0000' }, 'name'],
    [{ name: '\ud800' }, 'name'],
    [{ description: 'x'.repeat(2001) }, 'description'],
    [{ description: 'a\u0000' }, 'description'],
    [{ model: 'gpt' }, 'model'],
    [{ model: 'a/' }, 'model'],
    [{ gitUrl: '' }, 'gitUrl'],
    [{ gitUrl: 'http://example.com/a.git' }, 'gitUrl'],
    [{ gitUrl: 'file:///etc' }, 'gitUrl'],
    [{ gitUrl: 'ext::sh -c id' }, 'gitUrl'],
    [{ gitUrl: '--upload-pack=id' }, 'gitUrl'],
    [{ gitUrl: 'https:example.com' }, 'gitUrl'],
    [{ gitUrl: 'https://exa\nmple.com/a' }, 'gitUrl'],
    [{ gitUrl: 'https://user:pass@example.com/a.git' }, 'gitUrl'],
    [{ gitUrl: 'https://token@example.com/a.git' }, 'gitUrl'],
    [{ gitUrl: 'https://@example.com/a.git' }, 'gitUrl'],
    [{ gitUrl: `https://example.com/${'a'.repeat(2000)}` }, 'gitUrl'],
  ];
  const count = async () => Number((await world.db.sql`select count(*) as n from agents`)[0]!.n);
  const before = await count();
  for (const [input, path] of bad) {
    await assert.rejects(
      world.agents.create(world.owner, { name: 'Bad', ...input }),
      (error: { code?: string; details?: { path: string }[] }) =>
        error.code === 'invalid_request' && error.details?.[0]?.path === path,
      JSON.stringify(input),
    );
  }
  assert.equal(await count(), before);
  const widest = { name: '🙂'.repeat(100), description: '🙂'.repeat(2000), model: 'a/b/c:d@1' };
  const made = await world.agents.create(world.owner, widest);
  assert.deepEqual([made.name, made.description, made.model], Object.values(widest));
});

test('only what changes is written, and only a new model replaces the sandbox', async () => {
  const agent = await world.agents.create(world.owner, { name: 'Patched' });
  const start = await generation(agent.id);
  const same = await world.agents.update(world.owner, agent.id, {
    name: agent.name,
    description: agent.description,
    model: agent.model,
    gitUrl: `http://localhost:8080/git/${agent.id}.git`,
  });
  assert.deepEqual(same, agent);
  const named = await world.agents.update(world.owner, agent.id, { name: 'Renamed', description: 'Text' });
  assert.deepEqual([named.name, named.description, named.model], ['Renamed', 'Text', agent.model]);
  assert.ok(named.updatedAt > agent.updatedAt);
  assert.equal(await generation(agent.id), start);
  await world.agents.update(world.owner, agent.id, { model: 'openai/gpt-5' });
  assert.equal(await generation(agent.id), start + 1);
  assert.equal((await world.agents.get(world.owner, agent.id)).description, 'Text');
});

test('a gitUrl given later makes an agent external, and its own address makes it hosted again', async () => {
  const agent = await world.agents.create(world.owner, { name: 'Moved' });
  await world.agents.update(world.owner, agent.id, { gitUrl: url });
  await world.work.idle();
  const fetched = await newest(agent.id);
  assert.deepEqual([fetched.source, fetched.status], ['fetch', 'ready']);
  assert.equal((await world.agents.get(world.owner, agent.id)).deploymentId, fetched.id);
  await assert.rejects(
    world.deployments.deployPushed(agent.id, { ref: 'main', commit: fetched.commit! }, () => {}),
    RepoError,
  );
  const back = await world.agents.update(world.owner, agent.id, {
    gitUrl: `http://localhost:8080/git/${agent.id}.git`,
  });
  assert.equal(back.externalGitUrl, null);
  assert.equal(back.deploymentId, fetched.id);
  await world.deployments.deployPushed(agent.id, { ref: 'main', commit: fetched.commit! }, () => {});
});

test('a deleted agent is gone from every answer, with its keys and secrets, and the host is told', async () => {
  const agent = await world.agents.create(world.owner, { name: 'Deleted' });
  await world.secrets.put(world.owner, agent.id, 'K', { value: 'v' });
  const terms = { period: 'day', limitMicros: 1n, onExceeded: 'reject' } as const;
  await world.budgets.put(world.owner, agent.id, terms);
  await world.agents.remove(world.owner, agent.id);
  await assert.rejects(world.budgets.put(world.owner, agent.id, terms), { code: 'not_found' });
  assert.equal((await world.db.sql`select 1 from budgets where owner_id = ${agent.id}`).length, 0);
  await assert.rejects(world.agents.get(world.owner, agent.id), { code: 'not_found' });
  await assert.rejects(world.agents.remove(world.owner, agent.id), { code: 'not_found' });
  const { items } = await world.agents.list(world.owner, page);
  assert.ok(!items.some(({ id }) => id === agent.id));
  assert.equal((await world.db.sql`select key from secrets where agent_id = ${agent.id}`).length, 0);
  const left = () => world.db.sql`select 1 from agents where id = ${agent.id} and purged_at is null`;
  await until('the host has removed it', async () => (await left()).length === 0);
  await world.removals.runDue();
  assert.equal(world.removed.filter((id) => id === agent.id).length, 1, 'once is enough when it ended');
});

test('reads of one tick are one statement, and each sees what was committed before it asked', async () => {
  const agents = await Promise.all(
    Array.from({ length: 20 }, (_, i) => world.agents.create(world.owner, { name: `Batch ${i}` })),
  );
  let statements = 0;
  const counted = Object.create(world.db) as typeof world.db;
  Object.defineProperty(counted, 'sql', {
    get: () => {
      statements += 1;
      return world.db.sql;
    },
  });
  const store = createAgentStore(counted);

  const found = await Promise.all([...agents, ...agents].map(({ id }) => store.get(id)));
  assert.deepEqual(
    found.map((agent) => agent?.name),
    [...agents, ...agents].map(({ name }) => name),
  );
  assert.equal(statements, 1);
  const { id } = agents[0]!;
  const slow = store.get(id);
  await world.agents.update(world.owner, id, { name: 'Newer' });
  assert.equal((await store.get(id))?.name, 'Newer');
  await slow;
  await world.db.tx(async () => {
    await store.update(id, { name: 'Inside' });
    assert.equal((await store.get(id))?.name, 'Inside', 'a transaction sees its own writes');
  });
});
