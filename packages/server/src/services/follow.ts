import type { ConversationEvent } from '../domain/events.ts';
import type { EventSink } from './api.ts';
import type { Hub } from './hub.ts';

export interface FollowSource {
  conversationId: string;
  /** Set: only this run's events, and the end after the one that ends it. */
  runId: string | null;
  after: number;
  /** The sink shows nobody what comes meanwhile (`Hub.subscribe`). */
  isPatient: boolean;
  /** What is known to follow the cursor, up to the end of the log: then the log needs no reading at first. */
  opening: ConversationEvent[];
  /** Oldest first, of the whole conversation. */
  read: (after: number) => Promise<{ events: ConversationEvent[]; isAll: boolean }>;
  endsRun: (event: ConversationEvent) => boolean;
  onError: (error: unknown) => void;
}

/**
 * Gives a sink everything after a cursor, then what comes: first from the log, then live from the hub. `cursor` is
 * the last seq of the conversation that was looked at; an event is handed on only when it is the next one, so nothing
 * can be missing or twice. Whenever that is not so (another replica wrote, a slow read), the log is read again. When the
 * service drains it ends; but whoever has just come gets first what there is.
 */
export function follow(
  hub: Hub,
  source: FollowSource,
  sink: EventSink,
  /** Told once, however it came to its end. Never before this function has returned. */
  onStop: () => void,
): { stop(): void; end(): void } {
  let cursor = source.after;
  let isStopped = false;
  let isReading = false;
  let isStale = source.opening.length === 0;
  /** What was there when it began has not been handed on yet. */
  let isOwed = true;
  let isDraining = false;
  const stopListening = hub.subscribe(source.conversationId, onEvents, source.isPatient);
  const stopDraining = hub.onDrain(() => {
    isDraining = true;
    if (!isOwed) end();
  });

  function stop(): void {
    if (isStopped) return;
    isStopped = true;
    onStop();
    stopListening();
    stopDraining();
  }

  function end(): void {
    if (isStopped) return;
    stop();
    sink.end();
  }

  /** False: the follower is done. */
  function deliver(events: ConversationEvent[]): boolean {
    const wanted: ConversationEvent[] = [];
    let isOver = false;
    for (const event of events) {
      if (event.seq <= cursor) {
        // A cursor beyond the run's end, which is made up, must not keep its stream open for ever.
        if (event.runId === source.runId && source.endsRun(event)) isOver = true;
        continue;
      }
      cursor = event.seq;
      if (source.runId !== null && event.runId !== source.runId) continue;
      wanted.push(event);
      if (source.runId !== null && source.endsRun(event)) {
        isOver = true;
        break;
      }
    }
    isOwed = false;
    if (wanted.length > 0 && !sink.write(wanted)) stop();
    else if (isOver || isDraining) end();
    return !isStopped;
  }

  function onEvents(events: ConversationEvent[] | null): void {
    if (isStopped) return;
    const isNext = events !== null && events.length > 0 && events[0]!.seq <= cursor + 1;
    if (isNext && !isReading && !isStale) deliver(events);
    else {
      isStale = true;
      if (!isReading) void read();
    }
  }

  async function read(): Promise<void> {
    isReading = true;
    try {
      while (isStale && !isStopped) {
        isStale = false;
        const { events, isAll } = await source.read(cursor);
        if (isStopped || !deliver(events)) return;
        if (isAll) continue;
        isStale = true;
        await sink.drained();
      }
    } catch (error) {
      // The sink ends; its client resumes from where it was.
      source.onError(error);
      end();
    } finally {
      isReading = false;
    }
  }

  if (isStale) void read();
  else queueMicrotask(() => void (isStopped || deliver(source.opening)));
  return { stop, end };
}
