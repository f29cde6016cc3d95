import { atMost, figure } from '../lib/figure.ts';
import type { Figure } from '../lib/figure.ts';
import { serviceCpuMs } from '../lib/process-tree.ts';
import { answerOf, messageOf } from '../lib/script.ts';
import { quantile } from '../lib/stats.ts';
import { REST_JSON, surfacesOf } from '../lib/surfaces.ts';
import type { Lane, Surface } from '../lib/surfaces.ts';
import type { World } from '../lib/world.ts';

/** When it is over, no round begins but one that makes their number odd: the median of two would be the lower one. */
const BUDGET_MS = 110_000;
const MAX_ROUNDS = 9;
/** Fewer measure how long it takes until the code of a surface is compiled: REST's is warm from the messages before. */
const WARM_UP = 160;
/** As in the other measurements: what is measured is not a long conversation. */
const TURNS = 20;
const TOKENS = 20;

const shapes = [
  { name: 'one after another', lanes: 1, messages: 30 },
  { name: '8 conversations', lanes: 8, messages: 80 },
];

interface Cost {
  service: number;
  everything: number;
  p50Ms: number;
}

/**
 * What a message costs by each surface of the agent, beside REST's JSON in the same round. The client is this process, which is
 * not counted. Rounds go through the surfaces in turns, so that other work of the machine meets all of them.
 */
export async function surfaces(world: World): Promise<Figure[]> {
  const { surfaces, close } = await surfacesOf(world);
  const costs = new Map<string, Cost[]>();
  try {
    for (const surface of surfaces) await load(world, surface, 8, WARM_UP);
    const startMs = performance.now();
    const isInTime = () => performance.now() - startMs < BUDGET_MS;
    for (let round = 0; round < MAX_ROUNDS && (round % 2 === 0 || isInTime()); round += 1) {
      for (const shape of shapes) {
        // Each round begins with another one.
        const order = [...surfaces.slice(round * 2), ...surfaces.slice(0, round * 2)];
        for (const surface of order) {
          const key = `${surface.name}, ${shape.name}`;
          const cost = await load(world, surface, shape.lanes, shape.messages);
          costs.set(key, [...(costs.get(key) ?? []), cost]);
        }
      }
    }
  } finally {
    close();
  }
  return shapes.flatMap((shape) =>
    surfaces.flatMap(({ name }) => {
      const own = costs.get(`${name}, ${shape.name}`)!;
      return report(`${name}, ${shape.name}`, own, costs.get(`${REST_JSON}, ${shape.name}`)!);
    }),
  );
}

function report(name: string, own: Cost[], rest: Cost[]): Figure[] {
  const valuesOf = (part: keyof Cost) => own.map((cost) => cost[part]);
  const restOf = (part: keyof Cost) =>
    figure(
      '',
      '',
      rest.map((cost) => cost[part]),
    ).value;
  const ratios = own.map(({ everything }, round) => everything / rest[round]!.everything);
  const figures = (['everything', 'service'] as const).map((part) =>
    figure(`CPU a message, ${part} (${name})`, 'ms', valuesOf(part), { floor: restOf(part) }),
  );
  figures.push(figure(`One message, p50 (${name})`, 'ms', valuesOf('p50Ms'), { floor: restOf('p50Ms') }));
  if (rest === own) return figures;
  return [...figures, figure(`CPU against REST (${name})`, '×', ratios, { target: atMost(1.5) })];
}

/** Sends messages over a fixed number of clients. Rejects when one is not answered whole. */
async function load(world: World, surface: Surface, count: number, messages: number): Promise<Cost> {
  const lanes = await Promise.all(Array.from({ length: count }, () => surface.open()));
  const totalMs: number[] = [];
  try {
    const before = serviceCpuMs(world.service.pid);
    await Promise.all(lanes.map((lane) => converse(surface.name, lane, messages / count, totalMs)));
    const after = serviceCpuMs(world.service.pid);
    const used = (part: keyof typeof after) => (after[part] - before[part]) / messages;
    return {
      service: used('service'),
      everything: used('service') + used('postgres') + used('sandbox'),
      p50Ms: quantile(totalMs, 0.5),
    };
  } finally {
    for (const lane of lanes) lane.end();
  }
}

async function converse(name: string, lane: Lane, messages: number, totalMs: number[]): Promise<void> {
  const content = messageOf({ tokens: TOKENS, firstMs: 0, gapMs: 0 });
  const expected = answerOf(TOKENS).trim();
  for (let turn = 0; turn < messages; turn += 1) {
    const startMs = performance.now();
    const text = await lane.say(content, turn % TURNS === 0);
    totalMs.push(performance.now() - startMs);
    if (text.trim() !== expected) throw new Error(`A wrong answer by ${name}: ${text}`);
  }
}
