import { setTimeout as delay } from 'node:timers/promises';
import type { ChildProcess } from 'node:child_process';
import { isRunning, tryKill } from './processes.ts';

/** How the process that watches over a sandbox ended: with the code of the sandbox's first program. */
export interface MonitorEnd {
  code: number | null;
  signal: string | null;
}

/** The process outside of a sandbox that waits for its end: our child, or that of an earlier service. */
export interface Monitor {
  readonly ended: Promise<MonitorEnd>;
  kill(): void;
}

const POLL_MS = 50;
/** For a monitor that gets no CPU: without its word nobody knows the exit code. */
const LAST_WORD_MS = 10_000;

export function childMonitor(child: ChildProcess): Monitor {
  const ended =
    child.exitCode !== null || child.signalCode !== null
      ? Promise.resolve({ code: child.exitCode, signal: child.signalCode })
      : new Promise<MonitorEnd>((resolve) => {
          child.once('exit', (code, signal) => resolve({ code, signal }));
        });
  return { ended, kill: () => void child.kill('SIGKILL') };
}

export interface AdoptedProcess {
  pid: number;
  /** See `startTime`. */
  since: string;
}

/** Of a sandbox that was not started here nobody tells the end, so it is looked for. `exitCode` is read afterwards. */
export function adoptedMonitor(
  init: AdoptedProcess,
  monitor: AdoptedProcess,
  exitCode: () => number | null,
): Monitor {
  const wait = async (): Promise<MonitorEnd> => {
    while (isRunning(init.pid, init.since)) await delay(POLL_MS, undefined, { ref: false });
    // The monitor writes the code, and then ends itself.
    const deadline = performance.now() + LAST_WORD_MS;
    while (isRunning(monitor.pid, monitor.since) && performance.now() < deadline) await delay(POLL_MS / 5);
    const code = exitCode();
    return { code, signal: code === null ? 'SIGKILL' : null };
  };
  return {
    ended: wait(),
    kill: () => {
      if (isRunning(monitor.pid, monitor.since)) tryKill(monitor.pid);
    },
  };
}
