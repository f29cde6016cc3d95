/**
 * So many works at once, and the others wait: in an organisation whoever came first, and organisations in turn, so that one waits for
 * one of another's and not for all. Whoever has gone waits no more.
 */
export class Places {
  readonly #most: number;
  #taken = 0;
  /** The organisation whose turn is next stands first. */
  readonly #waiting = new Map<string, Set<() => void>>();

  constructor(most: number) {
    this.#most = most;
  }

  get taken(): number {
    return this.#taken;
  }

  /** Throws the reason of `gone` when that came before the work began; begun work has its place until it ends. */
  async use<T>(orgId: string, gone: AbortSignal, work: () => T | Promise<T>): Promise<T> {
    gone.throwIfAborted();
    if (this.#taken < this.#most) this.#taken += 1;
    else await this.#turn(orgId, gone);
    try {
      return await work();
    } finally {
      this.#giveOn();
    }
  }

  #turn(orgId: string, gone: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const line = this.#waiting.get(orgId) ?? new Set();
      const come = (): void => {
        gone.removeEventListener('abort', leave);
        resolve();
      };
      const leave = (): void => {
        line.delete(come);
        if (line.size === 0) this.#waiting.delete(orgId);
        reject(gone.reason as Error);
      };
      gone.addEventListener('abort', leave, { once: true });
      this.#waiting.set(orgId, line.add(come));
    });
  }

  #giveOn(): void {
    for (const [orgId, line] of this.#waiting) {
      this.#waiting.delete(orgId);
      for (const come of line) {
        line.delete(come);
        if (line.size > 0) this.#waiting.set(orgId, line);
        return come();
      }
    }
    this.#taken -= 1;
  }
}
