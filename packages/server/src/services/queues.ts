/** Does work of one key one after another, in the order in which it was asked for. */
export type Queues = <T>(key: string, work: () => Promise<T>) => Promise<T>;

export function createQueues(): Queues {
  const tails = new Map<string, Promise<unknown>>();
  return async <T>(key: string, work: () => Promise<T>): Promise<T> => {
    const mine = (tails.get(key) ?? Promise.resolve()).then(work, work);
    const tail = mine
      .catch(() => undefined)
      .then(() => {
        if (tails.get(key) === tail) tails.delete(key);
      });
    tails.set(key, tail);
    return mine;
  };
}
