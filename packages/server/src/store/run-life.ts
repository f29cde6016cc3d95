import type { EventBody } from '../domain/events.ts';
import type { RunErrorCode } from '../domain/errors.ts';
import type { TerminalStatus } from '../domain/nouns.ts';
import type { Database } from './database.ts';

/** The transactions that change a run; each is one statement (`migrations/0002_run_life.sql`). */

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
  at: Date;
  /** `message.created` and `run.queued`. */
  events: [EventBody, EventBody];
  maxQueued: number;
  maxAgents: number;
}

export type AcceptResult =
  | { result: 'accepted'; firstSeq: number; interruptedRunId: string | null }
  | { result: 'replayed'; runId: string; conversationId: string }
  | {
      result:
        | 'idempotency_key_reused'
        | 'not_found'
        | 'conversation_busy'
        | 'queue_full'
        | 'too_many_sandboxes';
    };

export async function acceptRun(db: Database, row: AcceptRow): Promise<AcceptResult> {
  const [made, queued] = row.events;
  const [found] = await db.sql<
    {
      result: AcceptResult['result'];
      run: string;
      conversation: string;
      first_seq: bigint;
      interrupted: string | null;
    }[]
  >`
    select * from accept_run(
      ${row.orgId}, ${row.agentId}, ${row.conversationId}, ${row.isNewConversation}, ${row.title}, ${row.source},
      ${row.keyId}, ${row.idempotency?.key ?? null}, ${row.idempotency?.requestHash ?? null}, ${row.onBusy},
      ${row.runId}, ${row.messageId}, ${row.content}, ${row.at},
      ${JSON.stringify(made.data)}, ${JSON.stringify(queued.data)}, ${row.maxQueued}, ${row.maxAgents})`;
  const answer = found!;
  if (answer.result === 'accepted') {
    return { result: 'accepted', firstSeq: Number(answer.first_seq), interruptedRunId: answer.interrupted };
  }
  if (answer.result === 'replayed') {
    return { result: 'replayed', runId: answer.run, conversationId: answer.conversation };
  }
  return { result: answer.result };
}

export interface LedgerRow {
  id: string;
  org_id: string;
  agent_id: string;
  run_id: string | null;
  key_id: string | null;
  meter: string;
  model: string | null;
  quantity: number;
  /** Micro-dollars per million, as a decimal text; null = not known. */
  unit_price: string | null;
  price_version: string;
  cost_micros: string;
}

export interface PendingLane {
  conversationId: string;
  epoch: bigint;
  runId: string;
  /** Counts the owner's appends from 1: the same number is never written twice. */
  appendNo: number;
  events: EventBody[];
}

/** Appends in the order given. Resolves with the first seq of each conversation; one that is missing got nothing. */
export async function appendEvents(
  db: Database,
  lanes: PendingLane[],
  ledger: LedgerRow[],
  at: Date,
): Promise<Map<string, number>> {
  const events = lanes.flatMap((lane) =>
    lane.events.map((body, ordinal) => ({ lane, ordinal, type: body.type, data: JSON.stringify(body.data) })),
  );
  const rows = await db.sql<{ conversation: string; first_seq: bigint }[]>`
    select * from append_events(
      ${lanes.map((lane) => lane.conversationId)}::uuid[], ${lanes.map((lane) => String(lane.epoch))}::bigint[],
      ${lanes.map((lane) => lane.appendNo)}::integer[], ${lanes.map((lane) => lane.events.length)}::integer[],
      ${events.map(({ lane }) => lane.conversationId)}::uuid[], ${events.map(({ ordinal }) => ordinal)}::integer[],
      ${events.map(({ lane }) => lane.runId)}::uuid[], ${events.map(({ type }) => type)}::text[],
      ${events.map(({ data }) => data)}::text[], ${at},
      ${ledger.length === 0 ? null : JSON.stringify(ledger)})`;
  return new Map(rows.map((row) => [row.conversation, Number(row.first_seq)]));
}

