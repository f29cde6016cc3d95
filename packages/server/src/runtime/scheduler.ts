import type { Log } from '../domain/log.ts';
import type { Claim, RunLife } from '../services/run-life.ts';

export interface SchedulerOptions {
  life: RunLife;
  /** Begins a claimed run; resolves when its attempt is over. Never rejects. */
  execute: (claim: Claim) => Promise<void>;
  /** See `Executor`. */
  ready: (agentId: string | null) => string[];
  maxConcurrentRuns: number;
  log: Log;
  pollMs?: number;
}

const POLL_MS = 1_000;
const POLL_MAX = 64;

/**
 * Claims what became ready: at once when it is told so, all of a tick in one statement; and by a look now and then,
 * which finds what a lost wake-up, a full house or another node left.
 */
export class Scheduler {
  readonly #options: SchedulerOptions;
  readonly #woken = new Set<string>();
  readonly #running = new Set<Promise<void>>();
  #isClaiming = false;
  /** Room that is kept for runs which are being accepted. */
  #reserved = 0;
  /** Room that the claim under way may need. */
  #asked = 0;
  #isStopped = true;
  #wantsPoll = false;
  #timer: NodeJS.Timeout | null = null;

  constructor(options: SchedulerOptions) {
    this.#options = options;
    options.life.onReady((conversationIds) => {
      if (conversationIds === null) this.#wantsPoll = true;
      else for (const id of conversationIds) this.#woken.add(id);
      this.#kick();
    });
    options.life.setExecutor({
      reserve: () => this.#reserve(),
      ready: options.ready,
      begin: (claim) => {
        this.#reserved -= 1;
        if (claim) this.#begin([claim]);
        else if (this.#wantsPoll) this.#kick();
      },
    });
  }

  get size(): number {
    return this.#running.size;
  }

  start(): void {
    this.#isStopped = false;
    this.#timer = setInterval(() => this.#poll(), this.#options.pollMs ?? POLL_MS);
    this.#poll();
  }

  /** Claims nothing any more. */
  stop(): void {
    this.#isStopped = true;
    if (this.#timer) clearInterval(this.#timer);
    this.#timer = null;
  }

  /** Resolves when nothing executes any more. */
  async idle(): Promise<void> {
    while (this.#isClaiming || this.#reserved > 0 || this.#running.size > 0) {
      if (this.#running.size > 0) await Promise.race(this.#running);
      else await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  get #free(): number {
    return this.#options.maxConcurrentRuns - this.#running.size - this.#reserved;
  }

  /** Those that wait for a place already go before what comes now. */
  #reserve(): boolean {
    if (this.#isStopped || this.#wantsPoll || this.#free <= this.#asked + this.#woken.size) return false;
    this.#reserved += 1;
    return true;
  }

  #poll(): void {
    this.#wantsPoll = true;
    this.#kick();
  }

  #kick(): void {
    if (this.#isClaiming || this.#isStopped) return;
    this.#isClaiming = true;
    // What else becomes ready in this tick goes along.
    setImmediate(() => void this.#claimAll());
  }

  async #claimAll(): Promise<void> {
    const { life, log } = this.#options;
    try {
      while (!this.#isStopped) {
        const free = this.#free;
        if (free <= 0) {
          // The end of a run looks again.
          this.#woken.clear();
          this.#wantsPoll = true;
          return;
        }
        const woken = [...this.#woken].slice(0, Math.min(free, POLL_MAX));
        if (woken.length > 0) {
          for (const id of woken) this.#woken.delete(id);
          this.#asked = woken.length;
          this.#begin(await life.claim(woken, woken.length));
        } else if (this.#wantsPoll) {
          this.#wantsPoll = false;
          const max = Math.min(free, POLL_MAX);
          this.#asked = max;
          const claims = await life.claim(null, max);
          if (claims.length === max) this.#wantsPoll = true;
          this.#begin(claims);
        } else return;
        this.#asked = 0;
      }
    } catch (error) {
      // The next look finds what was not claimed; what was claimed without an answer, the upkeep.
      log.error('Runs could not be claimed.', { error: String(error) });
    } finally {
      this.#asked = 0;
      this.#isClaiming = false;
    }
  }

  /** Counts what executes already: a turn of an earlier process. */
  add(execution: Promise<void>): void {
    const running: Promise<void> = execution.finally(() => {
      const wasFull = this.#running.size >= this.#options.maxConcurrentRuns;
      this.#running.delete(running);
      if (wasFull) this.#poll();
    });
    this.#running.add(running);
  }

  #begin(claims: Claim[]): void {
    for (const claim of claims) this.add(this.#options.execute(claim));
  }
}
