/**
 * Joins reads without ever giving a result that is older than its asking: who asks while one is under way gets the
 * next. So there is one read at a time, however many ask.
 */
export function freshReads<T>(read: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | null = null;
  let next: Promise<T> | null = null;

  function start(): Promise<T> {
    const mine = read().finally(() => {
      if (running === mine) running = null;
    });
    running = mine;
    return mine;
  }

  return () => {
    // For a moment the one before has ended and this one has not begun.
    if (next) return next;
    if (!running) return start();
    next = running.then(
      () => startNext(),
      () => startNext(),
    );
    return next;
  };

  function startNext(): Promise<T> {
    next = null;
    return start();
  }
}
