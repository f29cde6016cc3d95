import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { deployed, execIn } from '../lib/agents.ts';
import { atMost, figure } from '../lib/figure.ts';
import type { Figure } from '../lib/figure.ts';
import { attacks, beHostile } from '../lib/hostile.ts';
import type { Attack } from '../lib/hostile.ts';
import type { Answered } from '../lib/client.ts';
import { messageOf } from '../lib/script.ts';
import { watchPeakRssMb } from '../lib/memory.ts';
import { largest, quantile, smallest } from '../lib/stats.ts';
import { openWorld } from '../lib/world.ts';
import type { World } from '../lib/world.ts';

const ROUNDS = 4;
const MESSAGES = 100;
const MAX_MS = 10_000;
/** Then the next conversation begins. */
const TURNS = 20;
/** Until the attack is in full swing. */
const LEAD_MS = 1_000;
const ALL = 'all';
const SCRIPT = { tokens: 20, firstMs: 5, gapMs: 2 };

/** Rows in which disks are watched; in the others they are as by default, file systems of their own where that works. */
const watched: Record<string, readonly string[]> = {
  'watched-disk': ['disk'],
  'watched-all': Object.keys(attacks),
};
const others: Record<string, readonly string[]> = {
  ...Object.fromEntries(Object.keys(attacks).map((name) => [name, [name]])),
  [ALL]: Object.keys(attacks),
};

export const neighbourRows: readonly string[] = [...Object.keys(others), ...Object.keys(watched)];

/**
 * Two agents side by side: one talks, the other does its worst. For each kind of attack, and for all of them at once: the
 * turns of the first alone and beside it, in turns.
 */
export async function neighbours(only: readonly string[] = neighbourRows): Promise<Figure[]> {
  return [...(await inMode('auto', others, only)), ...(await inMode('watch', watched, only))];
}

async function inMode(
  mode: string,
  rows: Record<string, readonly string[]>,
  only: readonly string[],
): Promise<Figure[]> {
  const asked = Object.keys(rows).filter((name) => only.includes(name));
  if (asked.length === 0) return [];
  // A small disk, so that it is filled many times.
  const world = await openWorld({ BERTH_SANDBOX_DISK_MB: '256', BERTH_DISK_MODE: mode });
  try {
    await world.warmUp(world.agentId, 200);
    const hostileId = await world.newAgent('hostile');
    await deployed(world, hostileId);
    // Its disk is made by the first use.
    await execIn(world, hostileId, ['true']);
    const disks = existsSync(join(world.service.dataDir, 'disks', `${hostileId}.img`))
      ? 'of its own'
      : 'watched';
    process.stderr.write(`  Each agent's disk is ${disks}.\n`);
    const figures: Figure[] = [];
    for (const name of asked) {
      const of = rows[name]!;
      const title = `${of.length > 1 ? 'all of it' : of[0]!} (disk ${disks})`;
      figures.push(
        ...(await beside(
          world,
          hostileId,
          title,
          of.map((attack) => attacks[attack]!),
        )),
      );
    }
    return figures;
  } finally {
    await world.end();
  }
}

async function beside(world: World, hostileId: string, name: string, attack: Attack[]): Promise<Figure[]> {
  const alone: Turns = { ms: [], failed: 0 };
  const together: Turns = { ms: [], failed: 0 };
  const peaksMb: number[] = [];
  const idle = new Set<string>();
  for (let round = 0; round < ROUNDS; round += 1) {
    await talk(world, alone);
    await execIn(world, hostileId, ['true']);
    const peak = watchPeakRssMb(world.service.pid);
    const hostility = beHostile(world, hostileId, attack);
    try {
      await new Promise((resolve) => setTimeout(resolve, LEAD_MS));
      // Turns beside nothing would look well: it acts before them, and still does after them.
      for (const attack of await hostility.idle()) idle.add(nameOf(attack));
      await talk(world, together);
      for (const attack of await hostility.idle()) idle.add(nameOf(attack));
    } finally {
      await hostility.end();
      peaksMb.push(peak.stop());
    }
  }
  const told = idle.size === 0 ? name : `${name} (not always seen: ${[...idle].join(', ')})`;
  // Lowest, highest and number are those of the turns beside it.
  const turns = (share: number, target: boolean): Figure => {
    const floor = quantile(alone.ms, share);
    const title = `Turn beside an agent that is after ${told}, p${share * 100}`;
    const own = figure(
      title,
      'ms',
      quantile(together.ms, share),
      target ? { floor, target: atMost(2 * floor) } : { floor },
    );
    return { ...own, min: smallest(together.ms), max: largest(together.ms), samples: together.ms.length };
  };
  const figures = [
    turns(0.5, false),
    turns(0.99, true),
    figure(`Turns beside ${name} that failed`, '', together.failed, {
      target: atMost(0),
      floor: alone.failed,
    }),
    figure(`Service beside ${name}, peak resident memory`, 'MB', largest(peaksMb), { target: atMost(250) }),
  ];
  for (const { name, value, floor } of figures)
    process.stderr.write(
      `  ${name}: ${value.toFixed(0)}${floor === null ? '' : ` (alone ${floor.toFixed(0)})`}\n`,
    );
  return figures;
}

const nameOf = (attack: Attack): string =>
  Object.keys(attacks).find((name) => attacks[name] === attack) ?? '?';

interface Turns {
  ms: number[];
  failed: number;
}

/** One message after another. A turn that fails is counted: it is what a neighbour must not bring about. */
async function talk(world: World, into: Turns): Promise<void> {
  const endMs = Date.now() + MAX_MS;
  let conversationId: string | null = null;
  for (let sent = 0; sent < MESSAGES && Date.now() < endMs; sent += 1) {
    try {
      const answer: Answered = await world.client.send(world.agentId, conversationId, messageOf(SCRIPT));
      into.ms.push(answer.totalMs);
      conversationId = sent % TURNS === TURNS - 1 ? null : answer.conversationId;
    } catch (error) {
      process.stderr.write(`  ${String(error)}\n`);
      into.failed += 1;
      conversationId = null;
    }
  }
}
