import { atMost, figure } from '../lib/figure.ts';
import type { Figure } from '../lib/figure.ts';
import { pssMb, rssMb } from '../lib/memory.ts';
import { servicePids } from '../lib/process-tree.ts';
import type { World } from '../lib/world.ts';

const IDLE_MS = 5_000;

/** Memory of a service that was started, has answered a few messages and does nothing, and of its one warm agent. */
export async function idleMemory(world: World): Promise<Figure[]> {
  await world.service.restart();
  await new Promise((resolve) => setTimeout(resolve, IDLE_MS));
  const freshMb = rssMb([world.service.pid]);
  await world.warmUp(world.agentId, 20);
  await new Promise((resolve) => setTimeout(resolve, IDLE_MS));
  const { postgres, sandbox } = servicePids(world.service.pid);
  if (sandbox.length === 0) throw new Error('No sandbox is warm.');
  return [
    figure('Service idle, resident memory of its process', 'MB', rssMb([world.service.pid]), {
      target: atMost(150),
    }),
    figure('Service before its first message, resident memory', 'MB', freshMb),
    figure('PostgreSQL idle, proportional memory of its processes', 'MB', pssMb(postgres)),
    figure('Warm agent, resident memory of its process tree', 'MB', rssMb(sandbox), { target: atMost(70) }),
    figure('Warm agent, proportional memory of its process tree', 'MB', pssMb(sandbox)),
  ];
}
