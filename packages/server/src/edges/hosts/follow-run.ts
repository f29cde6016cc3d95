import type { ConversationEvent } from '../../domain/events.ts';
import type { EventSink, EventsService } from '../../services/api.ts';
import type { Principal } from '../../domain/nouns.ts';

/** So many events wait for a slow reader; then the log is read again from where it is. */
const maxWaiting = 1_000;

/** `waitMs`: it ends after this time. `isPatient`: nobody is shown what comes as it comes (`EventsService.follow`). */
export interface Patience {
  waitMs?: number;
  isPatient?: boolean;
}

/**
 * The events of a run after `after`, in batches as they come, until its end, the abort, or the service's shutdown. Not
 * more than a few are held: a reader that is slow reads from the log.
 */
export async function* followRun(
  events: Pick<EventsService, 'follow'>,
  caller: Principal,
  runId: string,
  after: number,
  signal: AbortSignal,
  { waitMs, isPatient = false }: Patience = {},
): AsyncGenerator<ConversationEvent[], void, undefined> {
  let cursor = after;
  let isOver = signal.aborted;
  let queue = new Queue();
  const end = () => {
    isOver = true;
    queue.end();
  };
  signal.addEventListener('abort', end, { once: true });
  const timer = waitMs === undefined ? undefined : setTimeout(end, waitMs);
  try {
    for (; !isOver; queue = new Queue()) {
      const stop = await events.follow(caller, { runId }, cursor, queue, isPatient);
      try {
        for (let batch = await queue.next(); batch !== null; batch = await queue.next()) {
          cursor = batch.at(-1)!.seq;
          yield batch;
          if (isOver) return;
        }
      } finally {
        stop();
      }
      if (!queue.wasFull) return;
    }
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', end);
  }
}

class Queue implements EventSink {
  wasFull = false;
  #batches: ConversationEvent[][] = [];
  #waiting = 0;
  #isEnded = false;
  #wake: (() => void) | null = null;
  #onDrained: (() => void)[] = [];

  write(events: ConversationEvent[]): boolean {
    if (this.#isEnded) return false;
    if (this.#waiting > maxWaiting) {
      this.wasFull = true;
      this.end();
      return false;
    }
    this.#batches.push(events);
    this.#waiting += events.length;
    this.#notify();
    return true;
  }

  drained(): Promise<void> {
    if (this.#waiting === 0 || this.#isEnded) return Promise.resolve();
    return new Promise((resolve) => this.#onDrained.push(resolve));
  }

  end(): void {
    this.#isEnded = true;
    this.#notify();
    this.#drain();
  }

  /** Null: there is no more. */
  async next(): Promise<ConversationEvent[] | null> {
    for (;;) {
      const batch = this.#batches.shift();
      if (batch) {
        this.#waiting -= batch.length;
        return batch;
      }
      if (this.#isEnded) return null;
      const woken = new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#drain();
      await woken;
    }
  }

  #notify(): void {
    this.#wake?.();
    this.#wake = null;
  }

  #drain(): void {
    for (const resolve of this.#onDrained.splice(0)) resolve();
  }
}
