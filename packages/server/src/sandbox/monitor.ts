import { setTimeout as delay } from 'node:timers/promises';
import type { ChildProcess } from 'node:child_process';
import { isRunning, killKnown, type KnownProcess } from './processes.ts';

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

/** How often it is looked whether a monitor has ended of which nobody tells, since whoever should stands still. */
const WATCH_MS = 1_000;

export interface WatchedMonitor {
  /** By whoever started it; null when that one cannot tell any more. */
  told: Promise<MonitorEnd | null>;
  init: KnownProcess;
  monitor: KnownProcess;
  exitCode: () => number | null;
  /** Whether the service lives on for it. */
  isHeld: boolean;
}

/** Of a sandbox that was started here, whose end is told, and is looked for all the same. */
export function watchedMonitor({ told, init, monitor, exitCode, isHeld }: WatchedMonitor): Monitor {
  const adopted = (): Monitor => adoptedMonitor(init, monitor, exitCode);
  const ended = new Promise<MonitorEnd>((resolve) => {
    const look = (): void => {
      if (isRunning(monitor.pid, monitor.since)) return;
      clearInterval(timer);
      // Who tells of it may only be slow.
      setTimeout(() => resolve(endWith(exitCode())), WATCH_MS);
    };
    const timer = setInterval(look, WATCH_MS);
    if (!isHeld) timer.unref();
    told
      .then((end) => {
        clearInterval(timer);
        resolve(end ?? adopted().ended);
      })
      .catch(() => undefined);
  });
  return { ended, kill: () => killKnown(monitor) };
}

const endWith = (code: number | null): MonitorEnd => ({ code, signal: code === null ? 'SIGKILL' : null });

/** Of a sandbox that was not started here nobody tells the end, so it is looked for. `exitCode` is read afterwards. */
export function adoptedMonitor(
  init: KnownProcess,
  monitor: KnownProcess,
  exitCode: () => number | null,
): Monitor {
  const wait = async (): Promise<MonitorEnd> => {
    while (isRunning(init.pid, init.since)) await delay(POLL_MS, undefined, { ref: false });
    // The monitor writes the code, and then ends itself.
    const deadline = performance.now() + LAST_WORD_MS;
    while (isRunning(monitor.pid, monitor.since) && performance.now() < deadline) await delay(POLL_MS / 5);
    return endWith(exitCode());
  };
  return {
    ended: wait(),
    kill: () => killKnown(monitor),
  };
}
