import type { Log } from '../domain/log.ts';
import { RunPlaces, type Owner } from '../domain/run-places.ts';
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
 * which finds what a lost wake-up, a full house, a full share or another node left, and gives places in turns.
 */
export class Scheduler {
  readonly #options: SchedulerOptions;
  readonly #woken = new Set<string>();
  readonly #running = new Set<Promise<void>>();
  /** Also those that are kept for runs which are being accepted. */
  readonly #places: RunPlaces;
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
    this.#places = new RunPlaces(options.maxConcurrentRuns);
    options.life.onReady((conversationIds) => {
      if (conversationIds === null) this.#wantsPoll = true;
      else for (const id of conversationIds) this.#woken.add(id);
      this.#kick();
    });
    options.life.setExecutor({
      reserve: (owner) => this.#reserve(owner),
      ready: options.ready,
      begin: (owner, claim) => {
        this.#reserved -= 1;
        if (claim) this.#execute(claim);
        else this.#leave(owner);
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

  /** Those that wait for a place already go before what comes now. */
  #reserve(owner: Owner): boolean {
    if (this.#isStopped || this.#wantsPoll || this.#places.free <= this.#asked + this.#woken.size)
      return false;
    // All that is being claimed may be the same owner's.
    if (!this.#places.hasRoom(owner, this.#asked + 1)) return false;
    this.#places.take(owner);
    this.#reserved += 1;
    return true;
  }

  /** Who waits for a place of the same owner, or for any, is looked for when one is free again. */
  #leave(owner: Owner): void {
    if (this.#places.leave(owner)) this.#poll();
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
        const { free } = this.#places;
        if (free <= 0) {
          // The end of a run looks again.
          this.#woken.clear();
          this.#wantsPoll = true;
          return;
        }
        const woken = [...this.#woken].slice(0, Math.min(free, POLL_MAX));
        if (woken.length > 0 && !this.#places.hasRoomForAny(woken.length)) {
          // Somebody is near a share, and whose these are is not known here: a look finds all that may begin, in turns.
          this.#woken.clear();
          this.#wantsPoll = true;
        } else if (woken.length > 0) {
          for (const id of woken) this.#woken.delete(id);
          this.#asked = woken.length;
          this.#begin(await life.claim(woken, woken.length));
        } else if (this.#wantsPoll) {
          this.#wantsPoll = false;
          const max = Math.min(free, POLL_MAX);
          this.#asked = max;
          const claims = await life.claim(null, max, this.#places);
          // Until nothing is found: one that has little to do leaves its part to the others.
          if (claims.length > 0) this.#wantsPoll = true;
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
  add(owner: Owner, execution: Promise<void>): void {
    this.#places.take(owner);
    this.#track(owner, execution);
  }

  #begin(claims: Claim[]): void {
    for (const claim of claims) this.add(claim, this.#options.execute(claim));
  }

  /** Its place was kept. */
  #execute(claim: Claim): void {
    this.#track(claim, this.#options.execute(claim));
  }

  #track(owner: Owner, execution: Promise<void>): void {
    const running: Promise<void> = execution.finally(() => {
      this.#running.delete(running);
      this.#leave(owner);
    });
    this.#running.add(running);
  }
}
