import assert from 'node:assert/strict';
import { after, before, test, type TestContext } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { openRemovals } from '../../src/open-removals.ts';
import { buryNodes, touchNode } from '../../src/store/nodes.ts';
import { insertSandbox, markSandboxEnded, releaseAgent } from '../../src/store/sandbox-rows.ts';
import { silentLog } from '../support/log.ts';
import { resourceWorld, type World } from '../support/resources.ts';
import { until } from '../support/until.ts';

const LEASE_MS = 60_000;

let world: World;
before(async () => void (world = await resourceWorld()));
after(() => world.close());

/** A process of the service, as far as it removes what is left of agents. */
async function replica(t: TestContext, remove: (agentId: string) => Promise<void>, limitMs?: number) {
  const nodeId = newId();
  await touchNode(world.db, nodeId, LEASE_MS);
  const removals = openRemovals({
    ...{ agents: world.stores.agents, nodeId, doorbell: world.bells.join(), remove, log: silentLog },
    pauseMs: { first: 1, longest: 4 },
    ...(limitMs !== undefined && { limitMs }),
  });
  t.after(() => removals.close());
  removals.worker.start();
  return { nodeId, ...removals };
}

/** Deleted by somebody who has died since. */
async function deleted(t: TestContext, nodeId: string | null = null): Promise<string> {
  const { id } = await world.agents.create(world.owner, { name: t.name.slice(0, 50) });
  await world.db.sql`update agents set deleted_at = now(), node_id = ${nodeId} where id = ${id}`;
  return id;
}

const isPurged = async (id: string) =>
  (await world.db.sql`select 1 from agents where id = ${id} and purged_at is not null`).length === 1;

async function die({ nodeId, close }: { nodeId: string; close(): Promise<void> }): Promise<void> {
  await close();
  await world.db.sql`update nodes set seen_at = now() - interval '1 hour' where id = ${nodeId}`;
  await buryNodes(world.db, newId(), LEASE_MS);
}

test('a removal that fails is tried again while the service lives, until nothing is left', async (t) => {
  const id = await deleted(t);
  let tries = 0;
  const { worker } = await replica(t, async () => {
    if (++tries < 5) throw new Error('The disk is full.');
  });
  await until('it is removed', async () => {
    worker.wake();
    return isPurged(id);
  });
  assert.equal(tries, 5);
});

test('a removal that never ends is tried again, and keeps no other from being done', async (t) => {
  const stuck = await deleted(t);
  const others: string[] = [];
  for (let n = 0; n < 20; n += 1) others.push(await deleted(t));
  let tries = 0;
  const never = new Promise<void>(() => {});
  const { worker } = await replica(t, (id) => (id === stuck && ++tries < 3 ? never : Promise.resolve()), 20);
  for (const id of [...others, stuck])
    await until('it is removed', async () => {
      worker.wake();
      return isPurged(id);
    });
  assert.equal(tries, 3);
});

test('of several replicas the one that has the sandbox of a deleted agent removes it, also when that has ended', async (t) => {
  const done: string[] = [];
  const gate = Promise.withResolvers<void>();
  const one = await replica(t, async () => void done.push('one'));
  const two = await replica(t, async (id) => {
    await releaseAgent(world.db, two.nodeId, id);
    await gate.promise;
    done.push('two');
  });
  const id = await deleted(t, two.nodeId);
  two.worker.wake();
  for (let looks = 0; looks < 3; looks += 1)
    assert.deepEqual(await world.stores.agents.claimRemovals(one.nodeId, [], 10), []);
  gate.resolve();
  await until('it is removed', () => isPurged(id));
  assert.deepEqual(done, ['two']);
});

test('what the replica that had a deleted agent left, another removes as soon as that one counts as dead', async (t) => {
  const tried: string[] = [];
  const one = await replica(t, async (id) => {
    tried.push(id);
    throw new Error('The disk is broken.');
  });
  const id = await deleted(t, one.nodeId);
  await until('the first has tried', () => {
    one.worker.wake();
    return tried.includes(id);
  });
  const two = await replica(t, async () => {});
  two.worker.wake();
  assert.deepEqual(
    await world.stores.agents.claimRemovals(two.nodeId, [], 10),
    [],
    'it is still the first one’s',
  );
  await die(one);
  await until('the second has removed it', async () => {
    two.worker.wake();
    return isPurged(id);
  });
});

test('an agent that is no replica’s is not removed while a living one still has a sandbox of it', async (t) => {
  const two = await replica(t, async () => {});
  const { id: agentId, deploymentId } = await world.agents.create(world.owner, { name: 'Started by hand' });
  const sandbox = { id: newId(), agentId, orgId: world.orgId, nodeId: two.nodeId, driver: 'none' };
  const row = { ...sandbox, deploymentId: deploymentId!, model: 'demo/guide', generation: 0, tokenHash: 'x' };
  assert.equal(await insertSandbox(world.db, row), true);
  await two.close();
  const one = await replica(t, async () => {});
  await world.agents.remove(world.owner, agentId);
  assert.deepEqual(await world.stores.agents.claimRemovals(one.nodeId, [], 10), []);
  await markSandboxEnded(world.db, row.id, 'stopped', 'Its agent was deleted.');
  await until('it is removed', async () => {
    one.worker.wake();
    return isPurged(agentId);
  });
});

test('a deleted agent of one living replica is removed by the other that has its sandbox', async (t) => {
  const done: string[] = [];
  const one = await replica(t, async () => void done.push('one'));
  const { id: agentId, deploymentId } = await world.agents.create(world.owner, { name: 'Started elsewhere' });
  const sandboxId = newId();
  const two = await replica(t, async () => {
    await markSandboxEnded(world.db, sandboxId, 'stopped', 'Its agent was deleted.');
    for (let looks = 0; looks < 3; looks += 1)
      assert.deepEqual(await world.stores.agents.claimRemovals(one.nodeId, [], 10), []);
    done.push('two');
  });
  const sandbox = { id: sandboxId, agentId, orgId: world.orgId, nodeId: two.nodeId, driver: 'none' };
  const row = { ...sandbox, deploymentId: deploymentId!, model: 'demo/guide', generation: 0, tokenHash: 'x' };
  assert.equal(await insertSandbox(world.db, row), true);
  await world.db.sql`update agents set node_id = ${one.nodeId} where id = ${agentId}`;
  await world.agents.remove(world.owner, agentId);
  await until('it is removed', () => isPurged(agentId));
  assert.deepEqual(done, ['two']);
});

test('a sandbox that is to be written down while its agent is being deleted is written down before, or not at all', async () => {
  const { id: agentId, deploymentId } = await world.agents.create(world.owner, { name: 'Race' });
  const sandbox = { id: newId(), agentId, orgId: world.orgId, nodeId: newId(), driver: 'none' };
  const row = { ...sandbox, deploymentId: deploymentId!, model: 'demo/guide', generation: 0, tokenHash: 'x' };
  let writing: Promise<boolean> | null = null;
  await world.db.tx(async () => {
    await world.stores.agents.lock(agentId);
    await world.stores.agents.markDeleted(agentId);
    writing = world.db.outside(() => insertSandbox(world.db, row));
    const waits = () =>
      world.db.outside(
        () => world.db.sql`select 1 from pg_stat_activity where query like '%insert into sandboxes%'
          and wait_event_type = 'Lock' and datname = current_database()`,
      );
    await until('it waits, or has not', async () => {
      const hasEnded = await Promise.race([writing!.then(() => true), waits().then(() => false)]);
      return hasEnded || (await waits()).length === 1;
    });
  });
  assert.equal(await writing, false);
});
