import type { Log } from '../domain/log.ts';
import type { InboundWork } from '../services/inbound-work.ts';

export interface ChannelWorker {
  /** There is work now; calls while it works are one more look. */
  wake(): void;
  start(): void;
  /** Lets what is under way end. */
  stop(): Promise<void>;
}

/** Work that nobody told of is found after so long: that of other replicas, and what was postponed. */
const lookEveryMs = 500;

/** Works on inbound events, one batch after the other; the database decides what is due, and holds it for one worker. */
export function createChannelWorker(work: () => InboundWork, log: Log): ChannelWorker {
  let timer: NodeJS.Timeout | undefined;
  let running: Promise<void> | null = null;
  let again = false;
  let isStopped = true;

  async function run(): Promise<void> {
    do {
      again = false;
      try {
        while (!isStopped && (await work().runDue()) > 0);
      } catch (error) {
        log.debug('Inbound events could not be read; the next look tries again.', { error });
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
      await work().stop();
    },
  };
}
