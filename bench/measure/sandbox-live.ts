import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { deployed, execIn, execMs, frozen } from '../lib/agents.ts';
import { atMost, figure, notMeasured } from '../lib/figure.ts';
import type { Figure } from '../lib/figure.ts';
import { kernelMb, pssMb, rssMb } from '../lib/memory.ts';
import { readProcess, servicePids } from '../lib/process-tree.ts';
import { runtimeStarter } from '../lib/sandbox-runtime.ts';
import { median } from '../lib/stats.ts';
import { openWorld } from '../lib/world.ts';
import type { World } from '../lib/world.ts';

const EXECS = 40;
const THAWS = 5;
const CROWD = 30;
const IDLE_MS = 3_000;

/** Sandboxes as the service runs them, with their harness, by its own API. */
export async function sandboxLive(): Promise<Figure[]> {
  const runtime = await runtimeStarter();
  const world = await openWorld({ BERTH_FREEZE_AFTER_SECONDS: '1' });
  try {
    return [
      ...(await execFigures(
        world,
        typeof runtime === 'string' ? runtime : (command) => runtime.wrap(command),
      )),
      ...(await crowdFigures(world)),
    ];
  } finally {
    await world.end();
    if (typeof runtime !== 'string') await runtime.end();
  }
}

/** `wrap` of sandbox-runtime, or why there is none. */
async function execFigures(
  world: World,
  wrap: string | ((command: string) => Promise<string>),
): Promise<Figure[]> {
  await world.warmUp(world.agentId, 1);
  for (let warm = 0; warm < 5; warm += 1) await execMs(world, world.agentId);
  const bareMs: number[] = [];
  const berthMs: number[] = [];
  const otherMs: number[] = [];
  for (let round = 0; round < EXECS; round += 1) {
    bareMs.push(await spawnedMs('/bin/true', []));
    berthMs.push(await execMs(world, world.agentId));
    if (typeof wrap === 'string') continue;
    const startMs = performance.now();
    await spawnedMs('/bin/sh', ['-c', await wrap('/bin/true')]);
    otherMs.push(performance.now() - startMs);
  }
  const thawedMs: number[] = [];
  for (let round = 0; round < THAWS; round += 1) {
    await frozen(world, world.agentId);
    thawedMs.push(await execMs(world, world.agentId));
  }
  const floor = median(bareMs);
  const name = 'Exec of `true`, request to answer';
  return [
    figure(`${name}, running sandbox`, 'ms', berthMs, { floor }),
    figure(`${name}, frozen sandbox`, 'ms', thawedMs, { floor }),
    typeof wrap === 'string'
      ? notMeasured(`${name}, sandbox-runtime`, 'ms', wrap)
      : figure(`${name}, sandbox-runtime (no service)`, 'ms', otherMs, { floor }),
  ];
}

async function spawnedMs(file: string, args: string[]): Promise<number> {
  const startMs = performance.now();
  await once(spawn(file, args, { stdio: ['ignore', 'pipe', 'pipe'] }), 'close');
  return performance.now() - startMs;
}

async function crowdFigures(world: World): Promise<Figure[]> {
  const agents: string[] = [];
  for (let made = 0; made < CROWD; made += 1) {
    const agentId = await world.newAgent(`crowd ${made}`);
    await deployed(world, agentId);
    agents.push(agentId);
  }
  const before = servicePids(world.service.pid);
  const serviceMb = rssMb([world.service.pid]);
  const startMs = performance.now();
  await Promise.all(agents.map((id) => world.client.json('POST', `/sandbox/${id}/start`)));
  const runningMs = performance.now() - startMs;
  const answers = await Promise.all(agents.map((id) => execIn(world, id, ['echo', id])));
  const right = answers.filter(({ stdout }, index) => stdout.trim() === agents[index]);
  const answeredMs = performance.now() - startMs;
  await new Promise((resolve) => setTimeout(resolve, IDLE_MS));
  const known = new Set(before.sandbox);
  const all = servicePids(world.service.pid).sandbox.filter((pid) => !known.has(pid));
  const harness = all.filter((pid) => !/^(bwrap|sh)$/.test(readProcess(pid)?.name ?? ''));
  const beyond = all.filter((pid) => !harness.includes(pid));
  const harnessMb = pssMb(harness) / CROWD;
  const beyondMb = pssMb(beyond) / CROWD;
  const kernel = kernelMb(all) / CROWD;
  const grownMb = (rssMb([world.service.pid]) - serviceMb) / CROWD;
  const stopMs = performance.now();
  await Promise.all(agents.map((id) => world.client.json('POST', `/sandbox/${id}/stop`)));
  const stoppedMs = performance.now() - stopMs;
  return [
    figure(`${CROWD} agents started at once, sandboxes that answer`, '', right.length, {
      target: { kind: 'at least', value: CROWD },
    }),
    figure(`${CROWD} agents started at once, all running`, 'ms', runningMs),
    figure(`${CROWD} agents started at once, all answered a command`, 'ms', answeredMs),
    figure('Idle agent, proportional memory, harness', 'MB', harnessMb),
    figure('Idle agent beyond its harness: sandbox and service', 'MB', beyondMb + grownMb, {
      target: atMost(12),
    }),
    figure('— of it the sandbox’s own processes', 'MB', beyondMb),
    figure('— of it the service’s growth', 'MB', grownMb),
    figure('Kernel memory of the group, harness included', 'MB', kernel),
    figure(`${CROWD} agents stopped at once`, 'ms', stoppedMs),
  ];
}
