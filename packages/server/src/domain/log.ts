export type LogFields = Record<string, unknown>;

/** One JSON line a call. Fields never hold secrets; the writer masks what looks like one all the same. */
export interface Log {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
  child(fields: LogFields): Log;
}
