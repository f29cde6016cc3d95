import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';

const lookMs = 10;
/** For what the kernel cannot end at once, since it waits for a disk. */
const maxWaitMs = 5000;

/**
 * Ends all that runs beside this process in its sandbox: a sandbox is as long there as one of them, and after its launcher
 * nobody may be left to end it. SIGTERM first, for `graceMs`. Resolves when none is left.
 */
export async function endOthers(graceMs: number): Promise<void> {
  const others = isAloneHere() ? ofNamespace : ofTree;
  if (graceMs > 0) {
    others('SIGTERM');
    await noneLeft(() => others(null), graceMs);
  }
  await noneLeft(() => others('SIGKILL'), maxWaitMs);
}

async function noneLeft(count: () => number, limitMs: number): Promise<void> {
  const untilMs = performance.now() + limitMs;
  while (count() > 0 && performance.now() < untilMs) await delay(lookMs);
}

/**
 * Whether this PID namespace is there for nobody but this process: its init was told to run exactly this. Anything less
 * would let a launcher outside of a sandbox end the processes of the whole machine.
 */
function isAloneHere(): boolean {
  if (process.ppid !== 1) return false;
  const [init, own] = [read(1, 'cmdline'), read('self', 'cmdline')];
  return own !== '' && init.endsWith(`\0${own}`);
}

/** Sends to everything but the init and this process; the kernel lets no fork get away from it. Returns how many run. */
function ofNamespace(signal: NodeJS.Signals | null): number {
  if (signal !== null) send(-1, signal);
  return listed().filter((one) => one.pid !== 1 && one.pid !== process.pid).length;
}

/**
 * The same where other processes of the machine are in sight: of what this one has started, and of what the driver of plain
 * processes has marked as being of the same sandbox.
 */
function ofTree(signal: NodeJS.Signals | null): number {
  const running = listed();
  const parents = new Map(running.map(({ pid, parent }) => [pid, parent]));
  const above = new Set<number>();
  for (let pid = process.ppid; pid > 0 && !above.has(pid); pid = parents.get(pid) ?? 0) above.add(pid);
  const { BERTH_SANDBOX_ROOT: root, BERTH_SANDBOX: mark } = process.env;
  const marked = root === undefined ? null : `\0BERTH_SANDBOX=${mark}\0`;
  const found = new Set<number>([process.pid]);
  for (const { pid } of running)
    if (marked !== null && `\0${read(pid, 'environ')}\0`.includes(marked)) found.add(pid);
  for (let before = 0; before < found.size;) {
    before = found.size;
    for (const { pid, parent } of running) if (found.has(parent)) found.add(pid);
  }
  const others = running.filter(({ pid }) => found.has(pid) && pid !== process.pid && !above.has(pid));
  if (signal !== null) for (const { pid } of others) send(pid, signal);
  return others.length;
}

/** Zombies have ended, whether somebody asked for them or not. */
function listed(): { pid: number; parent: number }[] {
  return readdirSync('/proc').flatMap((name) => {
    if (!/^\d+$/.test(name)) return [];
    const stat = read(Number(name), 'stat');
    // After the program's name, which may hold blanks and brackets.
    const [state, parent] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return stat === '' || state === 'Z' || state === 'X'
      ? []
      : [{ pid: Number(name), parent: Number(parent) }];
  });
}

/** Empty when it has ended meanwhile, or is of somebody else. */
function read(pid: number | 'self', file: 'cmdline' | 'environ' | 'stat'): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'latin1');
  } catch {
    return '';
  }
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It has ended already.
  }
}
