import assert from 'node:assert/strict';
import { test } from 'node:test';
import { killRounds } from '../support/kill-rounds.ts';

test('Two hundred turns survive thirty kills of the service.', async (t) => {
  const seed = Number(process.env['BERTH_TEST_SEED'] ?? Math.floor(Math.random() * 1e9));
  process.stdout.write(`seed ${seed} (BERTH_TEST_SEED repeats it)\n`);
  const report = await killRounds({
    turns: 200,
    kills: 30,
    // Short, so that most kills come while turns are sent or run.
    pauseMs: [10, 250],
    agents: 3,
    // Few, so that turns are there to the end.
    conversations: 6,
    seed,
    say: (line) => process.stdout.write(`${line}\n`),
  });
  t.diagnostic(JSON.stringify(report));
  process.stdout.write(`${JSON.stringify(report)}\n`);
  assert.equal(report.accepted, 200);
  assert.ok(report.retried > 0, 'some turn was cut off by a kill');
  assert.ok(report.amidWork >= 20, `of thirty kills ${report.amidWork} came while a turn was under way`);
});
