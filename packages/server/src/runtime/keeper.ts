import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isId, newId } from '../domain/ids.ts';
import { defaultManifest, type Manifest } from '../domain/manifest.ts';
import type { SandboxLogLines } from '../domain/ports/harness.ts';
import type { AdoptedPlace } from './adopt-turns.ts';
import { Changes } from './changes.ts';
import { KeptSandbox } from './kept-sandbox.ts';
import { dueFor, spareOf } from './idle-sandboxes.ts';
import { LastLogs, logOf, type LogOf } from './last-logs.ts';
import type { WarmPool } from './warm-pool.ts';
import { takeUpSandboxes, type AdoptedSandbox, type BegunStart } from './sandbox-adopt.ts';
import {
  sandboxLimits,
  startSandbox,
  type SandboxWish,
  type StartDependencies,
  type StartedSandbox,
} from './sandbox-start.ts';
import { StartEnded, Starts } from './starts.ts';

/** How often it is looked for what nobody uses any more. */
const LOOK_MS = 500;
/** For processes that are asked to end. */
const STOP_GRACE_MS = 5_000;
const STOPPING = 'The service is stopping.';
const CROWDED = 'Its processes had reached their limit, and nobody used it any more.';

export interface KeeperOptions extends StartDependencies {
  maxSandboxes: number;
  idleMs: number;
  /** So long a message for a newer deployment waits for commands and terminals in the sandbox of the older one. */
  replacedCommandMs: number;
  /** After so long without use a sandbox is frozen; null = never. */
  freezeAfterMs: number | null;
  /** Sandboxes that are kept ready for agents that have none; null = there are none. */
  pool: WarmPool | null;
}

/** A turn's hold on a sandbox. */
export interface Hold {
  readonly kept: KeptSandbox;
  /** Before its end is told: what it left running may leave no room for the next one, which then gets another sandbox. */
  done(): void;
  release(): void;
}

/**
 * Keeps one sandbox for each agent: started on demand, kept warm, stopped when idle, the least recently used one when
 * there are too many. When the agent's deployment, model or secrets change, running turns end in the old one, new ones
 * wait for them, and then it is replaced. Commands and terminals in it are waited for only so long: a shell that
 * somebody left open must not keep an agent from answering.
 */
export class Keeper {
  readonly #options: KeeperOptions;
  readonly #byAgent = new Map<string, KeptSandbox>();
  readonly #byId = new Map<string, KeptSandbox>();
  readonly #lastLogs = new LastLogs();
  /** Holds of one agent are given one after another, in order. */
  readonly #queues = new Map<string, Promise<unknown>>();
  /** Sandboxes that exist or are being started. */
  #count = 0;
  readonly #changes = new Changes();
  readonly #starting = new Set<string>();
  readonly #starts = new Starts();
  readonly #stop = new AbortController();
  #timer: NodeJS.Timeout | null = null;
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

  /** The log of its sandbox, also of one that is being started, or of the last one that this process had. */
  logOf(agentId: string): LogOf | null {
    const kept = this.#byAgent.get(agentId);
    return kept ? logOf(kept) : this.#lastLogs.of(agentId);
  }

  /** Somebody waits for a sandbox of the agent. */
  isBusyWith(agentId: string): boolean {
    return this.#queues.has(agentId);
  }

  /** A sandbox of it is being made. */
  isStarting(agentId: string): boolean {
    return this.#starts.isUnderWay(agentId);
  }

  /** No sandbox is started any more. */
  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** So many sandboxes there may be. */
  get most(): number {
    return this.#options.maxSandboxes;
  }

