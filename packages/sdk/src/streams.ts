import { BerthError } from './errors.ts';
import { pause, type Send } from './http.ts';
import { readSse } from './sse.ts';
import type { Event } from './types.ts';

/** After these a run's stream ends. */
export const ENDS: ReadonlySet<string> = new Set(['run.completed', 'run.failed', 'run.cancelled']);

export interface FollowOptions {
  /** Only events with a greater seq. Default 0: all. */
  after?: number;
  /** Ends the stream quietly. */
  signal?: AbortSignal;
  /** Told before each reconnect, with their number since the last event. */
  onReconnect?: (attempt: number) => void;
}

/** What a service answers, or does not, while it restarts. */
const AWAY = new Set([0, 502, 503, 504]);
const MAX_TRIES_AWAY = 8;

/**
 * Follows an event stream and reconnects by Last-Event-ID: nothing is missing and nothing comes twice. With `isOver`
 * (whether the run has ended) it ends with the run; without, it goes on until `signal` aborts.
 */
export async function* followEvents(
  send: Send,
  path: string,
  isOver: (() => Promise<boolean>) | null,
  options: FollowOptions = {},
): AsyncGenerator<Event> {
  const { signal, onReconnect } = options;
  let after = options.after ?? 0;
  for (let tries = 0; ; tries += 1) {
    if (tries > 0) {
      onReconnect?.(tries);
      await pause(Math.min(100 * 2 ** tries, 15_000), signal).catch(() => undefined);
    }
    if (signal?.aborted) return;
    // A run that was over before the connection, and of which nothing more came, has nothing more to come.
    let isLast: boolean;
    let response: Response;
    try {
      isLast = tries > 0 && isOver !== null && (await isOver());
      response = await send('GET', path, {
        headers: { accept: 'text/event-stream', 'last-event-id': String(after) },
        ...(signal ? { signal } : {}),
      });
    } catch (error) {
      if (signal?.aborted) return;
      if (!(error instanceof BerthError) || !AWAY.has(error.status) || tries >= MAX_TRIES_AWAY) throw error;
      continue;
    }
    const connection = eventsOf(response);
    try {
      for (;;) {
        const next = await connection.next();
        if (next.done) {
          if (isLast && next.value === 'whole') return;
          break;
        }
        const event = next.value;
        if (event.seq <= after) continue;
        tries = 0;
        isLast = false;
        after = event.seq;
        yield event;
        if (isOver !== null && ENDS.has(event.type)) return;
      }
    } finally {
      // A caller that has seen enough leaves no connection behind.
      await connection.return('broken');
    }
  }
}

/** The events of one connection. One that breaks ends them as well, since the caller resumes. */
export async function* eventsOf(response: Response): AsyncGenerator<Event, 'whole' | 'broken'> {
  if (!response.body) return 'whole';
  try {
    for await (const sse of readSse(response.body)) yield JSON.parse(sse.data) as Event;
    return 'whole';
  } catch (error) {
    if (error instanceof SyntaxError)
      throw new BerthError('The stream holds what is no event.', { status: response.status, cause: error });
    return 'broken';
  }
}
