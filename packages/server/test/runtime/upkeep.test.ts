import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { RunLife } from '../../src/services/run-life.ts';
import { Upkeep } from '../../src/runtime/upkeep.ts';
import { silentLog } from '../support/log.ts';
import { gate } from '../support/scripts.ts';
import { until } from '../support/until.ts';

test('a database that hangs for many rounds of the upkeep is not asked for all of them in a row when it is back', async () => {
  const hanging = gate();
  const looks: string[] = [];
  let beats = 0;
  const life = {
    async beat() {
      beats += 1;
      // The first one is that of the start.
      if (beats === 2) await hanging.opened;
      return true;
    },
    reap: async () => 0,
    async owned() {
      looks.push('owned');
      return [];
    },
    orphans: async () => [],
    compact: async () => 0,
  } satisfies Partial<RunLife>;
  const leaseMs = 20;
  const upkeep = new Upkeep({
    life: life as unknown as RunLife,
    turns: new Map(),
    leaseMs,
    maxAttempts: 3,
    cancel: async () => undefined,
    onBuried: () => undefined,
    log: silentLog,
  });
  let intervals = 0;
  const timer = setInterval(() => (intervals += 1), leaseMs / 4);
  await upkeep.begin([]);
  await until('many rounds were due', () => beats === 2 && intervals > 40);
  assert.deepEqual(looks, []);
  hanging.open();
  // All that needs no timer happens before this.
  await new Promise((resolve) => setImmediate(resolve));
  assert.ok(looks.length <= 2, `${looks.length} comparisons in a row`);
  await until('it goes on', () => looks.length > 2);
  clearInterval(timer);
  await upkeep.close();
});
