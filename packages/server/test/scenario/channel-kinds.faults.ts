import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fixtures } from '../channels/fixtures/all.ts';
import { killAmidKinds, stormOfKinds } from '../support/kind-storm.ts';
import { kindSide, kindWorld } from '../support/kind-world.ts';

test('Twenty messages of every kind, each delivered five times at once, give twenty turns and twenty answers each.', async (t) => {
  const world = await kindWorld();
  t.after(() => world.close());
  const sides = await Promise.all(fixtures.map(kindSide));
  t.after(() => Promise.all(sides.map((side) => side.close())));
  const reports = await stormOfKinds(world, sides, { messages: 20, copies: 5, settleMs: 900_000 });
  for (const { title, ...told } of reports) {
    process.stdout.write(`${JSON.stringify({ title, ...told })}\n`);
    const expected = { messages: 20, turns: 20, answers: 20, repeats: 0, twice: 0, wrong: 0, strange: 0 };
    assert.deepEqual(told, expected, title);
  }
});

/** Looked for; sent again under the same id; looked for by another mark; and never to be asked. */
const chosen = ['github', 'linear', 'email, Postmark', 'telegram'];

test('A service that is killed while each of four providers has an answer of which nobody heard loses no message, and answers none twice.', async (t) => {
  const seed = Number(process.env['BERTH_TEST_SEED'] ?? Math.floor(Math.random() * 1e9));
  process.stdout.write(`seed ${seed}\n`);
  const world = await kindWorld();
  t.after(() => world.close());
  const sides = await Promise.all(
    fixtures.filter(({ title }) => chosen.includes(title)).map((fixture) => kindSide(fixture)),
  );
  t.after(() => Promise.all(sides.map((side) => side.close())));
  const reports = await killAmidKinds(world, sides, { messages: 60, seed, settleMs: 600_000 });
  for (const told of reports) process.stdout.write(`${JSON.stringify(told)}\n`);
  for (const { title, answers, doubtful, repeats, ...told } of reports) {
    const expected = { messages: 60, turns: 60, twice: 0, wrong: 0, strange: 0, lost: 0, missing: 0 };
    assert.deepEqual(told, expected, title);
    if (title === 'telegram') assert.ok(doubtful > 0, 'its answer in doubt is told to be so');
    else assert.deepEqual([answers, doubtful], [60, 0], title);
    if (title === 'linear') assert.ok(repeats > 0, 'its answer in doubt is sent again under its id');
  }
});
