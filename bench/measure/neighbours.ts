import { deployed, execIn } from '../lib/agents.ts';
import { atMost, figure } from '../lib/figure.ts';
import type { Figure } from '../lib/figure.ts';
import { attacks, beHostile } from '../lib/hostile.ts';
import { runLoad } from '../lib/load.ts';
import { watchPeakRssMb } from '../lib/memory.ts';
import { quantile } from '../lib/stats.ts';
import { openWorld } from '../lib/world.ts';
import type { World } from '../lib/world.ts';

const ROUNDS = 2;
const MESSAGES = 100;
const MAX_MS = 10_000;
/** Until the attack is in full swing. */
const LEAD_MS = 1_000;
const SCRIPT = { tokens: 20, firstMs: 5, gapMs: 2 };

/**
 * Two agents side by side: one talks, the other does its worst. For each kind of attack, and for all of them at once: the
 * turns of the first alone and beside it, in turns.
 */
export async function neighbours(): Promise<Figure[]> {
  // A small disk, so that it is filled many times.
  const world = await openWorld({ BERTH_SANDBOX_DISK_MB: '256' });
  try {
    await world.warmUp(world.agentId, 200);
    const hostileId = await world.newAgent('hostile');
    await deployed(world, hostileId);
    const figures: Figure[] = [];
    const peak = watchPeakRssMb(world.service.pid);
    const all = { ...attacks, 'all of it': Object.values(attacks).flat() };
    for (const [name, scripts] of Object.entries(all))
      figures.push(...(await beside(world, hostileId, name, scripts)));
    figures.push(
      figure('Service, peak resident memory meanwhile', 'MB', peak.stop(), { target: atMost(250) }),
    );
    return figures;
  } finally {
    await world.end();
  }
}

async function beside(world: World, hostileId: string, name: string, scripts: string[]): Promise<Figure[]> {
  const alone: number[] = [];
  const together: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    alone.push(...(await turnsMs(world)));
    await execIn(world, hostileId, ['true']);
    const hostility = beHostile(world, hostileId, scripts);
    try {
      await new Promise((resolve) => setTimeout(resolve, LEAD_MS));
      together.push(...(await turnsMs(world)));
    } finally {
      await hostility.end();
    }
  }
  const p99Ms = quantile(alone, 0.99);
  process.stderr.write(
    `  ${name}: alone ${p99Ms.toFixed(0)}, beside ${quantile(together, 0.99).toFixed(0)} ms (p99)\n`,
  );
  return [
    figure(`Turn beside an agent that is after ${name}, p50`, 'ms', quantile(together, 0.5), {
      floor: quantile(alone, 0.5),
    }),
    figure(`Turn beside an agent that is after ${name}, p99`, 'ms', quantile(together, 0.99), {
      target: atMost(2 * p99Ms),
      floor: p99Ms,
    }),
  ];
}

async function turnsMs(world: World): Promise<number[]> {
  const { totalMs } = await runLoad(world, {
    script: SCRIPT,
    messages: MESSAGES,
    maxMs: MAX_MS,
    conversations: 1,
    isStreamed: false,
  });
  return totalMs;
}
