import { AsyncLocalStorage } from 'node:async_hooks';
import { isDatabaseAway } from '../domain/database-away.ts';
import { DomainError } from '../domain/errors.ts';

export interface GroupCommitOptions<T> {
  /** Writes all of them, or throws. */
  write(items: T[]): Promise<void>;
  sizeOf(item: T): number;
  maxBatch: number;
  maxBatchBytes: number;
  /** What is larger goes in batches of its own, one at a time beside the others, which do not wait for it. */
  largeBytes: number;
  /** A batch of large ones; whoever comes next waits for no more than that. */
  maxLargeBatchBytes: number;
  /** Of large ones that wait for one owner: beyond it only more of its own are refused, beyond twice that reserved ones too. */
  maxLargeWaitingBytes: number;
  ownerOf(item: T): string;
  maxWaiting: number;
  maxWaitingBytes: number;
  parallel: number;
}

interface Waiting<T> {
  items: T[];
  bytes: number;
  owner: string;
  isReserved: boolean;
  done: () => void;
  failed: (error: unknown) => void;
}

interface Lane<T> {
  queue: Waiting<T>[];
  parallel: number;
  running: number;
  batchBytes: number;
  /** The place in the queue of what goes next. */
  next(queue: Waiting<T>[]): number;
}

/** The owners in turns: that whose turn was the longest ago, and of it what is reserved first, then the oldest. */
function inTurns<T>(): Lane<T>['next'] {
  let turns = new Map<string, number>();
  let clock = 0;
  const turnOf = ({ owner }: Waiting<T>) => turns.get(owner) ?? 0;
  const goesBefore = (one: Waiting<T>, other: Waiting<T>) =>
    one.owner === other.owner ? one.isReserved && !other.isReserved : turnOf(one) < turnOf(other);
  return (queue) => {
    let best = 0;
    for (const [at, one] of queue.entries()) if (goesBefore(one, queue[best]!)) best = at;
    // Of owners that have nothing here any more nothing is kept for long.
    if (turns.size > 2 * queue.length + 10)
      turns = new Map(queue.map((one) => [one.owner, turnOf(one)] as const));
    turns.set(queue[best]!.owner, ++clock);
    return best;
  };
}

/**
 * Items that arrive while a commit runs go together in the next one. Resolves when what was given is durable; throws
 * `unavailable` at once when too much waits. `reserved` ones still find room when others do not. A batch holds what is
 * many callers', so that it is never written within the transaction that one of them has open.
 */
export function createGroupCommit<T>(options: GroupCommitOptions<T>) {
  const apart = AsyncLocalStorage.snapshot();
  const ordinary: Lane<T> = {
    queue: [],
    parallel: options.parallel,
    running: 0,
    batchBytes: options.maxBatchBytes,
    next: () => 0,
  };
  const large: Lane<T> = {
    queue: [],
    parallel: 1,
    running: 0,
    batchBytes: options.maxLargeBatchBytes,
    next: inTurns(),
  };
  let waiting = 0;
  let waitingBytes = 0;

  async function run({ queue, batchBytes, next: placeOfNext }: Lane<T>): Promise<void> {
    const batch: Waiting<T>[] = [];
    let count = 0;
    let bytes = 0;
    while (queue.length > 0 && count < options.maxBatch && (batch.length === 0 || bytes < batchBytes)) {
      const place = placeOfNext(queue);
      const next = place === 0 ? queue.shift()! : queue.splice(place, 1)[0]!;
      batch.push(next);
      count += next.items.length;
      bytes += next.bytes;
    }
    await write(batch);
  }

  function largeBytesOf(owner: string): number {
    return large.queue.reduce((sum, one) => sum + (one.owner === owner ? one.bytes : 0), 0);
  }

  function leave({ items, bytes }: Waiting<T>): void {
    waiting -= items.length;
    waitingBytes -= bytes;
  }

  /** One that cannot be written must not take its neighbours with it: what fails is tried again in halves. */
  async function write(batch: Waiting<T>[]): Promise<void> {
    try {
      await options.write(batch.flatMap(({ items }) => items));
      for (const one of batch) {
        leave(one);
        one.done();
      }
    } catch (error) {
      if (batch.length === 1 || isAway(error)) {
        for (const one of batch) {
          leave(one);
          one.failed(error);
        }
        return;
      }
      const half = batch.length >> 1;
      await write(batch.slice(0, half));
      await write(batch.slice(half));
    }
  }

  function pump(lane: Lane<T>): void {
    while (lane.running < lane.parallel && lane.queue.length > 0) {
      lane.running += 1;
      void run(lane).finally(() => {
        lane.running -= 1;
        pump(lane);
      });
    }
  }

  return {
    add(items: T[], isReserved: boolean): Promise<void> {
      const room = isReserved ? 1 : 0.9;
      const bytes = items.reduce((sum, item) => sum + options.sizeOf(item), 0);
      const owner = options.ownerOf(items[0]!);
      const isLarge = bytes > options.largeBytes;
      const isFull = waiting >= options.maxWaiting * room || waitingBytes >= options.maxWaitingBytes * room;
      if (isFull || (isLarge && largeBytesOf(owner) >= options.maxLargeWaitingBytes * (isReserved ? 2 : 1))) {
        throw new DomainError('unavailable', 'Too much comes in at once; send it again.', {
          retryAfterSeconds: 5,
        });
      }
      waiting += items.length;
      waitingBytes += bytes;
      const lane = isLarge ? large : ordinary;
      const written = new Promise<void>((done, failed) =>
        lane.queue.push({ items, bytes, owner, isReserved, done, failed }),
      );
      // What arrives in the same turn of the event loop goes together.
      setImmediate(apart, pump, lane);
      return written;
    },
    get waiting() {
      return waiting;
    },
  };
}

const isAway = (error: unknown) =>
  isDatabaseAway(error) || (error instanceof DomainError && error.code === 'unavailable');
