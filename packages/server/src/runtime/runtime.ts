import type { Log } from '../domain/log.ts';
import { within } from '../domain/time-limit.ts';
import type { Cancel } from '../services/cancel.ts';
import type { Claim, RunLife } from '../services/run-life.ts';
import type { TurnHistory } from '../services/turn-history.ts';
import { LastFew } from '../domain/last-few.ts';
import { Keeper, type KeeperOptions } from './keeper.ts';
import { adoptTurns } from './adopt-turns.ts';
import { resumeTurn, runTurn, type Resumption, type RunnerDependencies } from './runner.ts';
import { Reconciler } from './reconciler.ts';
import { Scheduler } from './scheduler.ts';
import type { SandboxHost } from '../services/sandbox-host.ts';
import { createSandboxHost } from './sandbox-host.ts';
import { removeAgent } from './remove-agent.ts';
import { Turn } from './turn.ts';
import { Upkeep } from './upkeep.ts';
import { createUsageHooks, type UsageHooks } from './usage.ts';

export interface RuntimeDependencies extends Omit<KeeperOptions, 'log'> {
  /** Whether sandboxes of this driver can be frozen on this machine. */
  canFreeze: boolean;
  life: RunLife;
  cancel: Cancel;
  history: TurnHistory;
  waitForActive: RunnerDependencies['waitForActive'];
  maxConcurrentRuns: number;
  runMaxAttempts: number;
  leaseMs: number;
  log: Log;
  /** For tests; see the runner, the scheduler and the host of the surface. */
  stopGraceMs?: number;
  roomDelayMs?: number;
  pollMs?: number;
  hostPatience?: () => AbortSignal;
}

/** Where runs are executed: nothing of it can be asked by an edge. */
export interface Runtime {
  /** For the model gateway. */
  hooks: UsageHooks;
  /** For the surface. */
  host: SandboxHost;
  /** Takes up what an earlier process left, ends its sandboxes, and begins to execute. */
  start(): Promise<void>;
  /** Cancels an agent's runs, ends its sandbox and deletes its volume. Idempotent. */
  removeAgent(agentId: string): Promise<void>;
  /**
   * Claims nothing more; turns get `graceMs` to end. `mayLeave`: what is left goes on in detached sandboxes, and the next
   * process of this node takes it up; else it is tried again with the next start. All other sandboxes end.
   */
  drain(graceMs: number, mayLeave: boolean): Promise<void>;
  /** For the metrics, by their names. */
  stats(): Record<string, number>;
  /** Compares the host with the database at once, as is done now and then. */
  reconcile(): Promise<void>;
}

