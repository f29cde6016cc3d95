import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isId } from '../domain/ids.ts';
import { KeptSandbox } from './kept-sandbox.ts';
import { startSandbox, type SandboxWish, type StartDependencies } from './sandbox-start.ts';

export interface KeeperOptions extends StartDependencies {
  maxSandboxes: number;
  idleMs: number;
}

/** A turn's hold on a sandbox. */
export interface Hold {
  readonly kept: KeptSandbox;
  release(): void;
}

/**
 * Keeps one sandbox for each agent: started on demand, kept warm, stopped when idle, the least recently used one when
 * there are too many. When the agent's deployment, model or secrets change, running turns end in the old one, new ones
 * wait for them, and then it is replaced.
 */
export class Keeper {
  readonly #options: KeeperOptions;
  readonly #byAgent = new Map<string, KeptSandbox>();
  readonly #byId = new Map<string, KeptSandbox>();
  /** Holds of one agent are given one after another, in order. */
  readonly #queues = new Map<string, Promise<unknown>>();
  /** Sandboxes that exist or are being started. */
  #count = 0;
  #waiters: (() => void)[] = [];
  #idleTimer: NodeJS.Timeout | null = null;
  #isClosed = false;

  constructor(options: KeeperOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#count;
  }

  byId(sandboxId: string): KeptSandbox | null {
    return this.#byId.get(sandboxId) ?? null;
  }

  /** The one that an agent has, also while it ends. */
  ofAgent(agentId: string): KeptSandbox | null {
    return this.#byAgent.get(agentId) ?? null;
  }

  /** Somebody waits for a sandbox of the agent. */
  isBusyWith(agentId: string): boolean {
    return this.#queues.has(agentId);
  }

  /** Ends what an earlier process of this node left on the host. */
  async begin(): Promise<void> {
    const { driver, records, nodeId, paths } = this.#options;
    for (const id of await driver.list()) await driver.remove(id);
    await records.allEnded(nodeId, 'The service was restarted.');
    for (const name of await readdir(paths.run).catch(() => [])) {
      if (isId(name)) await rm(join(paths.run, name), { recursive: true, force: true });
    }
    this.#idleTimer = setInterval(() => this.#endIdle(), Math.min(this.#options.idleMs, 5_000) / 2);
    this.#idleTimer.unref();
  }

  /** Rejects with SandboxStartError, or with the signal's reason. */
  async hold(wish: SandboxWish, conversationId: string, signal: AbortSignal): Promise<Hold> {
    // The way of almost every turn: it is warm, and nobody waits.
    const warm = this.#byAgent.get(wish.agentId);
    if (
      warm &&
      warm.canTakeTurns &&
      warm.fingerprint === fingerprint(wish) &&
      !this.#queues.has(wish.agentId)
    ) {
      return this.#take(warm, conversationId);
    }
    const before = this.#queues.get(wish.agentId) ?? Promise.resolve();
    const mine = before.then(() => this.#holdInTurn(wish, conversationId, signal));
    const tail: Promise<unknown> = mine
      .catch(() => undefined)
      .then(() => {
        if (this.#queues.get(wish.agentId) === tail) this.#queues.delete(wish.agentId);
      });
    this.#queues.set(wish.agentId, tail);
    return mine;
  }

  /** Ends an agent's sandbox, whatever runs in it. Resolves when it is gone. */
  async endAgent(agentId: string, reason: string): Promise<void> {
    await this.#queues.get(agentId);
    await this.#byAgent.get(agentId)?.end(reason);
  }

  async endAll(reason: string): Promise<void> {
    await Promise.all([...this.#byId.values()].map((kept) => kept.end(reason)));
  }

  /** No sandbox is started any more. */
  async close(reason: string): Promise<void> {
    this.#isClosed = true;
    if (this.#idleTimer) clearInterval(this.#idleTimer);
    this.#wake();
    await Promise.allSettled(this.#queues.values());
    await this.endAll(reason);
  }

  async #holdInTurn(wish: SandboxWish, conversationId: string, signal: AbortSignal): Promise<Hold> {
    for (;;) {
      signal.throwIfAborted();
      if (this.#isClosed) throw new Error('The service is stopping.');
      const kept = this.#byAgent.get(wish.agentId);
      if (kept && kept.canTakeTurns && kept.fingerprint === fingerprint(wish))
        return this.#take(kept, conversationId);
      if (kept && !kept.canTakeTurns) await kept.gone;
      else if (kept && kept.turns.size === 0) await kept.end('Its deployment or settings have changed.');
      else if (kept || !this.#makeRoom()) await this.#changed(signal);
      else return this.#take(await this.#start(wish), conversationId);
    }
  }

  async #start(wish: SandboxWish): Promise<KeptSandbox> {
    this.#count += 1;
    const { agentId } = wish;
    try {
      const started = await startSandbox(this.#options, wish);
      const asked = wish.deployment.manifest.limits.idleSeconds;
      const idleMs = Math.min(this.#options.idleMs, (asked ?? Infinity) * 1000);
      const kept = new KeptSandbox(started, { agentId, fingerprint: fingerprint(wish), idleMs });
      this.#byAgent.set(agentId, kept);
      this.#byId.set(kept.id, kept);
      void kept.gone
        .catch((error: unknown) =>
          this.#options.log.error('What was left of a sandbox could not be removed.', {
            sandboxId: kept.id,
            error: String(error),
          }),
        )
        .then(() => this.#forget(kept));
      return kept;
    } catch (error) {
      this.#count -= 1;
      this.#wake();
      throw error;
    }
  }

  #forget(kept: KeptSandbox): void {
    this.#byId.delete(kept.id);
    if (this.#byAgent.get(kept.agentId) === kept) this.#byAgent.delete(kept.agentId);
    this.#count -= 1;
    this.#wake();
    const { records, nodeId, log } = this.#options;
    records
      .releaseAgent(nodeId, kept.agentId)
      .catch((error: unknown) => log.warn('An agent could not be released.', { error: String(error) }));
  }

  #take(kept: KeptSandbox, conversationId: string): Hold {
    kept.turns.add(conversationId);
    return {
      kept,
      release: () => {
        kept.turns.delete(conversationId);
        kept.lastUsedMs = Date.now();
        if (this.#waiters.length > 0) this.#wake();
      },
    };
  }

  /** Whether one more may be started; otherwise the one that was idle the longest is being ended, if there is one. */
  #makeRoom(): boolean {
    if (this.#count < this.#options.maxSandboxes) return true;
    let oldest: KeptSandbox | null = null;
    for (const kept of this.#byId.values()) {
      // One that is on its way out makes room by itself.
      if (!kept.canTakeTurns) return false;
      if (kept.turns.size === 0 && (!oldest || kept.lastUsedMs < oldest.lastUsedMs)) oldest = kept;
    }
    void oldest?.end('Its place was needed for another agent.');
    return false;
  }

  #endIdle(): void {
    const nowMs = Date.now();
    for (const kept of this.#byId.values()) {
      const isIdle = kept.turns.size === 0 && nowMs - kept.lastUsedMs >= kept.idleMs;
      if (isIdle && kept.canTakeTurns) void kept.end('It was idle.');
    }
  }

  #changed(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        signal.removeEventListener('abort', done);
        resolve();
      };
      signal.addEventListener('abort', done, { once: true });
      this.#waiters.push(done);
    });
  }

  #wake(): void {
    for (const waiter of this.#waiters.splice(0)) waiter();
  }
}

function fingerprint(wish: SandboxWish): string {
  return `${wish.deployment.id} ${wish.generation}`;
}
