import { AsyncLocalStorage } from 'node:async_hooks';
import type { Log } from '../domain/log.ts';
import { within } from '../domain/time-limit.ts';

export interface DueWorker {
  /** There is work now; calls while it works are one more look. Whoever wrote it has committed it. */
  wake(): void;
  start(): void;
  /** Lets what is under way end. */
  stop(): Promise<void>;
}

/** Between two looks of a busy worker: what was told of in the meantime is found together. */
const pauseMs = 15;
/** A look that takes longer is left to itself, and the next one begins: longer than any statement takes. */
const lookMs = 120_000;
/** Of the failures that follow each other, the first is told, and one in so long. */
const tellEveryMs = 60_000;

/** Works on what is due, and says how much that was. */
export interface DueWork {
  runDue(): Promise<number>;
}

export interface DueWorkerOptions {
  work: () => DueWork;
  /** Work that nobody told of is found after so long: that of other replicas, and what was postponed. */
  lookEveryMs: number;
  log: Log;
  /** Default: two minutes. */
  longestLookMs?: number;
}

/**
 * Works on what is due, one batch after the other; the database decides what that is, and holds it for one worker. No
 * look is without an end, and none is part of what the caller of `wake` has open (a transaction, above all).
 */
export function createDueWorker(options: DueWorkerOptions): DueWorker {
  const { work, lookEveryMs, log, longestLookMs = lookMs } = options;
  const apart = AsyncLocalStorage.snapshot();
  let timer: NodeJS.Timeout | undefined;
  let running: Promise<void> | null = null;
  let again = false;
  let isStopped = true;
  let lastMs = -Infinity;
  let toldMs = -Infinity;

  async function look(): Promise<number> {
    try {
      return await within(longestLookMs, work().runDue(), () => {
        throw new Error(`A look at what is due has not ended after ${longestLookMs} ms.`);
      });
    } catch (error) {
      const isTold = performance.now() - toldMs < tellEveryMs;
      if (!isTold) toldMs = performance.now();
      const message = 'What is due could not be read; the next look tries again.';
      if (isTold) log.debug(message, { error });
      else log.warn(message, { error });
      return 0;
    } finally {
      lastMs = performance.now();
    }
  }

  async function run(): Promise<void> {
    do {
      const waitMs = lastMs + pauseMs - performance.now();
      if (waitMs > 0) await new Promise((resolve) => setTimeout(resolve, waitMs));
      if (isStopped) break;
      again = false;
      if ((await look()) > 0) again = true;
    } while (again && !isStopped);
    // In the same breath as the decision: whoever calls from now on begins anew.
    running = null;
  }

  function wake(): void {
    if (isStopped) return;
    if (running) again = true;
    else running = apart(run);
  }

  return {
    wake,
    start() {
      isStopped = false;
      timer = setInterval(wake, lookEveryMs);
      wake();
    },
    async stop() {
      isStopped = true;
      clearInterval(timer);
      await running;
    },
  };
}
