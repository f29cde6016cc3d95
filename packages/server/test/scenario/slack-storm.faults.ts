import assert from 'node:assert/strict';
import { test } from 'node:test';
import { killAmidDeliveries, slackWorld, storm } from '../support/slack-storm.ts';

const threadsOf = (count: number) =>
  Array.from({ length: count }, (_, index) => `1800000003.${String(index).padStart(6, '0')}`);

test('A thousand Slack messages, each delivered ten times at once, give a thousand turns and a thousand answers.', async (t) => {
  const world = await slackWorld();
  t.after(() => world.close());
  const told = await storm(world, threadsOf(1_000), 600_000);
  process.stdout.write(`${JSON.stringify(told)}\n`);
  const { turns, runs, answers, twice } = told;
  assert.deepEqual({ turns, runs, answers, twice }, { turns: 1_000, runs: 1_000, answers: 1_000, twice: 0 });
});

test('A service that is killed four times amid 2,000 deliveries loses none that it acknowledged, and answers none twice.', async (t) => {
  const world = await slackWorld();
  t.after(() => world.close());
  const told = await killAmidDeliveries(world, threadsOf(2_000), 4, 600_000);
  process.stdout.write(`${JSON.stringify(told)}\n`);
  assert.equal(told.acknowledgedAnswered, told.acknowledged);
  assert.ok(told.acknowledged > 0);
  const { turns, answers, twice } = told;
  assert.deepEqual({ turns, answers, twice }, { turns: 2_000, answers: 2_000, twice: 0 });
});
