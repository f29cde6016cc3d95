import { request as httpRequest } from 'node:http';
import { deployed } from '../lib/agents.ts';
import { startChild } from '../lib/children.ts';
import { Client } from '../lib/client.ts';
import { atMost, figure } from '../lib/figure.ts';
import type { Figure } from '../lib/figure.ts';
import { readProcess, serviceCpuMs } from '../lib/process-tree.ts';
import type { SameBytes } from '../lib/same-bytes-process.ts';
import { median } from '../lib/stats.ts';
import type { World } from '../lib/world.ts';

const ROUNDS = 5;
const WARM_UP = 2_000;
const REQUESTS = 5_000;
const CONNECTIONS = 16;
const AGENTS = 50;

interface Rounds {
  perSecond: number[];
  /** Microseconds of a processor for a request. */
  all: number[];
  service: number[];
  postgres: number[];
}

/**
 * `GET /v1/agents/{id}` with a key, over kept connections: of one agent, and of fifty in turns. The floor, in the same
 * rounds, is a bare server that writes the bytes of one such answer.
 */
export async function agentReads(world: World): Promise<Figure[]> {
  const one = [`/v1/agents/${world.agentId}`];
  const many = await newAgents(world);
  const bytes = await answerAt(world, one[0]!);
  const bare = startChild('./same-bytes-process.ts', [JSON.stringify(bytes)]);
  try {
    const { port } = await bare.next<{ port: number }>();
    const client = new Client(`http://127.0.0.1:${port}`, world.service.key);
    const bareCpuMs = () => ({ service: readProcess(bare.pid)!.cpuMs, postgres: 0 });
    const serviceMs = () => serviceCpuMs(world.service.pid);
    const [ofOne, ofMany, ofBare] = [emptyRounds(), emptyRounds(), emptyRounds()];
    for (const paths of [one, many]) await read(world.client, paths, WARM_UP);
    await read(client, one, WARM_UP);
    for (let round = 0; round < ROUNDS; round += 1) {
      await measure(world.client, one, serviceMs, ofOne);
      await measure(world.client, many, serviceMs, ofMany);
      await measure(client, one, bareCpuMs, ofBare);
    }
    client.close();
    const name = 'GET /v1/agents/{id}';
    return [...figures(name, ofOne, ofBare), ...figures(`${name}, ${AGENTS} in turns`, ofMany, ofBare)];
  } finally {
    await bare.end();
  }
}

const emptyRounds = (): Rounds => ({ perSecond: [], all: [], service: [], postgres: [] });

async function newAgents(world: World): Promise<string[]> {
  const paths: string[] = [];
  for (let made = 0; made < AGENTS; made += 1) {
    const agentId = await world.newAgent(`read-${made}`);
    await deployed(world, agentId);
    paths.push(`/v1/agents/${agentId}`);
  }
  return paths;
}

function answerAt({ service }: World, path: string): Promise<SameBytes> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${service.key}`, accept: 'application/json' };
    const asked = httpRequest(`${service.url}${path}`, { headers }, (response) => {
      let body = '';
      response.setEncoding('utf8').on('data', (chunk: string) => (body += chunk));
      response.on('end', () => resolve({ headers: withoutOwn(response.rawHeaders), body }));
    });
    asked.once('error', reject);
    asked.end();
  });
}

/** The bare server writes those of the connection itself, which end with the connection that this answer came by. */
function withoutOwn(raw: readonly string[]): string[] {
  return raw.flatMap((value, index) => {
    const isName = index % 2 === 0;
    return isName && !/^(connection|keep-alive)$/i.test(value) ? [value, raw[index + 1]!] : [];
  });
}

type CpuMs = () => { service: number; postgres: number };

async function measure(client: Client, paths: string[], cpuMs: CpuMs, into: Rounds): Promise<void> {
  const before = cpuMs();
  const startMs = performance.now();
  await read(client, paths, REQUESTS);
  into.perSecond.push(REQUESTS / ((performance.now() - startMs) / 1000));
  const after = cpuMs();
  const service = ((after.service - before.service) * 1000) / REQUESTS;
  const postgres = ((after.postgres - before.postgres) * 1000) / REQUESTS;
  into.service.push(service);
  into.postgres.push(postgres);
  into.all.push(service + postgres);
}

async function read(client: Client, paths: readonly string[], requests: number): Promise<void> {
  let sent = 0;
  const worker = async () => {
    while (sent < requests) {
      sent += 1;
      await client.json('GET', paths[sent % paths.length]!);
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, worker));
}

function figures(name: string, of: Rounds, bare: Rounds): Figure[] {
  const floor = median(bare.all);
  return [
    figure(`${name}, CPU a request, service and PostgreSQL`, 'µs', of.all, { target: atMost(120), floor }),
    figure(`${name}, CPU a request, service`, 'µs', of.service, { floor }),
    figure(`${name}, CPU a request, PostgreSQL`, 'µs', of.postgres),
    figure(`${name}, requests a second`, '1/s', of.perSecond, { floor: median(bare.perSecond) }),
  ];
}