  /** Every sandbox that is here, or is being started: of others it is known that they are no use. */
  get knownIds(): string[] {
    return [...this.#byId.keys(), ...this.#starting, ...(this.#options.pool?.ids ?? [])];
  }

  get all(): KeptSandbox[] {
    return [...this.#byId.values()];
  }

  /**
   * Takes up the sandboxes that an earlier process of this node left, and ends those that cannot be. The harnesses of the
   * former wait for `begin`; starts that were under way go on.
   */
  async begin(): Promise<AdoptedPlace[]> {
    const { records, nodeId, paths } = this.#options;
    const { adopted, begun } = await takeUpSandboxes(this.#options);
    const places = adopted.map((sandbox) => this.#keepAdopted(sandbox));
    for (const start of begun) this.#goOn(start);
    const known = new Set(this.knownIds);
    await records.othersEnded(nodeId, [...known], 'The service was restarted.');
    for (const name of await readdir(paths.run).catch(() => [])) {
      if (isId(name) && !known.has(name)) await rm(join(paths.run, name), { recursive: true, force: true });
    }
    this.#timer = setInterval(() => this.#look(), LOOK_MS);
    this.#timer.unref();
    this.#options.pool?.begin();
    return places;
  }

  /** A turn that an earlier process began in an adopted sandbox. */
  holdAdopted(kept: KeptSandbox, conversationId: string): Hold {
    return this.#take(kept, conversationId);
  }

  /** Whether a turn of the agent's deployment would be held at once. */
  isReady(claim: { agentId: string; deploymentId: string | null; generation: number }): boolean {
    return this.#warm(claim.agentId, `${claim.deploymentId} ${claim.generation}`) !== null;
  }

  /** Of the agent, or of all: the sandboxes in which a turn would be held at once, as claims name them. */
  ready(agentId: string | null): string[] {
    const all = agentId === null ? this.#byAgent.values() : [this.#byAgent.get(agentId)];
    return [...all].flatMap((kept) =>
      kept && this.#warm(kept.agentId, kept.fingerprint) ? [`${kept.agentId} ${kept.fingerprint}`] : [],
    );
  }

  /** Rejects with SandboxStartError, or with the signal's reason. */
  async hold(wish: SandboxWish, conversationId: string, signal: AbortSignal): Promise<Hold> {
    // The way of almost every turn: it is warm, and nobody waits.
    const warm = this.#warm(wish.agentId, fingerprint(wish));
    if (warm) return this.#takeRunning(warm, conversationId);
    return this.#starts.wait(
      wish,
      signal,
      () => this.inTurn(wish.agentId, () => this.#holdInTurn(wish, conversationId, signal)),
      (late) => late.release(),
    );
  }

  #warm(agentId: string, wanted: string): KeptSandbox | null {
    const kept = this.#byAgent.get(agentId);
    return kept?.canTakeTurns && kept.fingerprint === wanted && !this.#queues.has(agentId) ? kept : null;
  }

  /** Does `work` while nobody else gets hold of the agent's sandbox, in the order asked. */
  inTurn<T>(agentId: string, work: () => Promise<T>): Promise<T> {
    const before = this.#queues.get(agentId) ?? Promise.resolve();
    const mine = before.then(work);
    const tail: Promise<unknown> = mine
      .catch(() => undefined)
      .then(() => {
        if (this.#queues.get(agentId) === tail) this.#queues.delete(agentId);
      });
    this.#queues.set(agentId, tail);
    return mine;
  }

  /** Ends an agent's sandbox, whatever runs in it. Resolves when it is gone. */
  async endAgent(agentId: string, reason: string): Promise<void> {
    const started = this.#starts.end(agentId, reason);
    // Whoever else waits for the agent may start another one, which is not the one that was to be ended.
    await (started ?? this.#queues.get(agentId));
    await this.#byAgent.get(agentId)?.end(reason);
  }

  /**
   * The same, but its processes get a moment to end by themselves, and turns are not ended: false where there are some,
   * also such as have begun only now.
   */
  async stopAgent(agentId: string, reason: string): Promise<boolean> {
    await this.#queues.get(agentId);
    const kept = this.#byAgent.get(agentId);
    if (kept?.canTakeTurns && kept.turns.size > 0) return false;
    await kept?.stop(reason, STOP_GRACE_MS);
    return true;
  }

  async endAll(reason: string): Promise<void> {
    await Promise.allSettled([...this.#byId.values()].map((kept) => kept.end(reason)));
  }

  /** Whoever waits for a sandbox that is being started waits in vain: its harness may take a minute to answer. */
  stopStarting(): void {
    this.#isClosed = true;
    this.#stop.abort(new StartEnded(STOPPING));
    this.#changes.tell();
  }

  /** No sandbox is started any more; all end but those in which turns are left for the next process of this node. */
  async close(reason: string, leaves: (kept: KeptSandbox) => boolean): Promise<void> {
    this.stopStarting();
    if (this.#timer) clearInterval(this.#timer);
    await Promise.allSettled([...this.#queues.values(), this.#options.pool?.close()]);
    const ends = this.all.map((kept) => (leaves(kept) ? kept.leave() : kept.end(reason)));
    // One that cannot be ended keeps none of the others; the next start looks after it.
    const failed = (await Promise.allSettled(ends)).find((end) => end.status === 'rejected');
    if (failed) throw failed.reason;
  }

  async #holdInTurn(wish: SandboxWish, conversationId: string, signal: AbortSignal): Promise<Hold> {
    let hadNoTurnSinceMs: number | null = null;
    for (;;) {
      signal.throwIfAborted();
      if (this.#isClosed) throw new Error(STOPPING);
      const kept = this.#byAgent.get(wish.agentId);
      if (kept && kept.canTakeTurns && kept.fingerprint === fingerprint(wish)) {
        return this.#takeRunning(kept, conversationId);
      }
      if (kept?.turns.size === 0) hadNoTurnSinceMs ??= performance.now();
      const waitedMs = performance.now() - (hadNoTurnSinceMs ?? Infinity);
      const gives = kept && (kept.isFree || waitedMs >= this.#options.replacedCommandMs);
      if (kept && !kept.canTakeTurns) await kept.gone;
      else if (kept && gives) await kept.end('Its deployment or settings have changed.');
      else if (kept || !this.#makeRoom()) await this.#changes.next(signal);
      else {
        const started = await this.#starts.during(wish, (stop) => this.#start(wish, stop));
        // Others wait for it still.
        signal.throwIfAborted();
        return this.#take(started, conversationId);
      }
    }
  }

  async #start(wish: SandboxWish, stop: AbortSignal): Promise<KeptSandbox> {
    const { pool, limits } = this.#options;
    const { agentId } = wish;
    pool?.makeWay();
    const blank = pool?.take(sandboxLimits(limits, wish.deployment.manifest)) ?? null;
    const id = blank?.id ?? newId();
    this.#count += 1;
    this.#starting.add(id);
    try {
      const either = AbortSignal.any([this.#stop.signal, stop]);
      const onLog = (log: SandboxLogLines): void => this.#lastLogs.starting(agentId, { sandboxId: id, log });
      const started = await startSandbox(this.#options, wish, { id, blank, onLog, given: either });
      const { commit, manifest } = wish.deployment;
      const begin = `was started with commit ${commit.slice(0, 12)}`;
      return this.#keep(started, agentId, fingerprint(wish), manifest, begin);
    } catch (error) {
      this.#count -= 1;
      this.#lastLogs.failed(agentId, id, (error as Error).message);
      this.#changes.tell();
      throw error;
    } finally {
      this.#starting.delete(id);
    }
  }

  #keepAdopted(adopted: AdoptedSandbox): AdoptedPlace {
    const { row, harness } = adopted;
    this.#count += 1;
    const key = `${row.deploymentId} ${row.generation}`;
    const begin = 'was taken up again after a restart of the service';
    const manifest = row.manifest ?? defaultManifest;
    return { kept: this.#keep(adopted, row.agentId, key, manifest, begin), harness };
  }

  /** Whoever waits for the agent's sandbox finds it when it is there, or starts another. */
  #goOn({ row, log, finish }: BegunStart): void {
    const { id, agentId, deploymentId, generation } = row;
    const begin = 'was being started before a restart of the service';
    const start = async (stop: AbortSignal): Promise<void> => {
      const started = await finish(AbortSignal.any([this.#stop.signal, stop]));
      this.#keep(started, agentId, `${deploymentId} ${generation}`, row.manifest ?? defaultManifest, begin);
    };
    this.#count += 1;
    this.#starting.add(id);
    this.#lastLogs.starting(agentId, { sandboxId: id, log });
    const wish = { agentId, generation, deployment: { id: deploymentId } };
    this.inTurn(agentId, () => this.#starts.during(wish, start))
      .catch((error: unknown) => {
        this.#count -= 1;
        this.#lastLogs.failed(agentId, id, (error as Error).message);
        this.#options.log.warn('A sandbox did not start.', { sandboxId: id, agentId, error: String(error) });
      })
      .finally(() => {
        this.#starting.delete(id);
        this.#changes.tell();
      });
  }

  #keep(
    started: StartedSandbox,
    agentId: string,
    key: string,
    manifest: Manifest,
    begin: string,
  ): KeptSandbox {
    const idleMs = Math.min(this.#options.idleMs, (manifest.limits.idleSeconds ?? Infinity) * 1000);
    const { pids: maxPids } = sandboxLimits(this.#options.limits, manifest);
    const kept = new KeptSandbox(started, { agentId, fingerprint: key, idleMs, maxPids, begin });
    this.#byAgent.set(agentId, kept);
    this.#byId.set(kept.id, kept);
    this.#lastLogs.started(agentId);
    void kept.gone
      .catch((error: unknown) =>
        this.#options.log.error('What was left of a sandbox could not be removed.', {
          sandboxId: kept.id,
          error: String(error),
        }),
      )
      .then(() => this.#forget(kept));
    return kept;
  }

  #forget(kept: KeptSandbox): void {
    this.#byId.delete(kept.id);
    this.#lastLogs.ended(kept.agentId, logOf(kept));
    if (this.#byAgent.get(kept.agentId) === kept) this.#byAgent.delete(kept.agentId);
    this.#count -= 1;
    this.#changes.tell();
    const { records, nodeId, log } = this.#options;
    records
      .releaseAgent(nodeId, kept.agentId)
      .catch((error: unknown) => log.warn('An agent could not be released.', { error: String(error) }));
  }

  /** One that is frozen runs on first. */
  async #takeRunning(kept: KeptSandbox, conversationId: string): Promise<Hold> {
    const hold = this.#take(kept, conversationId);
    try {
      await kept.use();
      return hold;
    } catch (error) {
      hold.release();
      throw error;
    }
  }

  #take(kept: KeptSandbox, conversationId: string): Hold {
    kept.turns.add(conversationId);
    return {
      kept,
      done: () => {
        if (kept.turns.size === 1 && kept.canTakeTurns && this.#isCrowded(kept)) kept.endedBy = CROWDED;
      },
      release: () => {
        kept.turns.delete(conversationId);
        kept.lastUsedMs = performance.now();
        if (kept.endedBy === CROWDED && kept.turns.size === 0) this.#endSoon(kept, CROWDED);
        this.#changes.tell();
      },
    };
  }

  /** Whether one more may be started; otherwise the one that was idle the longest is being ended, if there is one. */
  #makeRoom(): boolean {
    if (this.#count < this.#options.maxSandboxes) return true;
    const spare = spareOf(this.#byId.values());
    if (spare) this.#endSoon(spare, 'Its place was needed for another agent.');
    return false;
  }

  #look(): void {
    // A command that ends tells nobody.
    this.#changes.tell();
    for (const kept of this.#byId.values()) {
      const due = dueFor(kept, this.#options.freezeAfterMs);
      if (kept.canTakeTurns && kept.isFree && !kept.isFrozen) this.#endCrowded(kept);
      if (due === 'end') this.#endSoon(kept, 'It was idle.');
      else if (due === 'freeze') {
        kept.freeze().catch((error: unknown) =>
          this.#options.log.warn('A sandbox could not be frozen.', {
            sandboxId: kept.id,
            error: String(error),
          }),
        );
      }
    }
  }

  #isCrowded(kept: KeptSandbox): boolean {
    const processes = kept.processCount();
    // A command or a terminal of the surface is somebody who may look after it.
    return processes !== null && kept.link.openCommands === 0 && kept.isCrowdedBy(processes);
  }

  /** Also what fills up after its turn; where counting is slow, what one use left is counted once. */
  #endCrowded(kept: KeptSandbox): void {
    if (this.#isCrowded(kept)) return this.#endSoon(kept, CROWDED);
    if (kept.processCount() !== null || !kept.isIdle || kept.countedMs === kept.lastUsedMs) return;
    kept.countedMs = kept.lastUsedMs;
    void kept.stats().then((stats) => {
      if (stats && kept.isCrowdedBy(stats.pids) && kept.isFree && kept.canTakeTurns)
        this.#endSoon(kept, CROWDED);
    });
  }

  /** Nobody waits for it; that its end failed, whoever keeps watch over `gone` says. */
  #endSoon(kept: KeptSandbox, reason: string): void {
    kept.end(reason).catch(() => undefined);
  }
}

function fingerprint(wish: SandboxWish): string {
  return `${wish.deployment.id} ${wish.generation}`;
}
