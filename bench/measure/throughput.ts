import { atLeast, figure } from '../lib/figure.ts';
import type { Figure } from '../lib/figure.ts';
import { runLoad } from '../lib/load.ts';
import type { World } from '../lib/world.ts';

const ROUNDS = 5;

/** Messages a second with a model that answers at once; load generator and model run on the same cores. */
export async function throughput(world: World): Promise<Figure[]> {
  const script = { tokens: 20, firstMs: 0, gapMs: 0 };
  const figures: Figure[] = [];
  for (const [conversations, messages] of [
    [1, 200],
    [32, 1000],
  ] as const) {
    const perSecond: number[] = [];
    const floor: number[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const load = { script, messages, conversations, isStreamed: false };
      perSecond.push((await runLoad(world, load)).perSecond);
      floor.push((await world.floor({ script, messages, concurrency: conversations })).messagesPerSecond);
    }
    const name =
      conversations === 1 ? 'Messages a second, one conversation' : 'Messages a second, 32 conversations';
    figures.push(
      figure(name, '1/s', perSecond, {
        floor: figure('', '', floor).value,
        ...(conversations === 32 ? { target: atLeast(200) } : {}),
      }),
    );
  }
  return figures;
}
