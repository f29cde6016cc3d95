import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { killAmidDeliveries, slackWorld, storm, type SlackWorld } from '../support/slack-storm.ts';

let world: SlackWorld;
before(async () => {
  world = await slackWorld();
});
after(() => world.close());

test('Sixty Slack messages, each delivered ten times at once, give sixty turns and sixty answers.', async () => {
  const threads = Array.from({ length: 60 }, (_, index) => `1800000001.${String(index).padStart(6, '0')}`);
  const { turns, runs, answers, twice } = await storm(world, threads, 240_000);
  assert.deepEqual({ turns, runs, answers, twice }, { turns: 60, runs: 60, answers: 60, twice: 0 });
});

test('A service that is killed amid deliveries loses none that it acknowledged, and answers none twice.', async (t) => {
  const before = await world.counts();
  const threads = Array.from({ length: 60 }, (_, index) => `1800000002.${String(index).padStart(6, '0')}`);
  const told = await killAmidDeliveries(world, threads, 1, 240_000);
  t.diagnostic(JSON.stringify(told));
  assert.equal(told.acknowledgedAnswered, told.acknowledged);
  assert.ok(told.acknowledged > 0);
  assert.deepEqual(
    { turns: told.turns - before.turns, answers: told.answers, twice: told.twice },
    { turns: 60, answers: 60, twice: 0 },
  );
});