/** Whether this very append is in the log: asked when the connection was lost before the answer. */
export async function wasAppended(db: Database, lane: PendingLane): Promise<boolean> {
  const rows = await db.sql`
    select 1 from lanes where conversation_id = ${lane.conversationId} and epoch = ${String(lane.epoch)}::bigint
      and append_no = ${lane.appendNo}`;
  return rows.length > 0;
}

export async function recordUsage(db: Database, ledger: LedgerRow[]): Promise<void> {
  await db.sql`select record_usage(${JSON.stringify(ledger)})`;
}

export interface SettleRow {
  conversationId: string;
  epoch: bigint;
  runId: string;
  orgId: string;
  agentId: string;
  status: TerminalStatus;
  error: { error: string; code: RunErrorCode } | null;
  inputTokens: number;
  outputTokens: number;
  costMicros: bigint;
  message: { id: string; content: string } | null;
  events: EventBody[];
  at: Date;
  ledger: LedgerRow[];
}

/** Null: the lane is no longer the caller's, and nothing was written. */
export async function settleRun(
  db: Database,
  row: SettleRow,
): Promise<{ firstSeq: number; isReady: boolean } | null> {
  const [found] = await db.sql<{ first_seq: bigint | null; is_ready: boolean }[]>`
    select * from settle_run(
      ${row.conversationId}, ${String(row.epoch)}::bigint, ${row.runId}, ${row.orgId}, ${row.agentId}, ${row.status},
      ${row.error?.code ?? null}, ${row.error?.error ?? null}, ${row.inputTokens}::bigint, ${row.outputTokens}::bigint,
      ${String(row.costMicros)}::bigint, ${row.message?.id ?? null}, ${row.message?.content ?? null},
      ${row.events.map((event) => event.type)}::text[], ${row.events.map((event) => JSON.stringify(event.data))}::text[],
      ${row.at}, ${row.ledger.length === 0 ? null : JSON.stringify(row.ledger)})`;
  if (!found || found.first_seq === null) return null;
  return { firstSeq: Number(found.first_seq), isReady: found.is_ready };
}

/** `cancelled`, or the status that the run has instead; null when there is none. */
export async function cancelQueuedRun(
  db: Database,
  conversationId: string,
  runId: string,
  event: EventBody,
  at: Date,
): Promise<{ result: string | null; seq: number | null }> {
  const [found] = await db.sql<{ result: string | null; seq: bigint | null }[]>`
    select * from cancel_queued_run(${conversationId}, ${runId}, ${JSON.stringify(event.data)}, ${at})`;
  return { result: found!.result, seq: found!.seq === null ? null : Number(found!.seq) };
}

export interface Claim {
  conversationId: string;
  epoch: bigint;
  runId: string;
  orgId: string;
  agentId: string;
  keyId: string | null;
  attempt: number;
  deploymentId: string | null;
  /** The user's message. */
  content: string;
  /** Of the `run.started` event; not written yet when `isTakeover`. */
  startSeq: number;
  /** The run had begun elsewhere and was lost. */
  isTakeover: boolean;
  cancelRequested: boolean;
  createdAt: Date;
  startedAt: Date;
  at: Date;
}

export interface ClaimRequest {
  nodeId: string;
  leaseMs: number;
  nodeDeadMs: number;
  /** Null = any. */
  conversationIds: string[] | null;
  max: number;
}

