import assert from 'node:assert/strict';
import { test } from 'node:test';
import { faults } from '../support/faults.ts';
import { killRounds } from '../support/kill-rounds.ts';

test('Whatever is killed or stands still, every accepted message has an end, nothing is left behind, and no workspace is lost.', async (t) => {
  const seed = Number(process.env['BERTH_TEST_SEED'] ?? Math.floor(Math.random() * 1e9));
  const kills = Number(process.env['BERTH_TEST_FAULTS'] ?? 200);
  process.stdout.write(`seed ${seed} (BERTH_TEST_SEED repeats it), ${kills} faults (BERTH_TEST_FAULTS)\n`);
  // So many that there is work under way at nearly every fault.
  const turns = kills * 8;
  const report = await killRounds({
    turns,
    kills,
    pauseMs: [50, 1_500],
    agents: 4,
    conversations: 12,
    seed,
    faults,
    say: (line) => process.stdout.write(`${line}\n`),
  });
  t.diagnostic(JSON.stringify(report));
  process.stdout.write(`${JSON.stringify(report)}\n`);
  assert.equal(report.accepted, turns);
});
