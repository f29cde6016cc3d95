import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import type { Agent } from '../../src/domain/nouns.ts';
import { createKnownAgents } from '../../src/services/known-agents.ts';
import { createResources, resourceWorld } from '../support/resources.ts';
import type { Resources, World } from '../support/resources.ts';

let world: World;
let replica: Resources;
let agent: Agent;
let reads = 0;
let nowMs = 0;
let known: ReturnType<typeof createKnownAgents>;

before(async () => {
  world = await resourceWorld();
  replica = createResources(world.db, world.bells, world.repos);
});
after(async () => {
  await replica.auth.close();
  await world.close();
});
beforeEach(async () => {
  agent = await world.agents.create(world.owner, { name: 'Before' });
  reads = 0;
  const { agents } = replica.stores;
  const counted = { onChange: agents.onChange, get: (id: string) => ((reads += 1), agents.get(id)) };
  known = createKnownAgents({
    db: world.db,
    agents: counted,
    doorbell: world.bells.join(),
    now: () => nowMs,
  });
});

const nameOf = async () => (await known.get(agent.id))?.name ?? null;

test('reads of one agent within a second are one statement, and the next second asks again', async () => {
  for (let count = 0; count < 5; count += 1) assert.equal(await nameOf(), 'Before');
  assert.equal(reads, 1);
  nowMs += 1000;
  assert.equal(await nameOf(), 'Before');
  assert.equal(reads, 2);
});

test('a change shows with the answer that tells of it, and by the doorbell on another replica: name, deployment, end', async () => {
  for (const changer of [replica, world]) {
    assert.equal(await nameOf(), agent.name);
    agent = await changer.agents.update(world.owner, agent.id, { name: `${agent.name}+` });
    assert.equal(await nameOf(), agent.name);
    const commit = world.repos.commit(agent.id, 'main', { 'AGENTS.md': `# ${agent.name}` });
    await changer.deployments.deployPushed(agent.id, { ref: 'main', commit }, () => {});
    const deployed = await known.get(agent.id);
    assert.notEqual(deployed?.deploymentId, agent.deploymentId);
    assert.deepEqual(deployed, await world.stores.agents.get(agent.id));
    await changer.deployments.activate(world.owner, agent.id, agent.deploymentId!);
    assert.equal((await known.get(agent.id))?.deploymentId, agent.deploymentId);
  }
  await world.agents.remove(world.owner, agent.id);
  assert.equal(await nameOf(), null);
});

test('without a ring a change of another replica shows after a second, and at once after a lost connection', async () => {
  await nameOf();
  world.bells.broken = true;
  await world.agents.update(world.owner, agent.id, { name: 'Middle' });
  assert.equal(await nameOf(), 'Before');
  nowMs += 1000;
  assert.equal(await nameOf(), 'Middle');
  await world.agents.update(world.owner, agent.id, { name: 'After' });
  world.bells.broken = false;
  world.bells.reconnect();
  assert.equal(await nameOf(), 'After');
});

test('a read that was under way during a change is not kept', async () => {
  const old = { ...agent };
  const answer = Promise.withResolvers<Agent>();
  const listeners: ((id: string) => void)[] = [];
  const agents = {
    onChange: (listener: (id: string) => void) => void listeners.push(listener),
    get: () => answer.promise,
  };
  const slow = createKnownAgents({ db: world.db, agents, doorbell: world.bells.join(), now: () => nowMs });
  const first = slow.get(agent.id);
  for (const listener of listeners) listener(agent.id);
  answer.resolve(old);
  assert.equal((await first)?.name, 'Before');
  agents.get = async () => ({ ...agent, name: 'After' });
  assert.equal((await slow.get(agent.id))?.name, 'After');
});

test('a transaction sees its own write, and one that is rolled back changes nothing', async () => {
  await nameOf();
  const failed = world.db.tx(async () => {
    await replica.stores.agents.update(agent.id, { name: 'Inside' });
    assert.equal(await nameOf(), 'Inside');
    throw new Error('rolled back');
  });
  await assert.rejects(failed, /rolled back/);
  assert.equal(await nameOf(), 'Before');
});
