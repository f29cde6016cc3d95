/**
 * Joins reads into few statements: one is under way at a time, and the next one takes all that were asked for meanwhile.
 * A statement starts after each of its callers asked, so that none is answered with something older than its request.
 * Null for what `readMany` does not return.
 */
export function batchReads<T extends { id: string }>(
  readMany: (ids: string[]) => Promise<T[]>,
  maxBatch = 200,
): (id: string) => Promise<T | null> {
  const waiting = new Map<string, PromiseWithResolvers<T | null>>();
  let isReading = false;

  async function readAll(): Promise<void> {
    while (waiting.size > 0) {
      const batch = new Map([...waiting].slice(0, maxBatch));
      for (const id of batch.keys()) waiting.delete(id);
      await readBatch(batch);
    }
    isReading = false;
  }

  async function readBatch(batch: Map<string, PromiseWithResolvers<T | null>>): Promise<void> {
    try {
      const found = new Map((await readMany([...batch.keys()])).map((row) => [row.id, row]));
      for (const [id, waiter] of batch) waiter.resolve(found.get(id) ?? null);
    } catch (error) {
      for (const waiter of batch.values()) waiter.reject(error);
    }
  }

  return (id) => {
    const same = waiting.get(id);
    if (same) return same.promise;
    const waiter = Promise.withResolvers<T | null>();
    waiting.set(id, waiter);
    if (!isReading) {
      isReading = true;
      // The check phase comes after all sockets that were readable have been read: their requests share the statement.
      setImmediate(() => void readAll());
    }
    return waiter.promise;
  };
}
