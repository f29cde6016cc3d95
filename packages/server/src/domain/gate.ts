import { Bucket, type Pace } from './bucket.ts';

interface Watched {
  on(event: 'connection' | 'drop' | 'close', listener: () => void): unknown;
}

/** Shorter pauses cost more than they keep away. */
const MIN_SHUT_MS = 100;

/**
 * A door that is shut for a while when too many came through it. Connections that are refused one by one still cost the
 * service time and memory for each; those that find the door shut cost it nothing.
 */
export class Gate {
  readonly #bucket: Bucket;
  readonly #setShut: (isShut: boolean) => void;
  #reopening: NodeJS.Timeout | null = null;

  constructor(pace: Pace, setShut: (isShut: boolean) => void) {
    this.#bucket = new Bucket(pace);
    this.#setShut = setShut;
  }

  get isShut(): boolean {
    return this.#reopening !== null;
  }

  /** Counts what comes to a server (of node:net), also what it drops at once. */
  watch(server: Watched): this {
    server.on('connection', () => this.came());
    server.on('drop', () => this.came());
    server.on('close', () => this.close());
    return this;
  }

  /** One came. Those that were on their way when the door was shut still come, and count. */
  came(nowMs = performance.now()): void {
    this.#count(1, nowMs);
  }

  /** What came has cost as much as so many more. For that alone it is never shut for much longer than `maxMs`. */
  charge(count: number, maxMs: number, nowMs = performance.now()): void {
    if (this.#bucket.overMs(nowMs) < maxMs) this.#count(count, nowMs);
  }

  /** It stays as it is. */
  close(): void {
    if (this.#reopening) clearTimeout(this.#reopening);
    this.#reopening = null;
  }

  #count(count: number, nowMs: number): void {
    const overMs = this.#bucket.spend(count, nowMs);
    if (overMs <= 0 || this.#reopening) return;
    this.#set(true);
    this.#shutFor(overMs);
  }

  #shutFor(ms: number): void {
    this.#reopening = setTimeout(() => this.#reopen(), Math.max(ms, MIN_SHUT_MS));
    this.#reopening.unref();
  }

  #reopen(nowMs = performance.now()): void {
    const overMs = this.#bucket.overMs(nowMs);
    if (overMs > 0) return this.#shutFor(overMs);
    this.#reopening = null;
    this.#set(false);
  }

  #set(isShut: boolean): void {
    try {
      this.#setShut(isShut);
    } catch {
      // What is behind the door has gone, and the door with it.
    }
  }
}
