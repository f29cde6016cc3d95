import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Service } from '../../packages/server/test/support/service.ts';
import { atMost, figure } from '../lib/figure.ts';
import type { Figure } from '../lib/figure.ts';
import { processTree } from '../lib/process-tree.ts';
import type { World } from '../lib/world.ts';

const ROUNDS = 5;
const DEADLINE_MS = 60_000;
const repositoryDir = fileURLToPath(new URL('../../', import.meta.url));

/**
 * From the start to `GET /readyz` 200, on a data directory that is there already: `npm start` as a user types it, with
 * everything installed, and the service without npm, in turns.
 */
export async function secondStart({ service }: World): Promise<Figure[]> {
  const typedMs: number[] = [];
  const readyMs: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    await service.stop();
    typedMs.push(await npmStartMs(service));
    const startMs = performance.now();
    await service.restart();
    readyMs.push(performance.now() - startMs);
  }
  return [
    figure('Second start by npm start, to ready', 'ms', typedMs, { target: atMost(2_000) }),
    figure('Second start of the service alone, to ready', 'ms', readyMs),
  ];
}

/** Starts it, waits until it is ready, and ends it. */
async function npmStartMs({ url, env }: Service): Promise<number> {
  const startMs = performance.now();
  const npm = spawn('npm', ['start'], { cwd: repositoryDir, env, stdio: 'ignore' });
  const closed = once(npm, 'close');
  let hasEnded = false;
  void closed.then(() => (hasEnded = true));
  try {
    while (!(await isReady(url))) {
      if (hasEnded) throw new Error(`npm start ended with ${npm.exitCode} before the service was ready.`);
      if (performance.now() - startMs > DEADLINE_MS) throw new Error('npm start was not ready in time.');
      await delay(25);
    }
    return performance.now() - startMs;
  } finally {
    // npm is not told: what it runs has become the service, and npm ends with it.
    for (const { pid, parent } of processTree(npm.pid!)) if (parent === npm.pid) process.kill(pid, 'SIGTERM');
    await closed;
  }
}

async function isReady(url: string): Promise<boolean> {
  try {
    const response = await fetch(`${url}/readyz`);
    await response.arrayBuffer();
    return response.status === 200;
  } catch {
    return false;
  }
}
