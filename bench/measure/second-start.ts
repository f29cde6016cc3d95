import { atMost, figure } from '../lib/figure.ts';
import type { Figure } from '../lib/figure.ts';
import type { World } from '../lib/world.ts';

const ROUNDS = 5;

/** From the start of the process to `GET /readyz` 200, on a data directory that is there already. */
export async function secondStart(world: World): Promise<Figure[]> {
  const readyMs: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    await world.service.stop();
    const startMs = performance.now();
    await world.service.restart();
    readyMs.push(performance.now() - startMs);
  }
  return [figure('Second start to ready', 'ms', readyMs, { target: atMost(2_000) })];
}
