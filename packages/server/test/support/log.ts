import type { Log } from '../../src/domain/log.ts';

/** For tests that have no interest in the log. */
export const silentLog: Log = {
  debug() {},
  info() {},
  warn() {},
  error() {},
  child: () => silentLog,
};