export async function claimLanes(db: Database, request: ClaimRequest): Promise<Claim[]> {
  const at = new Date();
  const rows = await db.sql<
    {
      conversation: string;
      epoch: bigint;
      run: string;
      org: string;
      agent: string;
      key: string | null;
      attempt: number;
      deployment: string | null;
      content: string;
      start_seq: bigint;
      is_takeover: boolean;
      cancel_requested: boolean;
      started_at: Date;
      created_at: Date;
    }[]
  >`select * from claim_lanes(
      ${request.nodeId}, ${request.leaseMs}, ${request.nodeDeadMs}, ${request.conversationIds}::uuid[], ${request.max}, ${at})`;
  return rows.map((row) => ({
    conversationId: row.conversation,
    epoch: row.epoch,
    runId: row.run,
    orgId: row.org,
    agentId: row.agent,
    keyId: row.key,
    attempt: row.attempt,
    deploymentId: row.deployment,
    content: row.content,
    startSeq: Number(row.start_seq),
    isTakeover: row.is_takeover,
    cancelRequested: row.cancel_requested,
    createdAt: row.created_at,
    startedAt: row.started_at,
    at,
  }));
}

/** Keeps what this node runs. Resolves with the conversations whose lease it still holds. */
export async function renewLeases(db: Database, nodeId: string, leaseMs: number): Promise<Set<string>> {
  const rows = await db.sql<{ conversation_id: string }[]>`
    update lanes set lease_until = now() + ${leaseMs} * interval '1 millisecond'
    where node_id = ${nodeId} and state = 'running' returning conversation_id`;
  return new Set(rows.map((row) => row.conversation_id));
}

/** Gives every lane of a node up at once: the next claim of any node takes over. */
export async function releaseLeases(db: Database, nodeId: string): Promise<void> {
  await db.sql`update lanes set lease_until = now() - interval '1 second' where node_id = ${nodeId} and state = 'running'`;
}

/** Records that somebody wants the run to stop; answers its state and place, or null when it has ended. */
export async function requestCancel(
  db: Database,
  runId: string,
): Promise<{ status: string; nodeId: string | null } | null> {
  const [row] = await db.sql<{ status: string; node_id: string | null }[]>`
    update runs r set cancel_requested_at = coalesce(cancel_requested_at, now())
    from lanes l where r.id = ${runId} and l.conversation_id = r.conversation_id
      and r.status in ('queued', 'running', 'awaiting_input')
    returning r.status, l.node_id`;
  return row ? { status: row.status, nodeId: row.node_id } : null;
}

/** Of the runs named, those that somebody wants to stop or has answered, for their owner. */
export async function signalsOf(
  db: Database,
  runIds: string[],
): Promise<{ runId: string; cancelRequested: boolean; requestId: string | null; option: string | null }[]> {
  const rows = await db.sql<
    { id: string; cancel: boolean; request_id: string | null; response_option: string | null }[]
  >`select id, cancel_requested_at is not null as cancel, request_id, response_option from runs
    where id = any (${runIds}::uuid[]) and (cancel_requested_at is not null or response_option is not null)`;
  return rows.map((row) => ({
    runId: row.id,
    cancelRequested: row.cancel,
    requestId: row.request_id,
    option: row.response_option,
  }));
}

/** running -> awaiting_input with the request's id, or back with null; false when the run is no longer the caller's. */
export async function setAwaiting(
  db: Database,
  conversationId: string,
  epoch: bigint,
  runId: string,
  requestId: string | null,
): Promise<boolean> {
  const rows = await db.sql`
    update runs r set status = ${requestId === null ? 'running' : 'awaiting_input'}, request_id = ${requestId},
      response_option = null
    from lanes l where r.id = ${runId} and l.conversation_id = ${conversationId} and l.epoch = ${String(epoch)}::bigint
      and l.state = 'running' and l.run_id = r.id and r.status in ('running', 'awaiting_input')
    returning r.id`;
  return rows.length > 0;
}

/** Stores the answer to a permission request; false when the run does not wait for that one. */
export async function respondRun(
  db: Database,
  runId: string,
  requestId: string,
  optionId: string,
): Promise<boolean> {
  const rows = await db.sql`
    update runs set response_option = ${optionId}
    where id = ${runId} and status = 'awaiting_input' and request_id = ${requestId} and response_option is null
    returning id`;
  return rows.length > 0;
}
