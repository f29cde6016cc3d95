import { atMost, figure } from '../lib/figure.ts';
import type { Figure } from '../lib/figure.ts';
import { runLoad } from '../lib/load.ts';
import { quantile } from '../lib/stats.ts';
import type { World } from '../lib/world.ts';

const ROUNDS = 5;
const MESSAGES = 100;

/** One message at a time, with a model that needs its time: what is added to that, to the first token and to the end. */
export async function latency(world: World): Promise<Figure[]> {
  const script = { tokens: 20, firstMs: 5, gapMs: 2 };
  const added = { whole: [] as number[], first: [] as number[], firstTail: [] as number[] };
  const floor = { whole: [] as number[], first: [] as number[] };
  for (let round = 0; round < ROUNDS; round += 1) {
    const own = await world.floor({ script, messages: MESSAGES, concurrency: 1 });
    const wholeMs = quantile(own.totalMs, 0.5);
    const firstMs = quantile(own.firstMs, 0.5);
    floor.whole.push(wholeMs);
    floor.first.push(firstMs);
    const json = await runLoad(world, { script, messages: MESSAGES, conversations: 1, isStreamed: false });
    added.whole.push(quantile(json.totalMs, 0.5) - wholeMs);
    const sse = await runLoad(world, { script, messages: MESSAGES, conversations: 1, isStreamed: true });
    added.first.push(quantile(sse.firstMs, 0.5) - firstMs);
    added.firstTail.push(quantile(sse.firstMs, 0.99) - firstMs);
  }
  return [
    figure('One message alone, p50 added to the model', 'ms', added.whole, { target: atMost(10) }),
    figure('First token, p50 added to the model (SSE)', 'ms', added.first, { target: atMost(4) }),
    figure('First token, p99 added to the model (SSE)', 'ms', added.firstTail),
    figure('The model alone, whole answer p50', 'ms', floor.whole),
    figure('The model alone, first token p50', 'ms', floor.first),
  ];
}
