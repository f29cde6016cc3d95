import { noDisks } from '../../packages/server/test/support/disk-trial.ts';
import { atMost, figure, notMeasured } from '../lib/figure.ts';
import type { Figure } from '../lib/figure.ts';
import { kernelMb, pssMb } from '../lib/memory.ts';
import { processTree } from '../lib/process-tree.ts';
import { runtimeStarter } from '../lib/sandbox-runtime.ts';
import { bareStarter, berthStarter, poolStarter, roundTripMs } from '../lib/starters.ts';
import type { Starter } from '../lib/starters.ts';
import { median } from '../lib/stats.ts';

// A start varies by a third: medians of twenty differed by a tenth from run to run.
const ROUNDS = 60;
const CROWD_ROUNDS = 3;
const CROWD = 30;

interface Times {
  starter: Starter;
  firstByteMs: number[];
  roundTripMs: number[];
  thawMs: number[];
  stopMs: number[];
  crowdMs: number[];
  crowdMb: number[];
  crowdKernelMb: number[];
  crowdStopMs: number[];
}

/**
 * A Node program that says one byte: started bare, in Berth's sandbox and in Anthropic's sandbox-runtime, in turns. Nothing
 * of the service is in it, so that the three can be compared.
 */
export async function sandboxStart(): Promise<Figure[]> {
  const runtime = await runtimeStarter();
  const bare = timesOf(bareStarter());
  const berth = timesOf(berthStarter());
  const other = typeof runtime === 'string' ? null : timesOf(runtime);
  const pool = process.getuid?.() === 0 ? timesOf(poolStarter()) : null;
  const disk = await noDisks();
  const [ownDisk, ownDiskPool] =
    disk === null ? [timesOf(berthStarter(true)), timesOf(poolStarter(true))] : [null, null];
  const alone = other ? [bare, berth, other] : [bare, berth];
  const all = [...alone, pool, ownDisk, ownDiskPool].filter((times) => times !== null);
  try {
    // The first of each opens what is kept: cgroups, the seccomp filter, proxies.
    for (const { starter } of all) {
      await starter.prepare?.();
      await (await starter.start()).kill();
    }
    for (let round = 0; round < ROUNDS; round += 1) for (const times of all) await one(times);
    for (let round = 0; round < CROWD_ROUNDS; round += 1) for (const times of alone) await crowd(times);
  } finally {
    for (const { starter } of all) await starter.end();
  }
  const whyNot = typeof runtime === 'string' ? runtime : '';
  const fromPool = 'Claim from the warm pool to first byte';
  const claim = pool
    ? figure(fromPool, 'ms', pool.firstByteMs, { target: atMost(30), floor: median(bare.firstByteMs) })
    : notMeasured(fromPool, 'ms', 'only root has one');
  const onNewDisk = [
    [
      'Cold start of Node to its first byte, Berth, with the disk of a new agent',
      ownDisk,
      1.3 * median(bare.firstByteMs),
    ],
    [`${fromPool}, with the disk of a new agent`, ownDiskPool, 30],
  ] as const;
  return [
    ...startFigures(bare, berth, other, whyNot),
    claim,
    ...onNewDisk.map(([name, times, most]) =>
      times
        ? figure(name, 'ms', times.firstByteMs, { target: atMost(most), floor: median(bare.firstByteMs) })
        : notMeasured(name, 'ms', disk ?? ''),
    ),
    ...crowdFigures(bare, berth, other, whyNot),
  ];
}

function timesOf(starter: Starter): Times {
  const empty = { firstByteMs: [], roundTripMs: [], thawMs: [], stopMs: [] };
  return { starter, ...empty, crowdMs: [], crowdMb: [], crowdKernelMb: [], crowdStopMs: [] };
}

async function one(times: Times): Promise<void> {
  await times.starter.prepare?.();
  const startMs = performance.now();
  const running = await times.starter.start();
  times.firstByteMs.push(performance.now() - startMs);
  await roundTripMs(running);
  times.roundTripMs.push(await roundTripMs(running));
  if (running.freeze && running.thaw) {
    await running.freeze();
    const thawMs = performance.now();
    await running.thaw();
    await roundTripMs(running);
    times.thawMs.push(performance.now() - thawMs);
  }
  const stopMs = performance.now();
  await running.kill();
  times.stopMs.push(performance.now() - stopMs);
}

async function crowd(times: Times): Promise<void> {
  const startMs = performance.now();
  const all = await Promise.all(Array.from({ length: CROWD }, () => times.starter.start()));
  times.crowdMs.push(performance.now() - startMs);
  // All are there and each of them answers.
  await Promise.all(all.map(roundTripMs));
  const tree = processTree(process.pid).map(({ pid }) => pid);
  const below = tree.filter((pid) => pid !== process.pid);
  times.crowdMb.push(pssMb(below) / CROWD);
  times.crowdKernelMb.push(kernelMb(below) / CROWD);
  const stopMs = performance.now();
  await Promise.all(all.map((running) => running.kill()));
  times.crowdStopMs.push(performance.now() - stopMs);
}

function startFigures(bare: Times, berth: Times, other: Times | null, whyNot: string): Figure[] {
  const floor = median(bare.firstByteMs);
  const cold = 'Cold start of Node to its first byte';
  return [
    figure(`${cold}, bare`, 'ms', bare.firstByteMs),
    figure(`${cold}, Berth, hardened`, 'ms', berth.firstByteMs, { target: atMost(1.3 * floor), floor }),
    other
      ? figure(`${cold}, sandbox-runtime`, 'ms', other.firstByteMs, { floor })
      : notMeasured(`${cold}, sandbox-runtime`, 'ms', whyNot),
    figure('Round trip in a running sandbox', 'ms', berth.roundTripMs, { floor: median(bare.roundTripMs) }),
    figure('Thaw and round trip', 'ms', berth.thawMs, { target: atMost(3), floor: median(bare.thawMs) }),
    figure('Kill until nothing is left, Berth', 'ms', berth.stopMs, { floor: median(bare.stopMs) }),
    ...(other ? [figure('Kill, sandbox-runtime', 'ms', other.stopMs, { floor: median(bare.stopMs) })] : []),
  ];
}

function crowdFigures(bare: Times, berth: Times, other: Times | null, whyNot: string): Figure[] {
  const name = `${CROWD} at once`;
  const floorMs = median(bare.crowdMs);
  const bareMb = median(bare.crowdMb);
  const beyond = (times: Times) => times.crowdMb.map((mb) => mb - bareMb);
  const figures = [
    figure(`${name}, all answer, bare`, 'ms', bare.crowdMs),
    figure(`${name}, all answer, Berth`, 'ms', berth.crowdMs, { floor: floorMs }),
    figure(`${name}, all killed, Berth`, 'ms', berth.crowdStopMs, { floor: median(bare.crowdStopMs) }),
    figure(`${name}, proportional memory each, Berth`, 'MB', berth.crowdMb, { floor: bareMb }),
    figure('Idle beyond its program, processes, Berth', 'MB', beyond(berth), { target: atMost(12) }),
    figure('Idle, kernel memory with the program’s own, Berth', 'MB', berth.crowdKernelMb),
  ];
  if (!other) return [...figures, notMeasured(`${name}, sandbox-runtime`, 'ms', whyNot)];
  return [
    ...figures,
    figure(`${name}, all answer, sandbox-runtime`, 'ms', other.crowdMs, { floor: floorMs }),
    figure(`${name}, all killed, sandbox-runtime`, 'ms', other.crowdStopMs),
    figure('Idle beyond its program, processes, sandbox-runtime', 'MB', beyond(other)),
  ];
}
