import type { EventBody, EventMessage, EventUsage } from '../domain/events.ts';
import type { RunError } from '../domain/errors.ts';
import { newId } from '../domain/ids.ts';
import { limits } from '../domain/limits.ts';
import type { Log } from '../domain/log.ts';
import { formatMicros } from '../domain/money.ts';
import { RunPlaces, type Owner } from '../domain/run-places.ts';
import type { RunUsage, TerminalStatus } from '../domain/nouns.ts';
import type { MessageExtras } from '../domain/parts.ts';
import type { Doorbell } from '../domain/ports/doorbell.ts';
import type { Answer } from '../domain/questions.ts';
import type { Database } from '../store/database.ts';
import { compactDeltas } from '../store/events.ts';
import * as lanes from '../store/lanes.ts';
import type { Adopted, Claim, LedgerRow, OwnedLane } from '../store/lanes.ts';
import { buryNodes, leaveNode, touchNode } from '../store/nodes.ts';
import * as questions from '../store/questions.ts';
import type { Claimant } from '../store/run-life.ts';
import { bindDeployment, cancelRequests, messageExtras, orphanedRuns } from '../store/runs.ts';
import type { AskedQuestion } from '../store/questions.ts';
import type { RunOutcome } from './api.ts';
import type { Hub } from './hub.ts';
import type { Outcomes } from './outcomes.ts';
import { createPublish, type Publish } from './publish.ts';
import { createRunWriters, type RunWriter } from './run-writer.ts';

export type { Adopted, Claim, LedgerRow, OwnedLane } from '../store/lanes.ts';
export type { AskedQuestion } from '../store/questions.ts';
export type { RunWriter } from './run-writer.ts';

export interface Settlement {
  status: TerminalStatus;
  error: RunError | null;
  /** Set exactly when completed. */
  message: { id: string; content: string; artifactIds: string[] } | null;
  reply: 'message' | 'task';
  usage: RunUsage;
}

export interface GivenUp {
  /** Told in `run.retrying`. */
  reason: string;
  /** After so many attempts the run fails; null = it may always be tried again. */
  maxAttempts: number | null;
  /** Why the run fails when it may not. */
  error: RunError;
  delayMs: number;
  /** Also when the attempt still waited for its sandbox, which else does not count. */
  countsAlways?: boolean;
}

/** Who executes runs in this process. A send hands it the run at once when it has room. */
export interface Executor {
  /** Keeps room for one run, which `begin` takes or gives back. False: there is none for its owner, or others wait for it. */
  reserve(owner: Owner): boolean;
  /** The sandboxes, or that of one agent, in which a turn begins at once; as in `ClaimRequest`. */
  ready(agentId: string | null): string[];
  /** Null: the run is not ours. */
  begin(owner: Owner, claim: Claim | null): void;
}

/** What the runtime does to runs: claim, write, settle, keep them alive. Edges never come here. */
export interface RunLife {
  readonly publish: Publish;
  /** Told of every conversation that became ready, here or on another replica; null = there may be some. */
  onReady(listener: (conversationIds: string[] | null) => void): void;
  /** Told of runs that somebody wants to stop or has answered; null = there may be some. */
  onSignal(listener: (runIds: string[] | null) => void): void;
  ready(conversationId: string): void;
  signal(runId: string): void;
  isWatched(conversationId: string): boolean;
  /** The conversation was deleted: what is remembered of its runs is not told any more. */
  forget(conversationId: string): void;

  /** Null = of all that wait, in turns: `places` says who has how many; without them `max` is the only bound. */
  claim(conversationIds: string[] | null, max: number, places?: RunPlaces): Promise<Claim[]>;
  /** Runs may be claimed with their acceptance from now on. */
  setExecutor(executor: Executor): void;
  /** Keeps room for a run that is about to be accepted; null when it has to wait for a claim. */
  offer(owner: Owner): Claimant | null;
  /** What became of the offer; null = nothing was claimed. */
  take(owner: Owner, claim: Claim | null): void;
  /** Goes on with a run that an earlier process of this node began. Null: it is not as given any more. */
  adopt(lane: Pick<OwnedLane, 'conversationId' | 'epoch'>): Promise<Adopted | null>;
  open(claim: Claim): RunWriter;
  /** False: the lane is another owner's, and nothing was written. */
  settle(writer: RunWriter, settlement: Settlement): Promise<boolean>;
  /** The present attempt is over; the run is tried again, or has failed, or is cancelled. */
  endAttempt(claim: Pick<Claim, 'conversationId' | 'epoch'>, givenUp: GivenUp): Promise<void>;
  bindDeployment(runId: string, deploymentId: string): Promise<void>;
  /**
   * Whether the attempt waits for its sandbox: one that is lost before its prompt was sent does not count. One that finds
   * none ready waits from its claim on, and so does every later attempt. False: the lane is another owner's.
   */
  setWaits(claim: Pick<Claim, 'conversationId' | 'epoch'>, waits: boolean): Promise<boolean>;
  /** Nobody will answer it any more: stored with the event that tells so, unless a caller has answered. */
  cancelQuestion(
    claim: Pick<Claim, 'conversationId' | 'epoch' | 'runId'>,
    requestId: string,
    event: EventBody,
  ): Promise<void>;
  /** Those of the runs that somebody wants to stop. */
  cancelRequests(runIds: string[]): Promise<string[]>;
  /** What of a run that is taken up an earlier version of the service asked and told nobody of. */
  forgetUntoldQuestions(runId: string): Promise<void>;
  /** All that a run has asked, and what became of it. */
  askedQuestions(runId: string): Promise<AskedQuestion[]>;
  answers(runIds: string[]): Promise<{ runId: string; requestId: string; answer: Answer }[]>;
  /** What came with a run's message beside its text. */
  extras(runId: string): Promise<MessageExtras | null>;
  /** Usage that came after its run had ended. */
  recordLateUsage(rows: LedgerRow[]): Promise<void>;

