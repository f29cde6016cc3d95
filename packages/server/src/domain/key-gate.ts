/** More work than the gate holds or lets wait. */
export class GateFull extends Error {}

/**
 * Bounds how much goes on at once, over all keys and per key, first come first served. With `perKey` of one it is a
 * lock per key.
 */
export class KeyGate {
  readonly #total: number;
  readonly #perKey: number;
  readonly #maxWaiting: number;
  readonly #busy = new Map<string, number>();
  #busyTotal = 0;
  #waiting: { key: string; start: () => void }[] = [];

  constructor(limits: { total: number; perKey: number; maxWaiting: number }) {
    this.#total = limits.total;
    this.#perKey = limits.perKey;
    this.#maxWaiting = limits.maxWaiting;
  }

  /** Resolves with the function that gives the place back; rejects with GateFull, or with the signal's reason. */
  enter(key: string, signal?: AbortSignal): Promise<() => void> {
    if (this.#hasRoom(key)) return Promise.resolve(this.#take(key));
    if (this.#waiting.length >= this.#maxWaiting) return Promise.reject(new GateFull());
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        this.#waiting = this.#waiting.filter((other) => other !== entry);
        reject(signal?.reason);
      };
      const entry = {
        key,
        start: () => {
          signal?.removeEventListener('abort', leave);
          resolve(this.#take(key));
        },
      };
      this.#waiting.push(entry);
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
    const index = this.#waiting.findIndex((entry) => this.#hasRoom(entry.key));
    if (index === -1) return;
    const [entry] = this.#waiting.splice(index, 1);
    entry?.start();
  }
}
