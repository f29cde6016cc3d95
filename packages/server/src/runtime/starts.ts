import { SandboxStartError, type SandboxWish } from './sandbox-start.ts';

/** Of a start that was ended for a newer deployment: it says nothing of the one that was being started. */
export class StartSuperseded extends SandboxStartError {
  constructor() {
    super('Another deployment was activated before the harness had answered.', false, null);
  }
}

/** Of a start that was ended by the service or by somebody: the reason is a sentence for people. */
export class StartEnded extends SandboxStartError {
  constructor(reason: string) {
    super(`The sandbox was ended while it was being started. ${reason}`, false, null);
  }
}

/** What tells one wish from another. */
type Wish = Pick<SandboxWish, 'agentId' | 'generation' | 'hasGivenWay'> & {
  deployment: Pick<SandboxWish['deployment'], 'id'>;
};

interface Waiter {
  wish: Wish;
  signal: AbortSignal;
}

interface Start {
  wish: Wish;
  stop: AbortController;
  /** Resolves when it has ended, however. */
  over: Promise<void>;
}

/**
 * Who waits for which sandbox, and the starts that are under way, one of an agent at most. A harness may say nothing for
 * a minute, and meanwhile nobody else gets hold of its agent: so a start ends as soon as nobody waits for it any more, or
 * somebody waits for a newer deployment.
 */
export class Starts {
  readonly #waiting = new Map<string, Set<Waiter>>();
  readonly #underWay = new Map<string, Start>();

  /**
   * Waits for what `work` gets, until the signal says otherwise: then it rejects with its reason at once, and what comes
   * later goes to `giveBack`.
   */
  async wait<T>(
    wish: Wish,
    signal: AbortSignal,
    work: () => Promise<T>,
    giveBack: (late: T) => void,
  ): Promise<T> {
    signal.throwIfAborted();
    const waiter = { wish, signal };
    const all = this.#waiting.get(wish.agentId) ?? new Set();
    this.#waiting.set(wish.agentId, all.add(waiter));
    this.#endOlder(wish);
    const { promise: given, reject: giveUp } = Promise.withResolvers<never>();
    const onAbort = (): void => {
      all.delete(waiter);
      this.#endUnwanted(wish.agentId);
      giveUp(signal.reason);
    };
    signal.addEventListener('abort', onAbort, { once: true });
    const working = work();
    working.then(
      (result) => signal.aborted && giveBack(result),
      () => undefined,
    );
    try {
      return await Promise.race([working, given]);
    } finally {
      signal.removeEventListener('abort', onAbort);
      all.delete(waiter);
      if (all.size === 0 && this.#waiting.get(wish.agentId) === all) this.#waiting.delete(wish.agentId);
    }
  }

  /** Does `start`, which is to end when the signal that it gets says so: then it rejects with the reason of that. */
  async during<T>(wish: Wish, start: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const stop = new AbortController();
    const { promise: over, resolve } = Promise.withResolvers<void>();
    this.#underWay.set(wish.agentId, { wish, stop, over });
    try {
      return await start(stop.signal);
    } catch (error) {
      throw stop.signal.aborted ? stop.signal.reason : error;
    } finally {
      this.#underWay.delete(wish.agentId);
      resolve();
    }
  }

  isUnderWay(agentId: string): boolean {
    return this.#underWay.has(agentId);
  }

  /** Ends the agent's start: resolves when that is over. Null when none is under way. */
  end(agentId: string, reason: string): Promise<void> | null {
    const start = this.#underWay.get(agentId);
    start?.stop.abort(new StartEnded(reason));
    return start?.over ?? null;
  }

  #endUnwanted(agentId: string): void {
    const start = this.#underWay.get(agentId);
    const waiting = [...(this.#waiting.get(agentId) ?? [])];
    if (start && !waiting.some(({ wish }) => isSame(wish, start.wish)))
      start.stop.abort(new StartEnded('Nobody waits for it any more.'));
  }

  #endOlder({ agentId, deployment, generation }: Wish): void {
    const start = this.#underWay.get(agentId);
    if (!start || start.wish.hasGivenWay) return;
    if (start.wish.deployment.id !== deployment.id && start.wish.generation < generation)
      start.stop.abort(new StartSuperseded());
  }
}

const isSame = (one: Wish, other: Wish): boolean =>
  one.deployment.id === other.deployment.id && one.generation === other.generation;
