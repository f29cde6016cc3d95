/**
 * Joins the reads of one turn of the event loop into one statement. The statement starts after each of its callers
 * asked, so that none is answered with something older than its request. Null for what `readMany` does not return.
 */
export function batchReads<T extends { id: string }>(
  readMany: (ids: string[]) => Promise<T[]>,
  maxBatch = 200,
): (id: string) => Promise<T | null> {
  let waiting = new Map<string, PromiseWithResolvers<T | null>>();

  async function flush(): Promise<void> {
    if (waiting.size === 0) return;
    const batch = waiting;
    waiting = new Map();
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
    // The check phase comes after all sockets that were readable have been read: their requests share the statement.
    if (waiting.size === 1) setImmediate(flush);
    else if (waiting.size >= maxBatch) void flush();
    return waiter.promise;
  };
}
