import { addTo } from './counts.ts';

/** More work than the gate holds or lets wait. */
export class GateFull extends Error {}

interface Waiting {
  group: string;
  start(): void;
}

interface GateLimits {
  total: number;
  perKey: number;
  maxWaiting: number;
  /** Of all keys of one group together; all that there are when it is left out. */
  perGroup?: number;
  /** Of those that wait, the most of one key and of one group; all that may wait when it is left out. */
  waitingPerKey?: number;
  waitingPerGroup?: number;
}

/**
 * Bounds how much goes on at once, over all keys and per key. Of one key the first that came is served first; keys take turns, so
 * that one with much to do holds up another by one thing at a time. With `perKey` of one it is a lock per key. Keys may belong to
 * groups, as agents to organisations, of which none holds more than its share either.
 */
export class KeyGate {
  readonly #limits: Required<GateLimits>;
  readonly #busy = new Map<string, number>();
  readonly #busyGroups = new Map<string, number>();
  #busyTotal = 0;
  /** In the order in which keys have their turns. */
  readonly #waiting = new Map<string, Waiting[]>();
  #waitingTotal = 0;

  constructor(limits: GateLimits) {
    const { total, maxWaiting } = limits;
    const all = { perGroup: total, waitingPerKey: maxWaiting, waitingPerGroup: maxWaiting };
    this.#limits = { ...all, ...limits };
  }

  /** Resolves with the function that gives the place back; rejects with GateFull, or with the signal's reason. */
  enter(key: string, signal?: AbortSignal, group = key): Promise<() => void> {
    if (this.#hasRoom(key, group)) return Promise.resolve(this.#take(key, group));
    if (!this.#mayWait(key, group)) return Promise.reject(new GateFull());
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
        group,
        start: () => {
          signal?.removeEventListener('abort', leave);
          resolve(this.#take(key, group));
        },
      };
      const queue = this.#waiting.get(key);
      if (queue) queue.push(entry);
      else this.#waiting.set(key, [entry]);
      this.#waitingTotal += 1;
      signal?.addEventListener('abort', leave, { once: true });
    });
  }

  #hasRoom(key: string, group: string): boolean {
    const { total, perKey, perGroup } = this.#limits;
    return (
      this.#busyTotal < total &&
      (this.#busy.get(key) ?? 0) < perKey &&
      (this.#busyGroups.get(group) ?? 0) < perGroup
    );
  }

  #mayWait(key: string, group: string): boolean {
    const { maxWaiting, waitingPerKey, waitingPerGroup } = this.#limits;
    if (this.#waitingTotal >= maxWaiting) return false;
    if ((this.#waiting.get(key)?.length ?? 0) >= waitingPerKey) return false;
    if (this.#waitingTotal < waitingPerGroup) return true;
    const ofGroup = [...this.#waiting.values()].flat().filter((entry) => entry.group === group);
    return ofGroup.length < waitingPerGroup;
  }

  #take(key: string, group: string): () => void {
    this.#busyTotal += 1;
    addTo(this.#busy, key, 1);
    addTo(this.#busyGroups, group, 1);
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      this.#busyTotal -= 1;
      addTo(this.#busy, key, -1);
      addTo(this.#busyGroups, group, -1);
      this.#startNext();
    };
  }

  #startNext(): void {
    for (const [key, queue] of this.#waiting) {
      if (!this.#hasRoom(key, queue[0]!.group)) continue;
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
