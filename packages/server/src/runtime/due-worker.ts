import type { Log } from '../domain/log.ts';

export interface DueWorker {
  /** There is work now; calls while it works are one more look. */
  wake(): void;
  start(): void;
  /** Lets what is under way end. */
  stop(): Promise<void>;
}

/** Between two looks of a busy worker: what was told of in the meantime is found together. */
const pauseMs = 15;

/** Works on what is due, and says how much that was. */
export interface DueWork {
  runDue(): Promise<number>;
}

export interface DueWorkerOptions {
  work: () => DueWork;
  /** Work that nobody told of is found after so long: that of other replicas, and what was postponed. */
  lookEveryMs: number;
  log: Log;
}

/** Works on what is due, one batch after the other; the database decides what that is, and holds it for one worker. */
export function createDueWorker({ work, lookEveryMs, log }: DueWorkerOptions): DueWorker {
  let timer: NodeJS.Timeout | undefined;
  let running: Promise<void> | null = null;
  let again = false;
  let isStopped = true;
  let lastMs = -Infinity;

  async function run(): Promise<void> {
    do {
      const waitMs = lastMs + pauseMs - performance.now();
      if (waitMs > 0) await new Promise((resolve) => setTimeout(resolve, waitMs));
      if (isStopped) return;
      again = false;
      try {
        if ((await work().runDue()) > 0) again = true;
        lastMs = performance.now();
      } catch (error) {
        log.debug('What is due could not be read; the next look tries again.', { error });
      }
    } while (again && !isStopped);
  }

  function wake(): void {
    if (isStopped) return;
    if (running) {
      again = true;
      return;
    }
    running = run().finally(() => {
      running = null;
    });
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
