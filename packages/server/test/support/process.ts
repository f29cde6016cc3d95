import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';

export interface LineProcess {
  child: ChildProcess;
  /** Every line of standard output so far, parsed as JSON. */
  lines: Record<string, unknown>[];
  /** What it wrote to standard error so far. */
  complaints: () => string;
  kill9(): Promise<void>;
}

/** Starts a program that speaks JSON lines; `as` is the user to run it under. */
export function startLines(
  command: string,
  args: string[],
  as: { uid?: number; gid?: number } = {},
): LineProcess {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], cwd: '/', ...as });
  const lines: Record<string, unknown>[] = [];
  let complaints = '';
  createInterface(child.stdout).on('line', (line) => lines.push(JSON.parse(line) as Record<string, unknown>));
  child.stderr.on('data', (chunk: Buffer) => (complaints += chunk.toString()));
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  return {
    child,
    lines,
    complaints: () => complaints,
    async kill9() {
      child.kill('SIGKILL');
      await exited;
    },
  };
}

/** What `promise` gives; throws with `what` when it gives nothing in time. */
export async function within<T>(deadlineMs: number, what: string, promise: PromiseLike<T>): Promise<T> {
  const deadline = new AbortController();
  const late = delay(deadlineMs, undefined, { signal: deadline.signal }).then(() => {
    throw new Error(`Waited ${deadlineMs} ms in vain: ${what}.`);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    deadline.abort();
    late.catch(() => undefined);
  }
}

/** Waits until `condition` gives something other than false, null or undefined; throws with `what` at the deadline. */
export async function until<T>(
  what: string,
  condition: () => T | Promise<T>,
  deadlineMs = 30_000,
): Promise<NonNullable<T>> {
  const end = Date.now() + deadlineMs;
  for (;;) {
    // A condition that never answers is one that does not hold.
    const value = await within(Math.max(end - Date.now(), 20), what, Promise.resolve(condition()));
    if (value) return value;
    if (Date.now() > end) throw new Error(`Waited ${deadlineMs} ms in vain: ${what}.`);
    await delay(20);
  }
}