  /**
   * Says that this node lives; whoever does not say so for a lease's time has lost its runs. False: this node was
   * taken for dead meanwhile (or is new).
   */
  beat(): Promise<boolean>;
  /** Ends the attempts of nodes that are gone, and of this one when it has just been started, but for the kept conversations. */
  reap(options: { isStart: boolean; kept: string[]; maxAttempts: number }): Promise<number>;
  /** What the database says that this node executes. */
  owned(): Promise<OwnedLane[]>;
  leave(): Promise<void>;
  /** Unfinished runs of deleted conversations and agents. */
  orphans(): Promise<{ id: string; conversationId: string }[]>;
  compact(): Promise<number>;
}

export interface RunLifeOptions {
  db: Database;
  hub: Hub;
  outcomes: Outcomes;
  doorbell: Doorbell;
  nodeId: string;
  leaseMs: number;
  runTimeoutMs: number;
  log: Log;
}

export function usageOfEvent(usage: RunUsage): EventUsage {
  return {
    inputTokens: usage.inputTokens,
    outputTokens: usage.outputTokens,
    cost: formatMicros(usage.costMicros),
  };
}

export function createRunLife(options: RunLifeOptions): RunLife {
  const { db, hub, outcomes, doorbell, nodeId, leaseMs, runTimeoutMs, log } = options;
  const readyListeners: ((conversationIds: string[] | null) => void)[] = [];
  const signalListeners: ((runIds: string[] | null) => void)[] = [];
  const publish = createPublish(hub, doorbell);
  const writers = createRunWriters(db, publish, log);
  let peers = 0;
  /** The others know that there is this one, and ring it. */
  let isKnown = false;
  let executor: Executor | null = null;

  const tellReady = (ids: string[] | null) => readyListeners.forEach((listener) => listener(ids));
  const tellSignal = (ids: string[] | null) => signalListeners.forEach((listener) => listener(ids));
  doorbell.on('lanes', tellReady);
  doorbell.on('cancel', tellSignal);
  doorbell.on('nodes', () => (peers = Math.max(peers, 1)));
  doorbell.onReconnect(() => {
    tellReady(null);
    tellSignal(null);
  });

  return {
    publish,
    onReady: (listener) => void readyListeners.push(listener),
    onSignal: (listener) => void signalListeners.push(listener),
    ready(conversationId) {
      tellReady([conversationId]);
      doorbell.ring('lanes', conversationId);
    },
    signal(runId) {
      tellSignal([runId]);
      doorbell.ring('cancel', runId);
    },
    // Who follows on another replica is not known here.
    isWatched: (conversationId) => peers > 0 || hub.isWatched(conversationId),

    forget: (conversationId) => outcomes.forget(conversationId),

    async claim(wanted, max, places = new RunPlaces(2 * max)) {
      const waiting = wanted ? [] : await lanes.waitingLanes(db, nodeId, max, places.full);
      const conversationIds = wanted ?? places.inTurns(waiting, max).map((lane) => lane.conversationId);
      if (conversationIds.length === 0) return [];
      const messageIds = Array.from({ length: Math.min(max, conversationIds.length) }, newId);
      const ready = executor?.ready(null) ?? [];
      const claims = await lanes.claimLanes(db, { nodeId, conversationIds, messageIds, runTimeoutMs, ready });
      for (const claim of claims) publish(claim, [startedEvent(claim)], claim.seq, claim.at);
      return claims;
    },
    setExecutor: (given) => void (executor = given),
    offer: (owner) =>
      executor?.reserve(owner)
        ? { nodeId, messageId: newId(), runTimeoutMs, ready: executor.ready(owner.agentId) }
        : null,
    take: (owner, claim) => executor?.begin(owner, claim),
    adopt: (lane) => lanes.adoptLane(db, nodeId, lane),
    open: (claim) => writers.open(claim),

    async settle(writer, settlement) {
      const { claim } = writer;
      const at = new Date();
      const { status, error } = settlement;
      const message = settlement.message && { ...settlement.message, createdAt: at };
      const settled = await writer.settle({ status, error, message }, endEvents(claim, settlement, at));
      if (!settled) return false;
      outcomes.settle(outcomeOf(claim, settlement, at, settled.at));
      if (settled.isReady) this.ready(claim.conversationId);
      return true;
    },

    async endAttempt({ conversationId, epoch }, givenUp) {
      const events = await lanes.endAttempt(db, { countsAlways: false, conversationId, epoch, ...givenUp });
      if (events.length === 0) return;
      publish.written(events);
      this.ready(conversationId);
    },

    bindDeployment: (runId, deploymentId) => bindDeployment(db, runId, deploymentId),
    setWaits: (claim, waits) => lanes.setWaits(db, claim, waits),
    async cancelQuestion(claim, requestId, event) {
      publish.written(await questions.cancelQuestion(db, claim, requestId, event));
    },
    forgetUntoldQuestions: (runId) => questions.forgetUntold(db, runId),
    askedQuestions: (runId) => questions.askedQuestions(db, runId),
    answers: (runIds) => questions.answeredQuestions(db, runIds),
    extras: (runId) => messageExtras(db, runId),
    cancelRequests: (runIds) => cancelRequests(db, runIds),
    recordLateUsage: (rows) => lanes.recordUsage(db, rows),

    async beat() {
      const { others, wasKnown } = await touchNode(db, nodeId, leaseMs);
      peers = others;
      doorbell.setPeers(others);
      // They count the nodes only now and then, and what they wrote before that nobody here would hear of.
      if (!isKnown || !wasKnown) doorbell.ring('nodes', nodeId);
      isKnown = true;
      return wasKnown;
    },
    async reap({ isStart, kept, maxAttempts }) {
      const errorText = `The service lost the run ${maxAttempts === 1 ? 'once' : `${maxAttempts} times`}; it is not tried again.`;
      const events = await lanes.reapLanes(db, {
        nodeId,
        isStart,
        keptConversationIds: kept,
        leaseMs,
        maxAttempts,
        errorText,
      });
      publish.written(events);
      for (const event of events) this.ready(event.conversationId);
      // After their runs, so that an agent without a node never has a run that executes.
      await buryNodes(db, nodeId, leaseMs);
      return events.length;
    },
    owned: () => lanes.ownedLanes(db, nodeId),
    leave: () => leaveNode(db, nodeId),
    orphans: () => orphanedRuns(db, 100),
    compact: () => compactDeltas(db, limits.deltaRetentionHours, 200),
  };
}

