import { readFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { readProcess } from './process-tree.ts';

/**
 * What else the machine did: the share of its processors, 0 to 1, that went to others since it was asked for. Told when
 * all processes of the bench have ended, since their time is their parent's only then.
 */
export function watchOtherWork(): () => number {
  const before = { busyMs: busyMs(), ownMs: ownMs(), atMs: performance.now() };
  return () => {
    const others = busyMs() - before.busyMs - (ownMs() - before.ownMs);
    return Math.max(0, others / ((performance.now() - before.atMs) * cpus().length));
  };
}

const ownMs = (): number => readProcess(process.pid)!.cpuMs;

/** Of all processors, without what they waited (proc(5), "stat"; a tick has ten milliseconds). */
function busyMs(): number {
  const [, user, nice, system, , , irq, softIrq] = readFileSync('/proc/stat', 'utf8')
    .slice(0, 200)
    .split('\n')[0]!
    .split(/ +/)
    .map(Number) as [number, number, number, number, number, number, number, number];
  return (user + nice + system + irq + softIrq) * 10;
}
