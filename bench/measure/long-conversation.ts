import { atMost, figure } from '../lib/figure.ts';
import type { Figure } from '../lib/figure.ts';
import { messageOf } from '../lib/script.ts';
import { median } from '../lib/stats.ts';
import type { World } from '../lib/world.ts';

const ROUNDS = 3;
const TURNS = 100;
const NEIGHBOURS = 9;

/** The hundredth turn of one conversation against the first: medians of the last and of the first few turns. */
export async function longConversation(world: World): Promise<Figure[]> {
  const ratios: number[] = [];
  const content = messageOf({ tokens: 20, firstMs: 0, gapMs: 0 });
  for (let round = 0; round < ROUNDS; round += 1) {
    const totalMs: number[] = [];
    let conversationId: string | null = null;
    for (let turn = 0; turn < TURNS; turn += 1) {
      const answer = await world.client.send(world.agentId, conversationId, content);
      conversationId = answer.conversationId;
      totalMs.push(answer.totalMs);
    }
    ratios.push(median(totalMs.slice(-NEIGHBOURS)) / median(totalMs.slice(0, NEIGHBOURS)));
  }
  return [figure('Hundredth turn against the first', '×', ratios, { target: atMost(1.5) })];
}
