import { DomainError } from '../domain/errors.ts';

export interface GroupCommitOptions<T> {
  /** Writes all of them, or throws. */
  write(items: T[]): Promise<void>;
  sizeOf(item: T): number;
  maxBatch: number;
  maxBatchBytes: number;
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

/**
 * Items that arrive while a commit runs go together in the next one. Resolves when what was given is durable; throws
 * `unavailable` at once when too much waits. `reserved` ones still find room when others do not.
 */
export function createGroupCommit<T>(options: GroupCommitOptions<T>) {
  const queue: Waiting<T>[] = [];
  let running = 0;
  let waiting = 0;
  let waitingBytes = 0;

  async function run(): Promise<void> {
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
    try {
      await options.write(batch.flatMap(({ items }) => items));
      for (const { done } of batch) done();
    } catch (error) {
      for (const { failed } of batch) failed(error);
    } finally {
      waiting -= count;
      waitingBytes -= bytes;
    }
  }

  function pump(): void {
    while (running < options.parallel && queue.length > 0) {
      running += 1;
      void run().finally(() => {
        running -= 1;
        pump();
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
      const written = new Promise<void>((done, failed) => queue.push({ items, bytes, done, failed }));
      // What arrives in the same turn of the event loop goes together.
      setImmediate(pump);
      return written;
    },
    get waiting() {
      return waiting;
    },
  };
}
