import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';

/** Every process of a tool call carries this variable, by which also one that left its group is found again. */
export const markVariable = 'BERTH_TOOL_CALL';

const termGraceMs = 250;
/** A process that ended may leave others that hold its output, a server in the background for example. */
const outputGraceMs = 200;

export interface RunOptions {
  argv: string[];
  cwd: string;
  env: Record<string, string>;
  /** Unique for this run. */
  mark: string;
  timeoutMs: number;
  signal: AbortSignal;
  onOutput: (chunk: Buffer) => void;
}

export interface RunEnd {
  /** Null when a signal ended it. */
  code: number | null;
  signalName: string | null;
  reason: 'exit' | 'timeout' | 'cancelled' | 'failed';
  message: string;
}

/** Runs a program in a process group of its own; a time-out or a cancel ends all that it started. Never rejects. */
export function runProcess(options: RunOptions): Promise<RunEnd> {
  return new Promise((resolve) => {
    const end = (result: Partial<RunEnd>) =>
      resolve({ code: null, signalName: null, reason: 'failed', message: '', ...result });
    if (options.signal.aborted) return end({ reason: 'cancelled' });
    const [program = '', ...args] = options.argv;
    let child: ReturnType<typeof start>;
    try {
      child = start(program, args, options);
    } catch (error) {
      return end({ message: (error as Error).message });
    }
    let reason: RunEnd['reason'] = 'exit';
    const stop = (why: 'timeout' | 'cancelled') => {
      if (reason !== 'exit') return;
      reason = why;
      void killTree(child.pid, options.mark, () => child.exitCode !== null || child.signalCode !== null);
    };
    const abort = () => stop('cancelled');
    const timer = setTimeout(() => stop('timeout'), options.timeoutMs);
    options.signal.addEventListener('abort', abort, { once: true });
    const settle = (result: Partial<RunEnd>) => {
      clearTimeout(timer);
      options.signal.removeEventListener('abort', abort);
      end(result);
    };
    let settled = false;
    for (const stream of [child.stdout, child.stderr]) {
      // After the end the pipe is read on and dropped: closing it would kill a server that is left in the background.
      stream.on('data', (chunk: Buffer) => settled || options.onOutput(chunk));
      stream.on('error', () => undefined);
    }
    child.on('error', (error) => settle({ message: error.message }));
    child.on('exit', (code, signalName) => {
      const done = () => {
        if (settled) return;
        settled = true;
        clearTimeout(grace);
        settle({ code, signalName, reason });
      };
      // However late that is, what has come meanwhile is read before an immediate.
      const grace = setTimeout(() => setImmediate(done), outputGraceMs);
      child.on('close', done);
    });
  });
}

function start(program: string, args: string[], options: RunOptions) {
  return spawn(program, args, {
    cwd: options.cwd,
    env: { ...options.env, [markVariable]: options.mark },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
}

export async function killTree(pid: number | undefined, mark: string, gone: () => boolean): Promise<void> {
  if (pid === undefined) return;
  signalAll(pid, mark, 'SIGTERM');
  for (let waited = 0; waited < termGraceMs && !gone(); waited += 25) await sleep(25);
  // Repeated, since a process may fork between the reading of the list and the signal.
  for (let round = 0; round < 20 && signalAll(pid, mark, 'SIGKILL') > 0; round++) await sleep(10);
}

/** Returns how many marked processes were met. */
export function signalAll(pid: number, mark: string, signal: NodeJS.Signals): number {
  send(-pid, signal);
  const marked = markedProcesses(mark);
  for (const other of marked) send(other, signal);
  return marked.length;
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It is gone already.
  }
}

function markedProcesses(mark: string): number[] {
  const wanted = `${markVariable}=${mark}\0`;
  const found: number[] = [];
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      // A zombie's environment reads as empty, so it does not count.
      if (`${readFileSync(`/proc/${name}/environ`, 'latin1')}\0`.includes(wanted)) found.push(Number(name));
    } catch {
      // Ended meanwhile, or of somebody else.
    }
  }
  return found;
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
