import { BerthError, isAway } from './errors.ts';
import { pause, type Send } from './http.ts';
import { readSse, type SseEvent } from './sse.ts';
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

const MAX_TRIES_AWAY = 8;

/** How the items of a stream are read, and where it is taken up again when it breaks off. */
export interface Followed<T> {
  query?: Record<string, string | undefined>;
  /** What to send as Last-Event-ID at first; null = nothing. */
  place: string | null;
  read: (sse: SseEvent) => T;
  /** What to send as Last-Event-ID to go on after this one; null = it was given out already. */
  placeAfter: (item: T) => string | null;
  /** Whether the stream is over with this one. */
  isEnd: (item: T) => boolean;
  /** Whether nothing more will come. Null: nobody can say. */
  isOver: (() => Promise<boolean>) | null;
  /** Whether a stream that ends in order has told all, whatever `isOver` says. */
  endsWhole: boolean;
}

/**
 * Follows an event stream and reconnects by Last-Event-ID: nothing is missing and nothing comes twice. With `isOver`
 * (whether the run has ended) it ends with the run; without, it goes on until `signal` aborts.
 */
export function followEvents(
  send: Send,
  path: string,
  isOver: (() => Promise<boolean>) | null,
  options: FollowOptions = {},
): AsyncGenerator<Event> {
  let after = options.after ?? 0;
  const followed: Followed<Event> = {
    place: String(after),
    read: readEvent,
    placeAfter(event) {
      if (event.seq <= after) return null;
      after = event.seq;
      return String(after);
    },
    isEnd: (event) => isOver !== null && ENDS.has(event.type),
    isOver,
    endsWhole: false,
  };
  return followStream(send, path, followed, options);
}

/** Follows any stream through lost connections, until it is over or `signal` aborts. Throws BerthError. */
export async function* followStream<T>(
  send: Send,
  path: string,
  followed: Followed<T>,
  { signal, onReconnect }: Pick<FollowOptions, 'signal' | 'onReconnect'>,
): AsyncGenerator<T> {
  const { query, isOver } = followed;
  let { place } = followed;
  for (let tries = 0; ; tries += 1) {
    if (tries > 0 && !signal?.aborted) {
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
        headers: { accept: 'text/event-stream', ...(place === null ? {} : { 'last-event-id': place }) },
        ...(query ? { query } : {}),
        ...(signal ? { signal } : {}),
      });
    } catch (error) {
      if (signal?.aborted) return;
      if (!isAway(error) || tries >= MAX_TRIES_AWAY) throw error;
      continue;
    }
    const connection = itemsOf(response, followed.read);
    try {
      for (;;) {
        const next = await connection.next();
        if (next.done) {
          if (next.value === 'whole' && (isLast || followed.endsWhole)) return;
          break;
        }
        const item = next.value;
        const placeAfter = followed.placeAfter(item);
        if (placeAfter === null) continue;
        tries = 0;
        isLast = false;
        place = placeAfter;
        yield item;
        if (followed.isEnd(item)) return;
      }
    } finally {
      // A caller that has seen enough leaves no connection behind.
      await connection.return('broken');
    }
  }
}

const readEvent = (sse: SseEvent): Event => JSON.parse(sse.data) as Event;

/** The events of one connection. One that breaks ends them as well, since the caller resumes. */
export const eventsOf = (response: Response): AsyncGenerator<Event, 'whole' | 'broken'> =>
  itemsOf(response, readEvent);

async function* itemsOf<T>(
  response: Response,
  read: (sse: SseEvent) => T,
): AsyncGenerator<T, 'whole' | 'broken'> {
  if (!response.body) return 'whole';
  try {
    for await (const sse of readSse(response.body)) yield read(sse);
    return 'whole';
  } catch (error) {
    if (error instanceof SyntaxError)
      throw new BerthError('The stream holds what is no event.', { status: response.status, cause: error });
    return 'broken';
  }
}