export function createRuntime(deps: RuntimeDependencies): Runtime {
  const { life, cancel, leaseMs, runMaxAttempts: maxAttempts, log } = deps;
  /** By conversation: the turn that is under way. */
  const turns = new Map<string, Turn>();
  /** The same, and the last one of each conversation that is over, for usage that comes late. */
  const lastTurns = new Map<string, Turn>();
  const byRun = new Map<string, Turn>();
  /** A claim is committed before its answer is here, and who cancels right then means a run that is not known yet. */
  const early = new LastFew(EARLY_SIGNALS);
  const ends = new WeakMap<Turn, Promise<void>>();
  let isStopping = false;
  const keeper = new Keeper(deps);
  const reconciler = new Reconciler(deps, keeper);
  const runner: RunnerDependencies = { ...deps, keeper, maxAttempts };

  const execute = (claim: Claim) => track(new Turn(life, claim), (turn) => runTurn(runner, turn));

  async function track(turn: Turn, work: (turn: Turn) => Promise<void>): Promise<void> {
    const { conversationId, runId } = turn.claim;
    const former = turns.get(conversationId);
    const { promise, resolve } = Promise.withResolvers<void>();
    turns.set(conversationId, turn);
    ends.set(turn, promise);
    byRun.set(runId, turn);
    remember(conversationId, turn);
    if (early.take(runId)) lookSoon([runId]);
    // Its claim was under way when the others were told.
    if (isStopping) turn.stop('drain');
    try {
      if (former && !former.isOver) {
        // The lane is this turn's, so that one is nobody's any more, and its harness has one turn at a time.
        former.stop('lost');
        await ends.get(former);
      }
      await work(turn);
    } finally {
      resolve();
      if (turns.get(conversationId) === turn) turns.delete(conversationId);
      if (byRun.get(runId) === turn) byRun.delete(runId);
    }
  }

  function remember(conversationId: string, turn: Turn): void {
    lastTurns.delete(conversationId);
    lastTurns.set(conversationId, turn);
    if (lastTurns.size <= deps.maxConcurrentRuns + 100) return;
    for (const [id, last] of lastTurns) {
      if (!last.isOver) continue;
      lastTurns.delete(id);
      return;
    }
  }

  /** Somebody wants runs to stop, or has answered them: what exactly, their rows say. */
  async function look(runIds: string[] | null): Promise<void> {
    const mine = (runIds ?? [...byRun.keys()]).filter((id) => byRun.has(id));
    if (mine.length === 0) return;
    const [answers, stops] = await Promise.all([life.answers(mine), life.cancelRequests(mine)]);
    for (const { runId, requestId, answer } of answers)
      byRun.get(runId)?.questions?.answer(requestId, answer);
    for (const runId of stops) byRun.get(runId)?.stop('cancel');
  }
  /** What is missed here, the upkeep finds. */
  function lookSoon(runIds: string[] | null): void {
    look(runIds).catch((error: unknown) => log.warn('Signals could not be read.', { error: String(error) }));
  }
  life.onSignal((runIds) => {
    for (const id of runIds ?? []) if (!byRun.has(id)) early.add(id);
    lookSoon(runIds);
  });

  const scheduler = new Scheduler({ ...deps, execute, ready: (agentId) => keeper.ready(agentId) });
  const upkeep = new Upkeep({
    life,
    turns,
    leaseMs,
    maxAttempts,
    cancel: cancel.one,
    onBuried() {
      log.error('This node was taken for dead by another; what it ran was given away.');
      for (const turn of turns.values()) turn.stop('lost');
      void keeper.endAll('The node was taken for dead.');
    },
    log,
  });

  /** Resolves with the sandboxes of the turns that go on without this process. */
  async function leaveTurns(): Promise<Set<string>> {
    const places = keeper.all.filter((kept) => kept.turns.size > 0 && kept.canTakeTurns);
    const left = new Set(places.flatMap((kept) => [...kept.turns]));
    for (const kept of places) kept.leave();
    // One that waits for its sandbox has told nothing yet, and is not among them.
    for (const turn of turns.values()) if (left.has(turn.claim.conversationId)) await turn.leave();
    return new Set(places.map((kept) => kept.id));
  }

  /** Resolves with the conversations whose turns go on. */
  async function takeUp(): Promise<string[]> {
    const places = await keeper.begin();
    const execute = (turn: Turn, from: Resumption) =>
      scheduler.add(
        turn.claim,
        track(turn, () => resumeTurn(runner, turn, from)),
      );
    return adoptTurns({ ...deps, keeper, execute }, places);
  }

  return {
    host: createSandboxHost({ ...deps, keeper }),
    hooks: createUsageHooks({ life, keeper, turnOf: (id) => lastTurns.get(id) ?? null, log }),
    async start() {
      await life.beat();
      // What is being taken up would be given away if others took this node for dead meanwhile.
      const beating = setInterval(() => void life.beat().catch(() => undefined), leaseMs / 4);
      try {
        await upkeep.begin(await takeUp());
      } finally {
        clearInterval(beating);
      }
      scheduler.start();
      reconciler.begin();
      // What was answered or cancelled while nobody listened.
      await look(null);
    },
    removeAgent: (agentId) => removeAgent(deps, { keeper, turns }, agentId),
    async drain(graceMs, mayLeave) {
      scheduler.stop();
      await reconciler.close();
      await within(graceMs, scheduler.idle(), () => undefined);
      const left = mayLeave && deps.isDetached ? await leaveTurns() : new Set<string>();
      isStopping = true;
      for (const turn of turns.values()) if (!turn.isOver) turn.stop('drain');
      keeper.stopStarting();
      // Those that were left behind never come back to this process.
      if (left.size === 0) await scheduler.idle();
      else while ([...turns.values()].some((turn) => !turn.isOver)) await delay(LOOK_MS);
      try {
        await keeper.close('The service was stopped.', (kept) => left.has(kept.id));
      } finally {
        await upkeep.close();
      }
      // The node's sign of life stays for what is left: another one takes it over when nobody comes back.
      if (left.size === 0) await life.leave();
    },
    reconcile: () => reconciler.look(),
    stats() {
      const frozen = keeper.all.filter((kept) => kept.isFrozen).length;
      return {
        berth_runs_running: scheduler.size,
        berth_sandboxes: keeper.size,
        berth_sandboxes_frozen: frozen,
        berth_sandboxes_ready: deps.pool?.size ?? 0,
        berth_sandboxes_leaked: reconciler.leaked,
      };
    },
  };
}

const LOOK_MS = 10;
/** Signals go to every replica, so most of these are of runs that another one executes. */
const EARLY_SIGNALS = 10_000;
const delay = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
