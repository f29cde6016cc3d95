import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RunPlaces, sharesOf, type Owner } from '../../src/domain/run-places.ts';
import { seeded } from '../support/scripts.ts';

test('an agent has half of the places at most, an organisation nine tenths, and with two places one is always left', () => {
  assert.deepEqual(sharesOf(1000), { agent: 500, org: 900 });
  assert.deepEqual(sharesOf(1), { agent: 1, org: 1 });
  for (let places = 2; places < 300; places += 1) {
    const { agent, org } = sharesOf(places);
    assert.ok(
      agent >= 1 && agent <= places / 2 && agent <= org && org < places,
      `${places}: ${agent}, ${org}`,
    );
  }
});

interface Waiting extends Owner {
  id: number;
}

/** What `waiting_lanes` does. */
function look(queue: Waiting[], places: RunPlaces, max: number): Waiting[] {
  const { agentIds, orgIds } = places.full;
  const may = queue.filter((one) => !agentIds.includes(one.agentId) && !orgIds.includes(one.orgId));
  const each = Math.max(1, Math.floor(max / Math.max(1, new Set(may.map((one) => one.agentId)).size)));
  const seen = new Map<string, number>();
  return may.filter(({ agentId }) => {
    seen.set(agentId, (seen.get(agentId) ?? 0) + 1);
    return seen.get(agentId)! <= each;
  });
}

test('whatever waits, nobody has more places than its share, and who comes anew begins with the next claim while one is free', () => {
  const seed = Number(process.env['BERTH_TEST_SEED'] ?? Math.floor(Math.random() * 2 ** 31));
  console.log(`seed ${seed}`);
  const draw = seeded(seed);
  const under = (n: number) => Math.floor(draw() * n);
  for (let round = 0; round < 60; round += 1) {
    const size = 1 + under(30);
    const shares = sharesOf(size);
    const places = new RunPlaces(size);
    const orgs = 1 + under(4);
    const agents = Array.from({ length: 1 + under(8) }, (_, n) => ({
      orgId: `o${under(orgs)}`,
      agentId: `a${n}`,
    }));
    const queue: Waiting[] = [];
    const running: Waiting[] = [];
    let id = 0;
    const come = (owner: Owner, count: number) => {
      for (let n = 0; n < count; n += 1) queue.push({ ...owner, id: (id += 1) });
    };
    const claim = () => {
      const max = Math.min(64, places.free);
      const picked = places.inTurns(look(queue, places, max), max);
      for (const one of picked) {
        queue.splice(queue.indexOf(one), 1);
        places.take(one);
        running.push(one);
      }
      return picked;
    };
    const count = (key: keyof Owner, value: string) => running.filter((one) => one[key] === value).length;
    for (let step = 0; step < 40; step += 1) {
      come(agents[under(agents.length)]!, under(10) === 0 ? under(500) : under(3));
      for (let ends = under(4); ends > 0 && running.length > 0; ends -= 1)
        places.leave(running.splice(under(running.length), 1)[0]!);
      const newcomer = { orgId: `new ${step}`, agentId: `new ${step}` };
      come(newcomer, 1);
      const had = new Set(running.map((one) => one.orgId));
      const wereFree = places.free;
      const picked = claim();
      const where = `seed ${seed}, round ${round}, step ${step}`;
      if (wereFree > 0 && !picked.some((one) => one.agentId === newcomer.agentId)) {
        // Every place went to somebody else who had none either.
        assert.equal(picked.length, wereFree, where);
        assert.equal(new Set(picked.map((one) => one.orgId)).size, wereFree, where);
        assert.ok(!picked.some((one) => had.has(one.orgId)), where);
      }
      while (claim().length > 0);
      assert.equal(places.free, size - running.length);
      assert.ok(places.free >= 0, where);
      for (const { orgId, agentId } of running) {
        assert.ok(count('agentId', agentId) <= shares.agent, where);
        assert.ok(count('orgId', orgId) <= shares.org, where);
      }
      // None of its places stays empty while somebody who has room waits, and of one agent the oldest goes first.
      assert.ok(!queue.some((one) => places.hasRoom(one, 1)), where);
      for (const one of picked)
        assert.ok(!queue.some((other) => other.agentId === one.agentId && other.id < one.id), where);
    }
    for (const one of running) places.leave(one);
    assert.equal(places.free, size);
    assert.ok(places.hasRoom(agents[0]!, shares.agent) && !places.hasRoom(agents[0]!, shares.agent + 1));
  }
});

test('free places go to the organisation that has the fewest, and of it to the agent that has the fewest', () => {
  const places = new RunPlaces(20);
  const wait = (orgId: string, agentId: string, count: number) =>
    Array.from({ length: count }, () => ({ orgId, agentId }));
  for (const one of wait('a', 'a1', 4)) places.take(one);
  const waiting = [...wait('a', 'a1', 50), ...wait('a', 'a2', 50), ...wait('b', 'b1', 50)];
  const picked = places.inTurns(waiting, 7).map((one) => one.agentId);
  assert.deepEqual(picked, ['b1', 'b1', 'b1', 'b1', 'a2', 'b1', 'a2']);
});

test('of woken runs whose owner is not known, so many may begin as fit into the share of whoever has the most', () => {
  const places = new RunPlaces(10);
  const one = { orgId: 'a', agentId: 'a1' };
  for (let n = 0; n < 3; n += 1) places.take(one);
  assert.deepEqual(
    [1, 2, 3].map((count) => places.hasRoomForAny(count)),
    [true, true, false],
  );
  places.take(one);
  // As many as there are, of turns of an earlier process.
  for (let n = 0; n < 7; n += 1) places.take(one);
  assert.deepEqual([places.free, places.hasRoomForAny(1), places.hasRoom(one, 1)], [-1, false, false]);
});
