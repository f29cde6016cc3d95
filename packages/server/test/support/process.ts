import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';

export interface LineProcess {
  child: ChildProcess;
  /** Every line of standard output so far, parsed as JSON. */
  lines: Record<string, unknown>[];
  /** What it wrote to standard error so far. */
  complaints: () => string;
  /** Resolves when it has ended, and all that it wrote is in `lines`. */
  ended: Promise<void>;
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
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  return {
    child,
    lines,
    complaints: () => complaints,
    ended,
    async kill9() {
      child.kill('SIGKILL');
      await exited;
    },
  };
}
