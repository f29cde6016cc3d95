import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { placeCluster } from '../../packages/server/test/support/prepared-cluster.ts';
import { diskFolder } from '../../packages/server/test/support/service.ts';
import { startChild } from '../lib/children.ts';
import { Client } from '../lib/client.ts';
import { figure } from '../lib/figure.ts';
import type { Figure } from '../lib/figure.ts';
import { runLoad } from '../lib/load.ts';
import type { Load } from '../lib/load.ts';
import { startModel } from '../lib/model.ts';
import type { ScriptedModel } from '../lib/model.ts';
import { serviceCpuMs } from '../lib/process-tree.ts';
import { quantile } from '../lib/stats.ts';

const ROUNDS = 5;
const MESSAGES = 40;
const CPU_MESSAGES = 300;
const WARM_UP = 300;

/** What the processes of `hops-service.ts` are told to do with a message. */
const ways = { alone: 'Hops alone', commits: 'Hops with two commits' } as const;
type Way = keyof typeof ways;

interface Hops {
  model: ScriptedModel;
  pid: number;
  send(way: Way, load: Partial<Load>): ReturnType<typeof runLoad>;
}

/**
 * What no service can go below that hands a message from process to process as Berth does: bare Node processes that do
 * nothing else, with and without the two commits that stand before the first token is shown. The load is that of `latency`.
 */
export async function hops(): Promise<Figure[]> {
  const dir = mkdtempSync(join(diskFolder, 'berth-bench-'));
  // PostgreSQL runs as another user and must be able to pass through.
  chmodSync(dir, 0o711);
  let model: ScriptedModel | null = null;
  try {
    await placeCluster(join(dir, 'postgres'), 'service');
    model = await startModel(dir);
    const service = startChild('./hops-service.ts', [dir, String(model.port)]);
    try {
      const { port } = await service.next<{ port: number }>();
      const client = new Client(`http://127.0.0.1:${port}`, 'none');
      const send: Hops['send'] = (way, load) => {
        const script = { tokens: 20, firstMs: 5, gapMs: 2 };
        const whole = { script, messages: MESSAGES, conversations: 1, isStreamed: true, ...load };
        return runLoad({ client, agentId: way }, whole);
      };
      const all: Hops = { model, pid: service.pid, send };
      const figures = [...(await latencies(all)), ...(await cpuTimes(all))];
      client.close();
      await service.ask({ end: true });
      return figures;
    } finally {
      await service.end();
    }
  } finally {
    await model?.end();
    rmSync(dir, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }
}

async function latencies({ model, send }: Hops): Promise<Figure[]> {
  const added = { alone: emptyAdded(), commits: emptyAdded() };
  const script = { tokens: 20, firstMs: 0, gapMs: 0 };
  for (const way of ['alone', 'commits'] as const) await send(way, { script, messages: WARM_UP });
  for (let round = 0; round < ROUNDS; round += 1) {
    const request = { script: { tokens: 20, firstMs: 5, gapMs: 2 }, messages: MESSAGES, concurrency: 1 };
    const own = await model.floor(request);
    for (const way of ['alone', 'commits'] as const) {
      const streamed = await send(way, {});
      const whole = await send(way, { isStreamed: false });
      added[way].first.push(quantile(streamed.firstMs, 0.5) - quantile(own.firstMs, 0.5));
      added[way].whole.push(quantile(whole.totalMs, 0.5) - quantile(own.totalMs, 0.5));
    }
  }
  return (['alone', 'commits'] as const).flatMap((way) => [
    figure(`${ways[way]}, first token, p50 added to the model (SSE)`, 'ms', added[way].first),
    figure(`${ways[way]}, whole answer, p50 added to the model (JSON)`, 'ms', added[way].whole),
  ]);
}

const emptyAdded = () => ({ first: [] as number[], whole: [] as number[] });

/** Of the processes in place of service and harness, and of PostgreSQL. */
async function cpuTimes({ pid, send }: Hops): Promise<Figure[]> {
  const script = { tokens: 20, firstMs: 0, gapMs: 0 };
  const cpuMs = () => Object.values(serviceCpuMs(pid)).reduce((sum, part) => sum + part, 0);
  const shapes = { 'one after another': 1, '32 conversations': 32 };
  const figures: Figure[] = [];
  for (const [name, conversations] of Object.entries(shapes)) {
    const rounds: number[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const beforeMs = cpuMs();
      await send('commits', { script, messages: CPU_MESSAGES, conversations, isStreamed: false });
      rounds.push((cpuMs() - beforeMs) / CPU_MESSAGES);
    }
    figures.push(figure(`${ways.commits}, CPU a message, everything (${name}, JSON)`, 'ms', rounds));
  }
  return figures;
}
