import { BerthError } from './errors.ts';
import { pause, type Send } from './http.ts';
import { readSse } from './sse.ts';
import type { Event } from './types.ts';

/** After these a run's stream ends. */
export const ENDS: ReadonlySet<string> = new Set(['run.completed', 'run.failed', 'run.cancelled']);

export interface FollowOptions {
  /** Only events with a greater seq. Default 0: all. */
  after?: number;
  signal?: AbortSignal;
  /** Told before each reconnect. */
  onReconnect?: (attempt: number) => void;
}

/**
 * Follows an event stream and reconnects by Last-Event-ID until it ends by itself: nothing is missing and nothing
 * comes twice. `endsWithRun`: the stream ends with its run; else it goes on until `signal` aborts.
 */
export async function* followEvents(
  send: Send,
  path: string,
  endsWithRun: boolean,
  options: FollowOptions = {},
): AsyncGenerator<Event> {
  let after = options.after ?? 0;
  for (let attempt = 0; ;) {
    let response: Response;
    try {
      const headers: Record<string, string> = { accept: 'text/event-stream', 'last-event-id': String(after) };
      response = await send('GET', path, { headers, ...(options.signal ? { signal: options.signal } : {}) });
    } catch (error) {
      // `send` has tried several times already; only a service that is away is worth a longer wait.
      if (options.signal?.aborted || !(error instanceof BerthError) || error.status !== 0 || attempt >= 8)
        throw error;
      attempt += 1;
      options.onReconnect?.(attempt);
      await pause(Math.min(500 * 2 ** attempt, 15_000), options.signal);
      continue;
    }
    for await (const event of eventsOf(response, options.signal)) {
      attempt = 0;
      if (event.seq <= after) continue;
      after = event.seq;
      yield event;
      if (endsWithRun && ENDS.has(event.type)) return;
    }
    if (options.signal?.aborted) return;
    attempt += 1;
    options.onReconnect?.(attempt);
    await pause(Math.min(100 * 2 ** attempt, 5_000), options.signal);
  }
}

/** The events of one connection; a connection that breaks ends it quietly, since the caller resumes. */
export async function* eventsOf(response: Response, signal?: AbortSignal): AsyncGenerator<Event> {
  if (!response.body) return;
  try {
    for await (const sse of readSse(response.body)) yield JSON.parse(sse.data) as Event;
  } catch (error) {
    if (signal?.aborted) return;
    if (error instanceof SyntaxError) throw error;
  }
}
