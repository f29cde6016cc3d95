import { deployed, execIn } from '../lib/agents.ts';
import { atMost, figure } from '../lib/figure.ts';
import type { Figure } from '../lib/figure.ts';
import { attacks, beHostile } from '../lib/hostile.ts';
import { runLoad } from '../lib/load.ts';
import { watchPeakRssMb } from '../lib/memory.ts';
import { largest, quantile, smallest } from '../lib/stats.ts';
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
    const all = { ...attacks, 'all of it': Object.values(attacks).flat() };
    for (const [name, scripts] of Object.entries(all))
      figures.push(...(await beside(world, hostileId, name, scripts)));
    return figures;
  } finally {
    await world.end();
  }
}

async function beside(world: World, hostileId: string, name: string, scripts: string[]): Promise<Figure[]> {
  const alone: number[] = [];
  const together: number[] = [];
  const peaksMb: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    alone.push(...(await turnsMs(world)));
    await execIn(world, hostileId, ['true']);
    const peak = watchPeakRssMb(world.service.pid);
    const hostility = beHostile(world, hostileId, scripts);
    try {
      await new Promise((resolve) => setTimeout(resolve, LEAD_MS));
      together.push(...(await turnsMs(world)));
    } finally {
      await hostility.end();
      peaksMb.push(peak.stop());
    }
  }
  // Lowest, highest and number are those of the turns beside it.
  const turns = (share: number, target: boolean): Figure => {
    const floor = quantile(alone, share);
    const title = `Turn beside an agent that is after ${name}, p${share * 100}`;
    const own = figure(
      title,
      'ms',
      quantile(together, share),
      target ? { floor, target: atMost(2 * floor) } : { floor },
    );
    return { ...own, min: smallest(together), max: largest(together), samples: together.length };
  };
  return [
    turns(0.5, false),
    turns(0.99, true),
    figure(`Service beside ${name}, peak resident memory`, 'MB', peaksMb, { target: atMost(250) }),
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
