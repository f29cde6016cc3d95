import { limits } from '../../domain/limits.ts';
import { invalidRequest } from './validate.ts';

export interface Preference {
  /** How long the caller wants to wait for the end of the run. */
  waitSeconds: number;
  /** For `Preference-Applied`; null when nothing was asked. */
  applied: string | null;
}

/**
 * `Prefer: respond-async` and `Prefer: wait=N` (RFC 7240, sections 4.1 and 4.3); both together mean "wait N seconds,
 * then answer 202". Other preferences are ignored, as that RFC wants.
 */
export function readPrefer(header: string | undefined): Preference {
  if (header === undefined) return { waitSeconds: limits.waitDefaultSeconds, applied: null };
  let wait: number | null = null;
  let async = false;
  for (const part of header.split(',')) {
    const [token = '', value] = part
      .split(';')[0]!
      .split('=')
      .map((piece) => piece.trim());
    if (token.toLowerCase() === 'respond-async') async = true;
    else if (token.toLowerCase() === 'wait') wait ??= readWait(value);
  }
  if (wait !== null) return { waitSeconds: wait, applied: `${async ? 'respond-async, ' : ''}wait=${wait}` };
  if (async) return { waitSeconds: 0, applied: 'respond-async' };
  return { waitSeconds: limits.waitDefaultSeconds, applied: null };
}

function readWait(value: string | undefined): number {
  const text = value?.replace(/^"(.*)"$/, '$1') ?? '';
  const seconds = /^\d{1,6}$/.test(text) ? Number(text) : -1;
  if (seconds >= 0 && seconds <= limits.waitMaxSeconds) return seconds;
  throw invalidRequest([
    { path: 'Prefer', message: `wait must be a whole number of seconds from 0 to ${limits.waitMaxSeconds}` },
  ]);
}
