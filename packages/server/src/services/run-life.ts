import type { ConversationEvent, EventBody, EventUsage } from '../domain/events.ts';
import type { RunError } from '../domain/errors.ts';
import type { Log } from '../domain/log.ts';
import { formatMicros } from '../domain/money.ts';
import type { Run, RunUsage, TerminalStatus } from '../domain/nouns.ts';
import type { Doorbell } from '../domain/ports/doorbell.ts';
import type { Database } from '../store/database.ts';
import { leaveNode, touchNode } from '../store/nodes.ts';
import * as store from '../store/run-life.ts';
import { orphanedRuns } from '../store/runs.ts';
import { compactDeltas } from '../store/events.ts';
import { limits } from '../domain/limits.ts';
import type { Hub } from './hub.ts';
import type { Outcomes } from './outcomes.ts';
import { createAppender, publish, type RunWriter } from './run-writer.ts';

export type { Claim, LedgerRow } from '../store/run-life.ts';
export type { RunWriter } from './run-writer.ts';

export interface Settlement {
  status: TerminalStatus;
  error: RunError | null;
  /** Set exactly when completed. */
  message: { id: string; content: string } | null;
  usage: RunUsage;
}

export interface Signal {
  runId: string;
  cancelRequested: boolean;
  requestId: string | null;
  option: string | null;
}

/** What the runtime does to runs: claim, write, settle, keep the lease. Edges never come here. */
export interface RunLife {
  /** Told of every conversation that became ready, here or on another replica. */
  onReady(listener: (conversationId: string) => void): void;
  /** Told of runs that somebody wants to stop or has answered. */
  onSignal(listener: (runIds: string[]) => void): void;
  ready(conversationId: string): void;
  signal(runId: string): void;
  claim(conversationIds: string[] | null, max: number): Promise<store.Claim[]>;
  open(claim: store.Claim): RunWriter;
  /** False: the lane is another owner's, and nothing was written. */
  settle(writer: RunWriter, settlement: Settlement): Promise<boolean>;
  setAwaiting(writer: RunWriter, requestId: string | null): Promise<boolean>;
  signalsOf(runIds: string[]): Promise<Signal[]>;
  /** Usage that came after its run was settled. */
  recordLateUsage(rows: store.LedgerRow[]): Promise<void>;
  /** Renews this node's leases and its sign of life; resolves with the conversations still held. */
  renew(): Promise<Set<string>>;
  /** Gives up what an earlier process of this node held, so that it is taken over at once. */
  release(): Promise<void>;
  leave(): Promise<void>;
  /** Runs of deleted conversations and agents. */
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
  const { db, hub, outcomes, doorbell, nodeId, leaseMs, log } = options;
  // Two missed renewals of a lease that is renewed three times in its time: a node that is silent so long is gone.
  const nodeDeadMs = leaseMs * 2;
  const readyListeners: ((conversationId: string) => void)[] = [];
  const signalListeners: ((runIds: string[]) => void)[] = [];
  const ringEvents = (conversationId: string) => doorbell.ring('events', conversationId);
  const appender = createAppender(db, hub, ringEvents, log);

  doorbell.on('lanes', (ids) => {
    for (const id of ids) for (const listener of readyListeners) listener(id);
  });
  doorbell.on('cancel', (ids) => {
    for (const listener of signalListeners) listener(ids);
  });

  function ready(conversationId: string): void {
    for (const listener of readyListeners) listener(conversationId);
    doorbell.ring('lanes', conversationId);
  }

  return {
    onReady: (listener) => void readyListeners.push(listener),
    onSignal: (listener) => void signalListeners.push(listener),
    ready,
    signal(runId) {
      for (const listener of signalListeners) listener([runId]);
      doorbell.ring('cancel', runId);
    },

    async claim(conversationIds, max) {
      const claims = await store.claimLanes(db, { nodeId, leaseMs, nodeDeadMs, conversationIds, max });
      for (const claim of claims) {
        if (claim.isTakeover) continue;
        const { runId, attempt, deploymentId } = claim;
        const started: EventBody = { type: 'run.started', data: { runId, attempt, deploymentId } };
        publish(hub, ringEvents, claim, [started], claim.startSeq, claim.at);
      }
      return claims;
    },

    open: (claim) => appender.open(claim),

    async settle(writer, settlement) {
      const { claim } = writer;
      const rest = await writer.close();
      const at = new Date();
      const events = [...rest.events, ...endEvents(claim, settlement, at)];
      const settled = await store.settleRun(db, {
        conversationId: claim.conversationId,
        epoch: claim.epoch,
        runId: claim.runId,
        orgId: claim.orgId,
        agentId: claim.agentId,
        status: settlement.status,
        error: settlement.error,
        inputTokens: settlement.usage.inputTokens,
        outputTokens: settlement.usage.outputTokens,
        costMicros: settlement.usage.costMicros,
        message: settlement.message,
        events,
        at,
        ledger: rest.ledger,
      });
      if (!settled) {
        if (rest.ledger.length > 0) await store.recordUsage(db, rest.ledger);
        return false;
      }
      publish(hub, ringEvents, claim, events, settled.firstSeq, at);
      outcomes.settle(outcomeOf(claim, settlement, at));
      if (settled.isReady) ready(claim.conversationId);
      return true;
    },

    setAwaiting: (writer, requestId) =>
      store.setAwaiting(db, writer.claim.conversationId, writer.claim.epoch, writer.claim.runId, requestId),
    signalsOf: (runIds) => store.signalsOf(db, runIds),
    recordLateUsage: (rows) => store.recordUsage(db, rows),

    async renew() {
      const others = await touchNode(db, nodeId, nodeDeadMs);
      doorbell.setPeers(others);
      return store.renewLeases(db, nodeId, leaseMs);
    },
    async release() {
      await store.releaseLeases(db, nodeId);
    },
    leave: () => leaveNode(db, nodeId),
    orphans: () => orphanedRuns(db, 100),
    compact: () => compactDeltas(db, limits.deltaRetentionHours, 200),
  };
}

function endEvents(claim: store.Claim, settlement: Settlement, at: Date): EventBody[] {
  const { runId, agentId, conversationId } = claim;
  const usage = usageOfEvent(settlement.usage);
  const { message } = settlement;
  if (settlement.status === 'cancelled') return [{ type: 'run.cancelled', data: { runId, usage } }];
  if (settlement.status === 'failed' || !message) {
    return [{ type: 'run.failed', data: { runId, error: settlement.error!, usage } }];
  }
  const data = {
    ...message,
    agentId,
    conversationId,
    runId,
    role: 'assistant' as const,
    createdAt: at.toISOString(),
  };
  return [
    { type: 'message.created', data },
    { type: 'run.completed', data: { runId, messageId: message.id, usage } },
  ];
}

function outcomeOf(claim: store.Claim, settlement: Settlement, at: Date) {
  const { runId, agentId, conversationId, orgId, deploymentId, attempt } = claim;
  const run: Run = {
    id: runId,
    agentId,
    orgId,
    conversationId,
    deploymentId,
    status: settlement.status,
    attempt,
    error: settlement.error,
    usage: settlement.usage,
    createdAt: claim.createdAt,
    startedAt: claim.startedAt,
    endedAt: at,
  };
  const { message } = settlement;
  return {
    run,
    message: message && {
      ...message,
      agentId,
      conversationId,
      runId,
      role: 'assistant' as const,
      createdAt: at,
    },
  };
}

export type { ConversationEvent };
