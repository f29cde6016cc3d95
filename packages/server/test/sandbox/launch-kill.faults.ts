import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { HELPER_VARIABLE, missingHelper, PERL } from '../../src/sandbox/helper.ts';
import { markedProcesses, statFields, tryKill } from '../../src/sandbox/processes.ts';
import { hostProcesses } from '../support/scenario.ts';
import { seeded } from '../support/scripts.ts';
import { inTime } from '../support/until.ts';
import { fixture } from './fixture.ts';

const ROUNDS = 60;

/** Longer than a launch takes on a quiet machine. */
const LATEST_MS = 40;

test(
  'whenever the helper is killed while it launches a sandbox, its program runs once, its end is known, and nothing of it is left',
  { skip: missingHelper(PERL) ?? false },
  async () => {
    const seed = Number(process.env['BERTH_TEST_SEED'] ?? Math.floor(Math.random() * 1e9));
    process.stdout.write(`seed ${seed} (BERTH_TEST_SEED repeats it)\n`);
    const random = seeded(seed);
    const fx = fixture();
    let kills = 0;
    try {
      for (let round = 0; round < ROUNDS; round += 1) {
        const starting = fx.start('echo ran >> runs; exit 5', { detached: true, slot: round });
        await delay(random() * LATEST_MS);
        const own = hostProcesses((_line, env) => env.includes(`${HELPER_VARIABLE}=${fx.name}\0`));
        // Those that do a single order are struck as well, now and then.
        const struck = own.filter((pid) => statFields(pid)?.[1] === String(process.pid) || random() < 0.2);
        for (const pid of struck) tryKill(pid);
        kills += struck.length;
        const sandbox = await inTime(`round ${round} starts`, starting);
        const exit = await inTime(`the end of round ${round} is known`, sandbox.exited);
        assert.deepEqual(exit, { reason: 'exit', code: 5, signal: null }, `round ${round}`);
        const runs = join(fx.folder, `volume-${round}/workspace/runs`);
        assert.equal(existsSync(runs) && readFileSync(runs, 'utf8'), 'ran\n', `round ${round}`);
        const left = markedProcesses().filter(({ mark }) => mark.startsWith(`${fx.name}/`));
        assert.deepEqual(left, [], `round ${round}`);
      }
      process.stdout.write(`${JSON.stringify({ rounds: ROUNDS, kills })}\n`);
      assert.ok(kills >= ROUNDS / 2);
    } finally {
      await fx.close();
    }
  },
);
