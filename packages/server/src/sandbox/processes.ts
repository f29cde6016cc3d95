import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { MARK_VARIABLE } from './launch.ts';

/**
 * Only these say that what was looked for in /proc is not there any more. Any other error is about who looks (it may have no
 * descriptors left, say): whether it is there is not known then, and nothing may be ended for it.
 */
export const saysGone = (error: unknown): boolean =>
  ['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '');

/** Beside that: processes that are none of ours need not let themselves be looked at. */
export function notOurs(error: unknown): [] {
  const { code } = error as NodeJS.ErrnoException;
  if (saysGone(error) || code === 'EACCES' || code === 'EPERM') return [];
  throw error;
}

/**
 * The 22nd field of /proc/<pid>/stat (proc_pid_stat(5)): tells a process from a later one with the same number. Null when
 * there is none; throws when that cannot be told.
 */
export function startTime(pid: number): string | null {
  return statFields(pid)?.[19] ?? null;
}

/** A process, told from a later one with its number. */
export interface KnownProcess {
  pid: number;
  /** See `startTime`. */
  since: string;
}

/** A process of now; of one that has ended there is no other with its start time. Throws when that cannot be told. */
export const processOf = (pid: number): KnownProcess => ({ pid, since: startTime(pid) ?? '' });

/** Fields after the program's name, which may hold blanks and brackets; null when there is no such process. Throws when that cannot be told. */
export function statFields(pid: number): string[] | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return text.slice(text.lastIndexOf(')') + 2).split(' ');
  } catch (error) {
    if (saysGone(error)) return null;
    throw error;
  }
}

/** Whether the process told by pid and start time still is one and no zombie; true as long as that cannot be told. */
export const isRunning = (pid: number, since: string): boolean => tellsOfRunning({ pid, since }) ?? true;

/** Null: it cannot be told. */
function tellsOfRunning({ pid, since }: KnownProcess): boolean | null {
  try {
    const fields = statFields(pid);
    return fields !== null && fields[0] !== 'Z' && fields[0] !== 'X' && fields[19] === since;
  } catch {
    return null;
  }
}

/** PF_EXITING of the kernel's include/linux/sched.h. */
const EXITING_FLAG = 0x4;
const SIGKILL_BIT = 1n << 8n;

/** Whether a process was killed, or ends by itself, and still has to give back what it has. */
export function isDying(pid: number): boolean {
  try {
    return tellsOfDying(statFields(pid), readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

/** The same of what stands in /proc (proc_pid_stat(5), proc_pid_status(5)). A zombie has given back all. */
export function tellsOfDying(stat: string[] | null, status: string): boolean {
  if (stat === null || stat[0] === 'Z' || stat[0] === 'X') return false;
  if ((Number(stat[6]) & EXITING_FLAG) !== 0) return true;
  return [...status.matchAll(/^(?:SigPnd|ShdPnd):\s+([0-9a-f]+)$/gm)].some(
    ([, mask]) => (BigInt(`0x${mask}`) & SIGKILL_BIT) !== 0n,
  );
}

export function allPids(): number[] {
  return readdirSync('/proc').flatMap((name) => (/^\d+$/.test(name) ? [Number(name)] : []));
}

/** Marks of the bwrap processes on this host, with their pids. */
export function markedProcesses(): { pid: number; mark: string }[] {
  return allPids().flatMap((pid) => {
    try {
      const args = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
      return args[1] === '--setenv' && args[2] === MARK_VARIABLE && args[3] ? [{ pid, mark: args[3] }] : [];
    } catch (error) {
      return notOurs(error);
    }
  });
}

/**
 * bwrap processes that are ending: without memory, and so without the command line that held their mark, but not yet
 * gone. An init waits in this state for the last processes of its namespace.
 */
export function endingProcesses(): number[] {
  return allPids().filter((pid) => {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
      return /\(bwrap\) [^Z]/.test(stat) && readFileSync(`/proc/${pid}/statm`, 'utf8').startsWith('0 ');
    } catch (error) {
      return notOurs(error).length > 0;
    }
  });
}

const GONE_TIMEOUT_MS = 10_000;

/** Ends the bwrap processes with a mark, whoever started them; with its init goes everything in a sandbox. */
export async function endMarked(mark: string): Promise<void> {
  const left = markedProcesses().flatMap((process) => (process.mark === mark ? [process.pid] : []));
  const ends = [...left, ...endingProcesses()].map((pid) => gone(pid, startTime(pid), GONE_TIMEOUT_MS));
  for (const pid of left) tryKill(pid);
  await Promise.all(ends);
}

/** Waits until a process (told by its start time) is gone. Zombies count as gone: they run nothing any more. */
export async function gone(pid: number, since: string | null, timeoutMs: number): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  for (let waitMs = 1; ; waitMs = Math.min(waitMs * 2, 50)) {
    if (since === null || tellsOfRunning({ pid, since }) === false) return;
    if (performance.now() > deadline) throw new Error(`Process ${pid} of a sandbox does not end.`);
    await delay(waitMs);
  }
}

const SET_UP_MS = 5_000;
const LOOK_MS = 1;

/**
 * Resolves once bwrap has set up what is looked for in the first process of a sandbox, whose pid it tells before that. Also
 * resolves when the look fails, as after its end, or it takes too long: whoever goes on finds that.
 */
export async function setUp(isThere: () => boolean): Promise<void> {
  const deadline = performance.now() + SET_UP_MS;
  const isOver = (): boolean => {
    try {
      return isThere();
    } catch {
      return true;
    }
  };
  while (!isOver() && performance.now() < deadline) await delay(LOOK_MS);
}

const KILL_AGAIN_MS = 100;

/** Kills it, and no later one with its number: as long as the two cannot be told apart it is tried again. */
export function killKnown(known: KnownProcess): void {
  const runs = tellsOfRunning(known);
  if (runs === null) setTimeout(() => killKnown(known), KILL_AGAIN_MS).unref();
  else if (runs) tryKill(known.pid);
}

export function tryKill(pid: number, signal: NodeJS.Signals = 'SIGKILL'): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It ended by itself.
  }
}
