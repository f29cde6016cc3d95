import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { DomainError } from '../../src/domain/errors.ts';
import { resourceWorld } from '../support/resources.ts';
import type { World } from '../support/resources.ts';

let world: World;
before(async () => {
  world = await resourceWorld();
});
after(() => world.close());

/** mulberry32: a small seeded generator, so that a failure can be repeated. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

for (const seed of [1, 2, 3, 4, 5]) {
  test(`pages neither repeat nor skip rows while others come and go (seed ${seed})`, async () => {
    const random = seeded(seed);
    const agent = await world.agents.create(world.owner, { name: `Paged ${seed}` });
    const list = (cursor: string | null, limit: number) =>
      world.apiKeys.listForAgent(world.owner, agent.id, { limit, cursor });
    const mint = async () => (await world.apiKeys.mintForAgent(world.owner, agent.id, { name: 'k' })).key.id;

    const before: string[] = [];
    const count = 1 + Math.floor(random() * 40);
    for (let i = 0; i < count; i += 1) before.push(await mint());
    const revoked = new Set<string>();
    const seen: string[] = [];
    let cursor: string | null = null;
    do {
      const page = await list(cursor, 1 + Math.floor(random() * 7));
      seen.push(...page.items.map((key) => key.id));
      cursor = page.nextCursor;
      if (random() < 0.7) await mint();
      if (random() < 0.4) {
        const victim = before[Math.floor(random() * before.length)]!;
        if (!revoked.has(victim)) await world.apiKeys.revokeForAgent(world.owner, agent.id, victim);
        revoked.add(victim);
      }
    } while (cursor !== null);

    assert.deepEqual(seen, [...seen].sort().reverse(), 'newest first');
    assert.equal(new Set(seen).size, seen.length, 'nothing twice');
    const missing = before.filter((id) => !seen.includes(id) && !revoked.has(id));
    assert.deepEqual(missing, [], 'nothing skipped');
  });
}

test('a cursor of another list, another parent or another hand is refused', async () => {
  const [one, two] = [
    await world.agents.create(world.owner, { name: 'One' }),
    await world.agents.create(world.owner, { name: 'Two' }),
  ];
  for (let i = 0; i < 2; i += 1) await world.apiKeys.mintForAgent(world.owner, one.id, { name: 'k' });
  const { nextCursor } = await world.apiKeys.listForAgent(world.owner, one.id, { limit: 1, cursor: null });
  assert.ok(nextCursor);
  const refused = { name: 'DomainError', code: 'invalid_cursor' } satisfies Partial<DomainError>;
  const at = (cursor: string) => ({ limit: 1, cursor });
  await assert.rejects(world.apiKeys.listForAgent(world.owner, two.id, at(nextCursor)), refused);
  await assert.rejects(world.secrets.list(world.owner, one.id, at(nextCursor)), refused);
  await assert.rejects(world.agents.list(world.owner, at(nextCursor)), refused);
  await assert.rejects(world.apiKeys.listForAgent(world.owner, one.id, at(`${nextCursor}A`)), refused);
  await assert.rejects(world.apiKeys.listForAgent(world.owner, one.id, at('')), refused);
});

test('a page ends with a null cursor exactly when nothing is left', async () => {
  const agent = await world.agents.create(world.owner, { name: 'Exact' });
  for (let i = 0; i < 4; i += 1) await world.apiKeys.mintForAgent(world.owner, agent.id, { name: 'k' });
  const first = await world.apiKeys.listForAgent(world.owner, agent.id, { limit: 2, cursor: null });
  const second = await world.apiKeys.listForAgent(world.owner, agent.id, {
    limit: 2,
    cursor: first.nextCursor,
  });
  assert.equal(first.items.length, 2);
  assert.equal(second.items.length, 2);
  assert.equal(second.nextCursor, null);
});

test('a limit outside 1 to 100 is refused', async () => {
  for (const limit of [0, 101, -1, 1.5, NaN]) {
    await assert.rejects(world.agents.list(world.owner, { limit, cursor: null }), {
      code: 'invalid_request',
    });
  }
});
