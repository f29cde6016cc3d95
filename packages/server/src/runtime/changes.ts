/** Whoever waits for things to be otherwise is told that they may be, and looks again. */
export class Changes {
  #waiters: (() => void)[] = [];

  /** Resolves with the next change, or when nobody waits any more. */
  next(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        signal.removeEventListener('abort', done);
        resolve();
      };
      signal.addEventListener('abort', done, { once: true });
      this.#waiters.push(done);
    });
  }

  tell(): void {
    if (this.#waiters.length === 0) return;
    for (const waiter of this.#waiters.splice(0)) waiter();
  }
}
