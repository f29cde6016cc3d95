import { deployed } from '../lib/agents.ts';
import { atMost, figure } from '../lib/figure.ts';
import type { Figure } from '../lib/figure.ts';
import { messageOf } from '../lib/script.ts';
import type { World } from '../lib/world.ts';

const ROUNDS = 7;

/** The first message of an agent that has no sandbox, to its first token. Its deployment is ready before. */
export async function coldStart(world: World): Promise<Figure[]> {
  const firstMs: number[] = [];
  const agents: string[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const agentId = await world.newAgent(`cold ${round}`);
    agents.push(agentId);
    await deployed(world, agentId);
    const content = messageOf({ tokens: 20, firstMs: 0, gapMs: 0 });
    const answer = await world.client.stream(agentId, null, content);
    if (answer.status !== 'run.completed') throw new Error(`A cold run ended with "${answer.status}".`);
    firstMs.push(answer.firstMs);
  }
  for (const agentId of agents) await world.client.json('DELETE', `/v1/agents/${agentId}`);
  return [figure('Cold sandbox to first token', 'ms', firstMs, { target: atMost(400) })];
}
