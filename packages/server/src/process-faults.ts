import type { Logger } from './logger.ts';

/** What went wrong in this process and nobody dealt with. */
export interface ProcessFaults {
  /** For the metrics, by their names. */
  gauges(): Record<string, number>;
  /** Resolves when the process is not to be trusted any more, and has to end in order. */
  broken: Promise<void>;
  /** Faults are Node's own business again. */
  release(): void;
}

/**
 * A rejection that nobody handles is the end of one piece of work, which has cleared up after itself on its way out: it is
 * logged with its stack and counted, and the service goes on, since one odd request must not end the work of everybody
 * else. An exception that nobody caught may have cut through any code, so the process ends in order, as on SIGTERM: turns
 * go on in their sandboxes until the next start. One more while it ends, and it ends at once.
 */
export function watchProcess(log: Logger, exit: (code: number) => void = process.exit): ProcessFaults {
  const { promise: broken, resolve } = Promise.withResolvers<void>();
  let rejections = 0;
  let exceptions = 0;

  const onRejection = (error: unknown): void => {
    rejections += 1;
    log.error('A failure was handled by nobody; this is a fault of the service. It goes on.', {
      error: shown(error),
    });
  };
  const onException = (error: unknown): void => {
    exceptions += 1;
    log.error('An exception was caught by nobody; this is a fault of the service. It ends.', {
      error: shown(error),
    });
    if (exceptions === 1) return resolve();
    log.flush();
    exit(1);
  };
  process.on('unhandledRejection', onRejection);
  process.on('uncaughtException', onException);
  return {
    gauges: () => ({ berth_unhandled_rejections_total: rejections }),
    broken,
    release() {
      process.off('unhandledRejection', onRejection);
      process.off('uncaughtException', onException);
    },
  };
}

/** Anything can be thrown; only errors have a stack. */
const shown = (error: unknown): unknown => (error instanceof Error ? error : String(error));
