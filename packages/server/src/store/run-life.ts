import type { ConversationEvent, EventBody } from '../domain/events.ts';
import type { Manifest } from '../domain/manifest.ts';
import type { TerminalStatus } from '../domain/nouns.ts';
import type { MessageExtras } from '../domain/parts.ts';
import type { Database } from './database.ts';
import { eventOf } from './events.ts';
import type { Claim } from './lanes.ts';

/** What callers do to runs; each is one statement (`migrations/0002_run_life.sql`). */

export interface AcceptRow {
  orgId: string;
  agentId: string;
  conversationId: string;
  isNewConversation: boolean;
  title: string;
  source: string;
  keyId: string;
  idempotency: { key: string; requestHash: string } | null;
  onBusy: 'enqueue' | 'interrupt' | 'reject';
  runId: string;
  messageId: string;
  content: string;
  /** What came beside the text, and its parts in words; null = nothing. */
  extras: { value: MessageExtras; text: string | null } | null;
  at: Date;
  /** `message.created` and `run.queued`. */
  events: [EventBody, EventBody];
  maxQueued: number;
  maxAgents: number;
  /** A node that has room for the run: it is claimed along when nothing stands before it. Null = it waits for a claim. */
  claimant: Claimant | null;
}

export interface Claimant {
  nodeId: string;
  /** A new id, under which the run's first attempt streams. */
  messageId: string;
  runTimeoutMs: number;
  /** The agent's sandbox, when a turn begins in it at once; as in `ClaimRequest`. */
  ready: string[];
}

export type Refusal =
  | 'idempotency_key_reused'
  | 'not_found'
  | 'conversation_busy'
  | 'queue_full'
  | 'too_many_sandboxes'
  | 'budget_exceeded';

export type AcceptResult =
  | {
      result: 'accepted';
      firstSeq: number;
      /** It executes, and was asked to stop. */
      interruptedRunId: string | null;
      /** Of runs that waited and were cancelled. */
      cancelled: ConversationEvent[];
      /** The run has begun; `run.started` is the third event. */
      claim: Claim | null;
    }
  | { result: 'replayed'; runId: string; conversationId: string }
  | { result: Refusal };

interface AcceptedRow {
  outcome: AcceptResult['result'];
  run_id: string;
  conversation_id: string;
  first_seq: bigint;
  running_run_id: string | null;
  cancelled: CancelledJson[] | null;
  claimed: boolean;
  epoch: bigint | null;
  deployment_id: string | null;
  slot: number | null;
  model: string | null;
  generation: number | null;
  commit: string | null;
  manifest: Manifest | null;
  waits: boolean | null;
}

interface CancelledJson {
  seq: number;
  runId: string;
  data: unknown;
}

const cancelledEvents = (
  conversationId: string,
  rows: CancelledJson[] | null,
  at: Date,
): ConversationEvent[] =>
  (rows ?? []).map(({ seq, runId, data }) =>
    eventOf({ conversation_id: conversationId, seq, run_id: runId, type: 'run.cancelled', data, at }),
  );

/** What `claimLanes` would give. */
function claimOf(row: AcceptRow, { messageId, runTimeoutMs }: Claimant, answer: AcceptedRow): Claim {
  const { orgId, agentId, keyId, conversationId, runId, content, source, at } = row;
  return {
    conversationId,
    epoch: String(answer.epoch),
    runId,
    orgId,
    agentId,
    keyId,
    attempt: 1,
    deploymentId: answer.deployment_id,
    commit: answer.commit,
    manifest: answer.manifest,
    messageId,
    content,
    source,
    hasExtras: row.extras !== null,
    seq: Number(answer.first_seq) + 2,
    at,
    deadlineAt: new Date(at.getTime() + runTimeoutMs),
    startedAt: at,
    createdAt: at,
    inputTokens: 0,
    outputTokens: 0,
    costMicros: 0n,
    slot: answer.slot!,
    model: answer.model!,
    generation: answer.generation!,
    waits: answer.waits!,
  };
}

export async function acceptRun(db: Database, row: AcceptRow): Promise<AcceptResult> {
  const [made, queued] = row.events;
  const { claimant } = row;
  const [answer] = await db.sql<[AcceptedRow]>`
    select * from accept_run(
      ${row.orgId}, ${row.keyId}, ${row.agentId}, ${row.conversationId}, ${row.isNewConversation}, ${row.title},
      ${row.source}, ${row.onBusy}, ${row.idempotency?.key ?? null}, ${row.idempotency?.requestHash ?? null},
      ${row.runId}, ${row.messageId}, ${row.content}, ${JSON.stringify(made.data)}, ${JSON.stringify(queued.data)},
      ${row.at}, ${row.maxQueued}, ${row.maxAgents}, ${claimant?.nodeId ?? null}, ${claimant?.messageId ?? null},
      ${claimant?.runTimeoutMs ?? null}::bigint, ${claimant?.ready ?? []}::text[], ${row.extras && JSON.stringify(row.extras.value)},
      ${row.extras?.text ?? null})`;
  if (answer.outcome === 'accepted') {
    return {
      result: 'accepted',
      firstSeq: Number(answer.first_seq),
      interruptedRunId: answer.running_run_id,
      cancelled: cancelledEvents(row.conversationId, answer.cancelled, row.at),
      claim: claimant && answer.claimed ? claimOf(row, claimant, answer) : null,
    };
  }
  if (answer.outcome === 'replayed') {
    return { result: 'replayed', runId: answer.run_id, conversationId: answer.conversation_id };
  }
  return { result: answer.outcome };
}

export type CancelResult =
  /** Nobody executed it: it has ended. */
  | { result: 'settled'; event: ConversationEvent }
  /** Its owner has to stop it. */
  | { result: 'requested' }
  | { result: TerminalStatus };

export async function cancelRun(
  db: Database,
  run: { id: string; conversationId: string },
): Promise<CancelResult> {
  const at = new Date();
  const [row] = await db.sql<[{ outcome: CancelResult['result']; event: CancelledJson | null }]>`
    select * from cancel_run(${run.id}, ${at})`;
  if (row.outcome !== 'settled') return { result: row.outcome };
  return { result: 'settled', event: cancelledEvents(run.conversationId, [row.event!], at)[0]! };
}

/** Deletes a conversation; what waits in it is cancelled, what executes is asked to stop. */
export async function closeConversation(
  db: Database,
  id: string,
): Promise<{ runningRunId: string | null; cancelled: ConversationEvent[] }> {
  const at = new Date();
  const [row] = await db.sql<[{ running_run_id: string | null; cancelled: CancelledJson[] | null }]>`
    select * from close_conversation(${id}, ${at})`;
  return { runningRunId: row.running_run_id, cancelled: cancelledEvents(id, row.cancelled, at) };
}
