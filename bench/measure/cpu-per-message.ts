import { atMost, figure } from '../lib/figure.ts';
import type { Figure } from '../lib/figure.ts';
import { runLoad } from '../lib/load.ts';
import { serviceCpuMs } from '../lib/process-tree.ts';
import type { World } from '../lib/world.ts';

const ROUNDS = 5;
const MESSAGES = 300;

interface Shape {
  name: string;
  conversations: number;
  gapMs: number;
  isStreamed: boolean;
}

const shapes: Shape[] = [
  { name: '32 conversations, JSON', conversations: 32, gapMs: 0, isStreamed: false },
  { name: '32 conversations, SSE, tokens 5 ms apart', conversations: 32, gapMs: 5, isStreamed: true },
  { name: 'one after another, JSON', conversations: 1, gapMs: 0, isStreamed: false },
  { name: 'one after another, SSE', conversations: 1, gapMs: 0, isStreamed: true },
];

/** CPU of the service's whole process tree for each message of 20 tokens, with a warm sandbox. */
export async function cpuPerMessage(world: World): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const shape of shapes) figures.push(...(await measure(world, shape)));
  return figures;
}

async function measure(world: World, shape: Shape): Promise<Figure[]> {
  const { conversations, gapMs, isStreamed } = shape;
  const script = { tokens: 20, firstMs: 0, gapMs };
  const rounds = {
    all: [] as number[],
    service: [] as number[],
    postgres: [] as number[],
    sandbox: [] as number[],
  };
  const floor: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const before = serviceCpuMs(world.service.pid);
    await runLoad(world, { script, messages: MESSAGES, conversations, isStreamed });
    const after = serviceCpuMs(world.service.pid);
    let all = 0;
    for (const part of ['service', 'postgres', 'sandbox'] as const) {
      const used = (after[part] - before[part]) / MESSAGES;
      rounds[part].push(used);
      all += used;
    }
    rounds.all.push(all);
    const bare = await world.floor({ script, messages: MESSAGES, concurrency: conversations });
    floor.push(bare.cpuMsPerMessage);
  }
  const bare = figure('', '', floor).value;
  const name = (part: string) => `CPU a message, ${part} (${shape.name})`;
  return [
    figure(name('everything'), 'ms', rounds.all, { target: atMost(6), floor: bare }),
    figure(name('service'), 'ms', rounds.service, { target: atMost(3), floor: bare }),
    figure(name('PostgreSQL'), 'ms', rounds.postgres),
    figure(name('harness in its sandbox'), 'ms', rounds.sandbox),
  ];
}
