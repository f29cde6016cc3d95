import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { RunLife } from '../../src/services/run-life.ts';
import { Upkeep } from '../../src/runtime/upkeep.ts';
import { silentLog } from '../support/log.ts';
import { gate } from '../support/scripts.ts';
import { setTimeout as delay } from 'node:timers/promises';
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

test('two comparisons are apart also when a round takes nearly as long as the time between two of them', async (t) => {
  const leaseMs = 160;
  const gapsMs: number[] = [];
  let endedMs: number | null = null;
  const life = {
    beat: async () => true,
    reap: async () => 0,
    async owned() {
      if (endedMs !== null) gapsMs.push(performance.now() - endedMs);
      // A round comes every 40 ms.
      await delay(38);
      endedMs = performance.now();
      return [];
    },
    orphans: async () => [],
    compact: async () => 0,
  } satisfies Partial<RunLife>;
  const upkeep = new Upkeep({
    life: life as unknown as RunLife,
    turns: new Map(),
    leaseMs,
    maxAttempts: 3,
    cancel: async () => undefined,
    onBuried: () => undefined,
    log: silentLog,
  });
  t.after(() => upkeep.close());
  await upkeep.begin([]);
  await until('it has compared often', () => gapsMs.length > 10);
  // Seen from within it is a little less.
  assert.ok(Math.min(...gapsMs) >= leaseMs / 8, gapsMs.join());
});
