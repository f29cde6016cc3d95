/** More work than the gate holds or lets wait. */
export class GateFull extends Error {}

interface Waiting {
  start(): void;
}

/**
 * Bounds how much goes on at once, over all keys and per key. Of one key the first that came is served first; keys take turns, so
 * that one with much to do holds up another by one thing at a time. With `perKey` of one it is a lock per key.
 */
export class KeyGate {
  readonly #total: number;
  readonly #perKey: number;
  readonly #maxWaiting: number;
  readonly #busy = new Map<string, number>();
  #busyTotal = 0;
  /** In the order in which keys have their turns. */
  readonly #waiting = new Map<string, Waiting[]>();
  #waitingTotal = 0;

  constructor(limits: { total: number; perKey: number; maxWaiting: number }) {
    this.#total = limits.total;
    this.#perKey = limits.perKey;
    this.#maxWaiting = limits.maxWaiting;
  }

  /** Resolves with the function that gives the place back; rejects with GateFull, or with the signal's reason. */
  enter(key: string, signal?: AbortSignal): Promise<() => void> {
    if (this.#hasRoom(key)) return Promise.resolve(this.#take(key));
    if (this.#waitingTotal >= this.#maxWaiting) return Promise.reject(new GateFull());
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        const queue = this.#waiting.get(key) ?? [];
        this.#keep(
          key,
          queue.filter((other) => other !== entry),
        );
        this.#waitingTotal -= 1;
        reject(signal?.reason);
      };
      const entry = {
        start: () => {
          signal?.removeEventListener('abort', leave);
          resolve(this.#take(key));
        },
      };
      const queue = this.#waiting.get(key);
      if (queue) queue.push(entry);
      else this.#waiting.set(key, [entry]);
      this.#waitingTotal += 1;
      signal?.addEventListener('abort', leave, { once: true });
    });
  }

  #hasRoom(key: string): boolean {
    return this.#busyTotal < this.#total && (this.#busy.get(key) ?? 0) < this.#perKey;
  }

  #take(key: string): () => void {
    this.#busyTotal += 1;
    this.#busy.set(key, (this.#busy.get(key) ?? 0) + 1);
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      this.#busyTotal -= 1;
      const left = (this.#busy.get(key) ?? 1) - 1;
      if (left === 0) this.#busy.delete(key);
      else this.#busy.set(key, left);
      this.#startNext();
    };
  }

  #startNext(): void {
    for (const [key, queue] of this.#waiting) {
      if (!this.#hasRoom(key)) continue;
      const entry = queue.shift();
      // Its next turn comes after that of all others.
      this.#waiting.delete(key);
      this.#keep(key, queue);
      this.#waitingTotal -= 1;
      entry?.start();
      return;
    }
  }

  #keep(key: string, queue: Waiting[]): void {
    if (queue.length > 0) this.#waiting.set(key, queue);
    else this.#waiting.delete(key);
  }
}
