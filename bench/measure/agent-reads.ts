import { atMost, figure } from '../lib/figure.ts';
import type { Figure } from '../lib/figure.ts';
import { serviceCpuMs } from '../lib/process-tree.ts';
import type { World } from '../lib/world.ts';

const ROUNDS = 5;
const REQUESTS = 5_000;
const CONNECTIONS = 16;

/** `GET /v1/agents/{id}` with a key, over kept connections. */
export async function agentReads(world: World): Promise<Figure[]> {
  const path = `/v1/agents/${world.agentId}`;
  const rounds = {
    perSecond: [] as number[],
    all: [] as number[],
    service: [] as number[],
    postgres: [] as number[],
  };
  await read(world, path, 2_000);
  for (let round = 0; round < ROUNDS; round += 1) {
    const before = serviceCpuMs(world.service.pid);
    const startMs = performance.now();
    await read(world, path, REQUESTS);
    rounds.perSecond.push(REQUESTS / ((performance.now() - startMs) / 1000));
    const after = serviceCpuMs(world.service.pid);
    const service = ((after.service - before.service) * 1000) / REQUESTS;
    const postgres = ((after.postgres - before.postgres) * 1000) / REQUESTS;
    rounds.service.push(service);
    rounds.postgres.push(postgres);
    rounds.all.push(service + postgres);
  }
  return [
    figure('GET /v1/agents/{id}, CPU a request, service and PostgreSQL', 'µs', rounds.all, {
      target: atMost(120),
    }),
    figure('GET /v1/agents/{id}, CPU a request, service', 'µs', rounds.service),
    figure('GET /v1/agents/{id}, CPU a request, PostgreSQL', 'µs', rounds.postgres),
    figure('GET /v1/agents/{id}, requests a second', '1/s', rounds.perSecond),
  ];
}

async function read(world: World, path: string, requests: number): Promise<void> {
  let left = requests;
  const worker = async () => {
    while (left > 0) {
      left -= 1;
      await world.client.json('GET', path);
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, worker));
}