/** As the claim has written it. */
export function startedEvent({ runId, attempt, deploymentId }: Claim): EventBody {
  return { type: 'run.started', data: { runId, attempt, deploymentId } };
}

function endEvents(claim: Claim, settlement: Settlement, at: Date): EventBody[] {
  const { runId, agentId, conversationId } = claim;
  const usage = usageOfEvent(settlement.usage);
  const { message } = settlement;
  if (settlement.status === 'cancelled') return [{ type: 'run.cancelled', data: { runId, usage } }];
  if (settlement.status === 'failed' || !message) {
    return [{ type: 'run.failed', data: { runId, error: settlement.error!, usage } }];
  }
  const { id, content, artifactIds } = message;
  const data: EventMessage = {
    id,
    agentId,
    conversationId,
    runId,
    role: 'assistant',
    content,
    createdAt: at.toISOString(),
  };
  if (artifactIds.length > 0) data.artifactIds = artifactIds;
  return [
    { type: 'message.created', data },
    { type: 'run.completed', data: { runId, messageId: id, reply: settlement.reply, usage } },
  ];
}

function outcomeOf(claim: Claim, settlement: Settlement, createdAt: Date, endedAt: Date): RunOutcome {
  const { runId, agentId, conversationId, orgId, deploymentId, attempt, startedAt } = claim;
  const { status, error, usage, message } = settlement;
  const place = { agentId, conversationId };
  const times = { createdAt: claim.createdAt, startedAt, endedAt };
  return {
    run: { id: runId, ...place, orgId, deploymentId, status, attempt, error, usage, ...times },
    message: message && { ...message, ...place, runId, role: 'assistant', extras: null, createdAt },
  };
}
