import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { RunPlaces, sharesOf } from '../../src/domain/run-places.ts';
import type { Principal } from '../../src/domain/nouns.ts';
import { createAgentStore } from '../../src/store/agents.ts';
import { createDeploymentStore } from '../../src/store/deployments.ts';
import { createOrgStore } from '../../src/store/orgs.ts';
import { defaultManifest } from '../../src/domain/manifest.ts';
import { echo, runWorld, send, type RunWorld } from '../support/run-world.ts';
import { gate, seeded } from '../support/scripts.ts';
import { until } from '../support/until.ts';

/** An agent of another organisation, with a principal of it. */
async function stranger({ db }: RunWorld, orgId = newId()): Promise<{ agentId: string; owner: Principal }> {
  await createOrgStore(db).insert({ id: orgId, name: 'Theirs' });
  const agentId = newId();
  await createAgentStore(db).insert({
    ...{ id: agentId, orgId, name: 'B', description: '', model: 'demo/guide', externalGitUrl: null },
  });
  const id = newId();
  const deployments = createDeploymentStore(db);
  await deployments.insert({ id, orgId, agentId, commit: '0'.repeat(40), ref: 'main', source: 'push' });
  await deployments.markReady(id, { ...defaultManifest });
  await deployments.activate(agentId, id);
  return { agentId, owner: { keyId: newId(), orgId, scope: 'edit', binding: 'org-bound', agentId: null } };
}

/** Turns that say `hold` wait until they are let go. */
function held() {
  const door = gate();
  const script: typeof echo = async (turn, sandbox) => {
    if (turn.content.startsWith('hold')) await door.opened;
    return echo(turn, sandbox);
  };
  return { script, release: () => door.open() };
}

const running = async ({ db }: RunWorld, key: 'agent_id' | 'org_id', id: string): Promise<number> => {
  const [row] = await db.sql<{ count: number }[]>`
    select count(*)::int as count from lanes where state = 'running' and ${db.sql(key)} = ${id}`;
  return row!.count;
};

for (const looks of ['with the acceptance and by wake-ups', 'by a look'] as const) {
  test(`one agent's backlog has half of a node's places and one organisation's nine tenths, ${looks}; others run meanwhile`, async (t) => {
    const world = await runWorld();
    t.after(() => world.close());
    const { agentId, owner } = world;
    const { script, release } = held();
    const other = await world.addAgent();
    const third = await world.addAgent();
    const foreign = await stranger(world);
    const overrides = { maxConcurrentRuns: 4 };
    const byLook = looks === 'by a look';
    const accepts = await world.replica({ start: !byLook, script, overrides });
    const { runs } = accepts;
    const sent: Awaited<ReturnType<typeof runs.send>>[] = [];
    for (let n = 0; n < 12; n += 1) sent.push(await runs.send(owner, send(`hold ${n}`, { agentId })));
    const same = sent[0]!.conversationId;
    sent.push(await runs.send(owner, send('hold after', { agentId, conversationId: same })));
    if (byLook) await accepts.runtime.start();
    await until('it has its share', async () => (await running(world, 'agent_id', agentId)) === 2);

    // The other agents of the same organisation have the rest of its share, and who is of another one the last place.
    const heldByOther = await runs.send(owner, send('hold other', { agentId: other }));
    await until('it runs', async () => (await running(world, 'agent_id', other)) === 1);
    const waits = await runs.send(owner, send('third', { agentId: third }));
    for (const word of ['hello', 'again']) {
      const { runId } = await runs.send(foreign.owner, send(word, foreign));
      const { run, message } = await runs.outcome(foreign.owner, runId, 60_000);
      assert.deepEqual([run.status, message?.content], ['completed', word]);
    }
    assert.equal((await runs.get(owner, waits.runId)).status, 'queued');
    assert.equal(await running(world, 'agent_id', agentId), 2);
    assert.equal(await running(world, 'org_id', owner.orgId), 3);

    release();
    for (const { runId } of [...sent, heldByOther, waits])
      assert.equal((await runs.outcome(owner, runId, 60_000)).run.status, 'completed');
    const begun = await world.db.sql<{ run_id: string }[]>`
      select run_id from events where type = 'run.started' and conversation_id = ${same} order by seq`;
    assert.deepEqual(
      begun.map((row) => row.run_id),
      [sent[0]!.runId, sent.at(-1)!.runId],
    );
  });
}

test('of agents with backlogs of any size, a claim takes no more than the shares, and who comes anew begins with the next one', async (t) => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  console.log(`seed ${seed}`);
  const draw = seeded(seed);
  const under = (n: number) => Math.floor(draw() * n);
  const world = await runWorld();
  t.after(() => world.close());
  const { runs, life } = await world.replica({ start: false });
  const elsewhere = await world.replica({ start: false });
  const strangers = await Promise.all([stranger(world), stranger(world)]);
  const agents = [
    { agentId: world.agentId, owner: world.owner },
    { agentId: await world.addAgent(), owner: world.owner },
    ...strangers,
  ];
  const size = 6 + under(8);
  const shares = sharesOf(size);
  const places = new RunPlaces(size);
  for (const { agentId, owner } of agents)
    for (let n = under(12); n > 0; n -= 1) await runs.send(owner, send('backlog', { agentId }));
  for (let n = 0; n < 20; n += 1) await runs.send(world.owner, send('flood', { agentId: world.agentId }));
  const begin = async () => {
    const claims = await life.claim(null, places.free, places);
    for (const claim of claims) places.take(claim);
    return claims;
  };
  while ((await begin()).length > 0);
  for (const { agentId, owner } of agents) {
    assert.ok((await running(world, 'agent_id', agentId)) <= shares.agent, `seed ${seed}`);
    assert.ok((await running(world, 'org_id', owner.orgId)) <= shares.org, `seed ${seed}`);
  }
  assert.ok((await running(world, 'agent_id', world.agentId)) >= 1);
  // A place that was free all along, or becomes free, is the newcomer's, not the backlog's.
  if (places.free === 0) places.leave({ agentId: world.agentId, orgId: world.owner.orgId });
  const newcomer = await stranger(world);
  const { runId } = await runs.send(newcomer.owner, send('first', newcomer));
  const next = await begin();
  assert.ok(
    next.some((claim) => claim.runId === runId),
    `seed ${seed}`,
  );
  // The shares are of each node's places: what is at home here is not counted there, nor looked for.
  assert.deepEqual(await elsewhere.life.claim(null, 10, new RunPlaces(size)), []);
});
