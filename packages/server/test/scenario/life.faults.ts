import assert from 'node:assert/strict';
import { test } from 'node:test';
import { faults, type Fault } from '../support/faults.ts';
import { killRounds } from '../support/kill-rounds.ts';

test('Whatever is killed or stands still, every accepted message has an end, nothing is left behind, and no workspace is lost.', async (t) => {
  const seed = Number(process.env['BERTH_TEST_SEED'] ?? Math.floor(Math.random() * 1e9));
  const kills = Number(process.env['BERTH_TEST_FAULTS'] ?? 200);
  process.stdout.write(`seed ${seed} (BERTH_TEST_SEED repeats it), ${kills} faults (BERTH_TEST_FAULTS)\n`);
  const diskMode = process.env['BERTH_TEST_DISK_MODE'] ?? (seed % 2 === 0 ? 'image' : 'watch');
  process.stdout.write(
    `disks of agents: ${diskMode} (BERTH_TEST_DISK_MODE: image or watch; else by the seed)\n`,
  );
  const isRoot = process.getuid?.() === 0;
  if (!isRoot) process.stdout.write('no disk is filled: only root can give the service one of its own\n');
  const needsRoot: readonly Fault[] = ['volume', 'disk'];
  const turns = kills * 12;
  const report = await killRounds({
    turns,
    kills,
    pauseMs: [0, 500],
    agents: 4,
    conversations: 12,
    seed,
    faults: isRoot ? faults : faults.filter((fault) => !needsRoot.includes(fault)),
    env: { BERTH_DISK_MODE: diskMode },
    say: (line) => process.stdout.write(`${line}\n`),
  });
  t.diagnostic(JSON.stringify(report));
  process.stdout.write(`${JSON.stringify(report)}\n`);
  assert.equal(report.accepted, turns);
  assert.equal(
    Object.values(report.struck).reduce((sum, count) => sum + count, 0),
    kills,
  );
  assert.ok(
    report.amidWork >= kills * 0.8,
    `of ${kills} faults ${report.amidWork} came while a turn was under way`,
  );
});
