import { holdsKey } from './domain/holds-key.ts';
import type { Log, LogFields } from './domain/log.ts';

export type LogLevel = 'debug' | 'info' | 'warn' | 'error' | 'silent';

const rank: Record<LogLevel, number> = { debug: 0, info: 1, warn: 2, error: 3, silent: 4 };

export interface Logger extends Log {
  /** Writes out what is waiting; call it before the process ends. */
  flush(): void;
}

/**
 * One JSON object a line. Lines of one turn of the event loop are written together. What looks like a key or a token
 * is masked, as a second net: callers never pass one.
 */
export function createLogger(level: LogLevel, write: (text: string) => void): Logger {
  let waiting = '';
  const flush = () => {
    const text = waiting;
    waiting = '';
    if (text) write(text);
  };
  const put = (severity: LogLevel, message: string, context: LogFields, fields: LogFields | undefined) => {
    if (rank[severity] < rank[level]) return;
    const line = { time: new Date().toISOString(), level: severity, message, ...context, ...fields };
    if (waiting === '') setImmediate(flush);
    waiting += `${mask(toJson(line))}\n`;
    // An error may be the last thing that this process says.
    if (severity === 'error') flush();
  };
  const make = (context: LogFields): Logger => ({
    debug: (message, fields) => put('debug', message, context, fields),
    info: (message, fields) => put('info', message, context, fields),
    warn: (message, fields) => put('warn', message, context, fields),
    error: (message, fields) => put('error', message, context, fields),
    child: (fields) => make({ ...context, ...fields }),
    flush,
  });
  return make({});
}

function toJson(line: LogFields): string {
  try {
    return JSON.stringify(line, plain);
  } catch {
    // A field refers to itself. The message is worth more than the fields.
    return JSON.stringify({ time: line['time'], level: line['level'], message: line['message'] });
  }
}

/**
 * Makes JSON of what JSON does not know: errors with their cause, and bigints. A path is what a caller has written, so a key
 * in it may be in escapes or in base64, which no pattern of a whole line sees.
 */
function plain(key: string, value: unknown): unknown {
  if (key === 'path' && typeof value === 'string' && holdsKey(mask(value))) return '[masked: it holds a key]';
  if (typeof value === 'bigint') return value.toString();
  if (!(value instanceof Error)) return value;
  const { name, message, stack, cause } = value;
  const code = 'code' in value ? value.code : undefined;
  return { name, message, code, stack, cause };
}

const secrets: [pattern: RegExp, replacement: string][] = [
  [/svc_live_[0-9A-Za-z]{7,}/g, 'svc_live_[masked]'],
  [/\b(Bearer|Basic)(\s+)[^\s"\\,]+/gi, '$1$2[masked]'],
  [/\bsk-[A-Za-z0-9_-]{12,}/g, 'sk-[masked]'],
  [/(:\/\/[^\s/"@:]*):[^\s/"@]+@/g, '$1:[masked]@'],
  [
    /"(authorization|cookie|password|secret|token|apiKey|api_key|x-api-key)":"(?:[^"\\]|\\.)*"/gi,
    '"$1":"[masked]"',
  ],
];

/** The text without whatever looks like a secret. */
export function mask(text: string): string {
  let masked = text;
  for (const [pattern, replacement] of secrets) masked = masked.replace(pattern, replacement);
  return masked;
}
