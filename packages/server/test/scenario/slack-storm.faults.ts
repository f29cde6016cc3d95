import assert from 'node:assert/strict';
import { test } from 'node:test';
import { killAmidDeliveries, slackWorld, storm } from '../support/slack-storm.ts';
import { until } from '../support/until.ts';

/** What the demonstration model has said when it has counted slowly. */
const counted = Array.from({ length: 12 }, (_, index) => index + 1).join(' ');

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

test('Two hundred Slack messages, each delivered ten times at once, give two hundred answers that grow, each whole in the end.', async (t) => {
  const world = await slackWorld({ streaming: true, text: () => 'slow: 12 200' });
  t.after(() => world.close());
  const threads = threadsOf(200);
  const told = await storm(world, threads, 280_000);
  const { messages } = world.slack;
  const grown = messages.filter(({ updates }) => updates > 0).length;
  process.stdout.write(`${JSON.stringify({ ...told, grown })}\n`);
  const { turns, runs, answers, twice } = told;
  assert.deepEqual({ turns, runs, answers, twice }, { turns: 200, runs: 200, answers: 200, twice: 0 });
  for (const { text, isGrowing } of messages) assert.deepEqual([text, isGrowing], [counted, false]);
  assert.ok(grown > 0);
});

test('A service that is killed while an answer grows makes that answer whole, in one message, and counts nothing against it.', async (t) => {
  const world = await slackWorld({ streaming: true, text: () => 'slow: 12 500' });
  t.after(() => world.close());
  const thread = threadsOf(1)[0]!;
  await world.deliverUntilTaken(thread, null);
  await until('the answer grows', () => (world.slack.in(thread)[0]?.updates ?? 0) > 0);
  await world.service.kill9();
  const [grown] = world.slack.in(thread);
  assert.equal(grown!.isGrowing, true);
  assert.notEqual(grown!.text, counted);
  await world.service.restart();
  await world.settled(120_000);
  assert.deepEqual(
    world.slack.in(thread).map(({ ts, text, isGrowing }) => [ts, text, isGrowing]),
    [[grown!.ts, counted, false]],
  );
  const { turns, runs, cutOffs } = await world.counts();
  assert.deepEqual({ turns, runs, cutOffs }, { turns: 1, runs: 1, cutOffs: 0 });
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
