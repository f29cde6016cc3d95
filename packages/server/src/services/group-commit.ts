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
  maxWaiting: number;
  maxWaitingBytes: number;
  parallel: number;
}

interface Waiting<T> {
  items: T[];
  bytes: number;
  done: () => void;
  failed: (error: unknown) => void;
}

interface Lane<T> {
  queue: Waiting<T>[];
  parallel: number;
  running: number;
}

/**
 * Items that arrive while a commit runs go together in the next one. Resolves when what was given is durable; throws
 * `unavailable` at once when too much waits. `reserved` ones still find room when others do not. A batch holds what is
 * many callers', so that it is never written within the transaction that one of them has open.
 */
export function createGroupCommit<T>(options: GroupCommitOptions<T>) {
  const apart = AsyncLocalStorage.snapshot();
  const ordinary: Lane<T> = { queue: [], parallel: options.parallel, running: 0 };
  const large: Lane<T> = { queue: [], parallel: 1, running: 0 };
  let waiting = 0;
  let waitingBytes = 0;

  async function run({ queue }: Lane<T>): Promise<void> {
    const batch: Waiting<T>[] = [];
    let count = 0;
    let bytes = 0;
    while (
      queue.length > 0 &&
      count < options.maxBatch &&
      (batch.length === 0 || bytes < options.maxBatchBytes)
    ) {
      const next = queue.shift()!;
      batch.push(next);
      count += next.items.length;
      bytes += next.bytes;
    }
    await write(batch);
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
      if (waiting >= options.maxWaiting * room || waitingBytes >= options.maxWaitingBytes * room) {
        throw new DomainError('unavailable', 'Too much comes in at once; send it again.', {
          retryAfterSeconds: 5,
        });
      }
      const bytes = items.reduce((sum, item) => sum + options.sizeOf(item), 0);
      waiting += items.length;
      waitingBytes += bytes;
      const lane = bytes > options.largeBytes ? large : ordinary;
      const written = new Promise<void>((done, failed) => lane.queue.push({ items, bytes, done, failed }));
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
