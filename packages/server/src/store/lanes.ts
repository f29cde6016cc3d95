import type { RunErrorCode } from '../domain/errors.ts';
import type { EventBody } from '../domain/events.ts';
import type { Manifest } from '../domain/manifest.ts';
import type { RunStatus } from '../domain/nouns.ts';
import type { Question } from '../domain/questions.ts';
import type { Database } from './database.ts';
import { eventOf, type EventRow } from './events.ts';

/** What the owner of a lane does to it (`migrations/0002_run_life.sql`). */

/** A run that this node has begun to execute, with all that its execution needs. */
export interface Claim {
  conversationId: string;
  /** Fences every write: it changes when the lane gets another owner. */
  epoch: string;
  runId: string;
  orgId: string;
  agentId: string;
  keyId: string | null;
  attempt: number;
  deploymentId: string | null;
  commit: string | null;
  manifest: Manifest | null;
  /** The id under which this attempt streams. */
  messageId: string;
  /** The user's message, the surface by which it came, and whether it carries more than a text (`messageExtras`). */
  content: string;
  source: string;
  hasExtras: boolean;
  /** Of `run.started`, which is written. */
  seq: number;
  at: Date;
  deadlineAt: Date;
  startedAt: Date;
  createdAt: Date;
  /** What earlier attempts used. */
  inputTokens: number;
  outputTokens: number;
  costMicros: bigint;
  slot: number;
  model: string;
  /** Of the agent: a sandbox that was started under another one is replaced. */
  generation: number;
  /** On record as one that waits for its sandbox (`setWaits`). */
  waits: boolean;
}

export interface ClaimRequest {
  nodeId: string;
  /** Null = any. */
  conversationIds: string[] | null;
  /** New ids; as many lanes are claimed at most. */
  messageIds: string[];
  runTimeoutMs: number;
  /** The sandboxes in which a turn begins at once, each as `<agent> <deployment> <generation>`. */
  ready: string[];
}

type ClaimRow = Omit<Claim, 'seq' | 'at' | 'inputTokens' | 'outputTokens'> &
  Record<'seq' | 'inputTokens' | 'outputTokens', bigint>;

export interface WaitingLane {
  conversationId: string;
  orgId: string;
  agentId: string;
}

/** The oldest ready lanes of each agent that the node may run and that is not full, the oldest first (`migrations/0017_places_in_turns.sql`). */
export async function waitingLanes(
  db: Database,
  nodeId: string,
  max: number,
  full: { agentIds: string[]; orgIds: string[] },
): Promise<WaitingLane[]> {
  return db.sql<WaitingLane[]>`
    select conversation_id as "conversationId", org_id as "orgId", agent_id as "agentId"
    from waiting_lanes(${nodeId}, ${max}, ${full.agentIds}::uuid[], ${full.orgIds}::uuid[])`;
}

export async function claimLanes(db: Database, request: ClaimRequest): Promise<Claim[]> {
  const at = new Date();
  const rows = await db.sql<ClaimRow[]>`
    select conversation_id as "conversationId", epoch::text, run_id as "runId", org_id as "orgId", agent_id as "agentId",
      key_id as "keyId", attempt, deployment_id as "deploymentId", message_id as "messageId", content, seq,
      deadline_at as "deadlineAt", started_at as "startedAt", created_at as "createdAt", input_tokens as "inputTokens",
      output_tokens as "outputTokens", cost_micros as "costMicros", slot, model, generation, commit, manifest,
      source, has_extras as "hasExtras", waits
    from claim_lanes(${request.nodeId}, ${request.conversationIds}::uuid[], ${request.messageIds.length},
      ${request.messageIds}::uuid[], ${at}, ${request.runTimeoutMs}::bigint, ${request.ready}::text[])`;
  return rows.map((row) => ({
    ...row,
    seq: Number(row.seq),
    inputTokens: Number(row.inputTokens),
    outputTokens: Number(row.outputTokens),
    at,
  }));
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
  at: string;
  /** What was set aside for it, which ends with this row; on one row of a call. */
  reservation_id: string | null;
}

/** One lane's share of a write by its owner. */
export interface LaneWrite {
  conversationId: string;
  epoch: string;
  /** Counts from 1 in an epoch; a number that was written is not written again. */
  writeNo: number;
  runId: string;
  /** Up to which position of the harness's output the run is on record with this write; null = as before. */
  told: number | null;
  events: EventBody[];
  /** What its harness asks, with the events that tell of it: whoever reads that the run waits finds the question. */
  asked: Question[];
  /** Null: as it is. A terminal one settles the run and frees the lane. */
  status: Exclude<RunStatus, 'queued'> | null;
  error: { code: RunErrorCode; error: string } | null;
  /** The assistant's message, exactly when the status is `completed`. */
  message: { id: string; content: string; artifactIds: string[]; createdAt: Date } | null;
}

export interface LaneWritten {
  firstSeq: number;
  /** The lane was freed, and more is queued in it. */
  isReady: boolean;
}

/** By conversation; one that is missing belongs to another owner, or has had this write. */
export async function writeRuns(
  db: Database,
  lanes: LaneWrite[],
  ledger: LedgerRow[],
  at: Date,
): Promise<Map<string, LaneWritten>> {
  const [only, ...others] = lanes;
  if (only && others.length === 0 && only.asked.length === 0) return writeRun(db, only, ledger, at);
  const eventLanes: string[] = [];
  const offsets: number[] = [];
  const types: string[] = [];
  const data: string[] = [];
  for (const lane of lanes) {
    lane.events.forEach((event, offset) => {
      eventLanes.push(lane.conversationId);
      offsets.push(offset);
      types.push(event.type);
      data.push(JSON.stringify(event.data));
    });
  }
  const rows = await withQuestions<{ conversation_id: string; first_seq: bigint; is_ready: boolean }>(
    db,
    lanes,
    db.sql`select * from write_runs(${at}, ${lanes.map((lane) => lane.conversationId)}::uuid[],
      ${lanes.map((lane) => lane.epoch)}::bigint[], ${lanes.map((lane) => lane.writeNo)}::integer[],
      ${lanes.map((lane) => lane.events.length)}::integer[], ${lanes.map((lane) => lane.runId)}::uuid[],
      ${lanes.map((lane) => lane.status)}::text[], ${lanes.map((lane) => lane.error?.code ?? null)}::text[],
      ${lanes.map((lane) => lane.error?.error ?? null)}::text[], ${lanes.map((lane) => lane.message?.id ?? null)}::uuid[],
      ${lanes.map((lane) => lane.message?.content ?? null)}::text[],
      ${lanes.map((lane) => lane.message?.createdAt.toISOString() ?? null)}::text[]::timestamptz[], ${eventLanes}::uuid[], ${offsets}::integer[],
      ${types}::text[], ${data}::text[], ${ledger.length === 0 ? null : JSON.stringify(ledger)},
      ${lanes.map((lane) => lane.told)}::bigint[], ${lanes.map(artifactIdsOf)}::text[])`,
  );
  return new Map(
    rows.map((row) => [row.conversation_id, { firstSeq: Number(row.first_seq), isReady: row.is_ready }]),
  );
}

/** The short way, for one lane that asks nothing. */
async function writeRun(
  db: Database,
  lane: LaneWrite,
  ledger: LedgerRow[],
  at: Date,
): Promise<Map<string, LaneWritten>> {
  const { conversationId, epoch, writeNo, runId, status, error, message, events } = lane;
  const [row] = await db.sql<[{ first_seq: bigint | null; is_ready: boolean }]>`
    select * from write_run(${at}, ${conversationId}, ${epoch}::bigint, ${writeNo}, ${runId}, ${status},
      ${error?.code ?? null}, ${error?.error ?? null}, ${message?.id ?? null}, ${message?.content ?? null},
      ${message?.createdAt ?? null}, ${events.map((event) => event.type)}::text[],
      ${events.map((event) => JSON.stringify(event.data))}::text[],
      ${ledger.length === 0 ? null : JSON.stringify(ledger)}, ${lane.told}::bigint, ${artifactIdsOf(lane)})`;
  if (row.first_seq === null) return new Map();
  return new Map([[conversationId, { firstSeq: Number(row.first_seq), isReady: row.is_ready }]]);
}

/** A write of lanes with the questions of those that are written, as one statement: one commit has both or none. */
async function withQuestions<Row extends object>(
  db: Database,
  lanes: LaneWrite[],
  write: ReturnType<Database['sql']>,
): Promise<Row[]> {
  const asked = lanes.flatMap(({ conversationId, runId, asked }) =>
    asked.map((question) => ({ conversationId, runId, question })),
  );
  if (asked.length === 0) return (await write) as unknown as Row[];
  return db.sql<Row[]>`
    with written as (${write}), asked as (
      insert into questions (run_id, request_id, kind, question)
        select q.run_id, q.request_id, q.kind, q.question::json
          from unnest(${asked.map((one) => one.conversationId)}::uuid[], ${asked.map((one) => one.runId)}::uuid[],
            ${asked.map((one) => one.question.requestId)}::text[], ${asked.map((one) => one.question.kind)}::text[],
            ${asked.map((one) => JSON.stringify(one.question))}::text[])
            as q (conversation_id, run_id, request_id, kind, question)
          join written w on w.conversation_id = q.conversation_id
    )
    select * from written`;
}

function artifactIdsOf({ message }: LaneWrite): string | null {
  return message && message.artifactIds.length > 0 ? JSON.stringify(message.artifactIds) : null;
}

/** Whether a write whose answer was lost is in the database. */
export async function wasWritten(db: Database, lane: LaneWrite): Promise<boolean> {
  const rows = await db.sql`
    select 1 from lanes
    where conversation_id = ${lane.conversationId} and epoch = ${lane.epoch}::bigint and write_no = ${lane.writeNo}`;
  return rows.length > 0;
}

export async function recordUsage(db: Database, ledger: LedgerRow[]): Promise<void> {
  await db.sql`select record_usage(${JSON.stringify(ledger)})`;
}

export interface EndedAttempt {
  conversationId: string;
  /** Null: whatever it is. */
  epoch: string | null;
  /** Told in `run.retrying`. */
  reason: string;
  /** After so many attempts the run fails; null = it may always be tried again. */
  maxAttempts: number | null;
  error: { code: RunErrorCode; error: string };
  delayMs: number;
  /** Also when the attempt still waited for its sandbox, which else does not count. */
  countsAlways: boolean;
}

/** The run waits for its next attempt, or has ended: which of them, the last event says. None: the lane was another owner's. */
export async function endAttempt(db: Database, attempt: EndedAttempt) {
  const rows = await db.sql<EventRow[]>`
    select * from end_attempt(${attempt.conversationId}, ${attempt.epoch}::bigint, ${attempt.reason},
      ${attempt.maxAttempts}, ${attempt.error.code}, ${attempt.error.error}, ${attempt.delayMs}, ${attempt.countsAlways}, ${new Date()})`;
  return rows.map(eventOf);
}

/** Says whether an attempt waits for its sandbox, and so has not sent its prompt. False: the lane is another owner's. */
export async function setWaits(
  db: Database,
  { conversationId, epoch }: Pick<Claim, 'conversationId' | 'epoch'>,
  waits: boolean,
): Promise<boolean> {
  const rows = await db.sql`
    update lanes set waits = ${waits}
      where conversation_id = ${conversationId} and epoch = ${epoch}::bigint and state = 'running' returning 1`;
  return rows.length > 0;
}

export interface ReapRequest {
  /** The node that asks. */
  nodeId: string;
  /** It has just been started, so that what its earlier process held is free. */
  isStart: boolean;
  /** Conversations whose turns it has taken up again. */
  keptConversationIds: string[];
  leaseMs: number;
  maxAttempts: number;
  /** Why a run fails that was lost too often. */
  errorText: string;
}

/** Ends the attempts of nodes that are gone. */
export async function reapLanes(db: Database, request: ReapRequest) {
  const rows = await db.sql<EventRow[]>`
    select * from reap_lanes(
      ${request.nodeId}, ${request.isStart}, ${request.keptConversationIds}::uuid[], ${request.leaseMs}, ${request.maxAttempts}, ${request.errorText}, ${new Date()})`;
  return rows.map(eventOf);
}

/** A run that goes on in another process of its node, and up to where it is on record. */
export interface Adopted extends Claim {
  told: number;
}

/**
 * Gives a running lane to the present process of its node, as it is: the same attempt, under an epoch of its own, so that
 * what the earlier process may still write is refused. Null: it is not as given any more.
 */
export async function adoptLane(
  db: Database,
  nodeId: string,
  lane: Pick<OwnedLane, 'conversationId' | 'epoch'>,
): Promise<Adopted | null> {
  const [row] = await db.sql<(ClaimRow & { told: bigint })[]>`
    with l as (
      update lanes set epoch = epoch + 1, write_no = 0
        where conversation_id = ${lane.conversationId} and epoch = ${lane.epoch}::bigint and node_id = ${nodeId}
          and state = 'running'
        returning conversation_id, epoch, run_id, told, waits
    )
    select l.conversation_id as "conversationId", l.epoch::text, l.run_id as "runId", r.org_id as "orgId",
      r.agent_id as "agentId", r.key_id as "keyId", r.attempt, r.deployment_id as "deploymentId",
      r.message_id as "messageId", m.content, r.deadline_at as "deadlineAt", r.started_at as "startedAt",
      r.created_at as "createdAt", r.input_tokens as "inputTokens", r.output_tokens as "outputTokens",
      r.cost_micros as "costMicros", a.slot, a.model, a.generation, d.commit, d.manifest, l.told, l.waits,
      m.source, m.extras is not null as "hasExtras",
      (select max(e.seq) from events e where e.run_id = l.run_id and e.type = 'run.started') as seq
    from l join runs r on r.id = l.run_id join agents a on a.id = r.agent_id join messages m on m.id = r.user_message_id
      left join deployments d on d.id = r.deployment_id`;
  if (!row) return null;
  const { seq, inputTokens, outputTokens, told } = row;
  return {
    ...row,
    seq: Number(seq),
    inputTokens: Number(inputTokens),
    outputTokens: Number(outputTokens),
    told: Number(told),
    at: new Date(),
  };
}

export interface OwnedLane {
  conversationId: string;
  agentId: string;
  epoch: string;
  runId: string;
  attempt: number;
  cancelRequested: boolean;
}

/** What the database says that a node executes. */
export async function ownedLanes(db: Database, nodeId: string): Promise<OwnedLane[]> {
  return db.sql<OwnedLane[]>`
    select l.conversation_id as "conversationId", l.agent_id as "agentId", l.epoch::text, l.run_id as "runId", r.attempt,
      r.cancel_requested_at is not null as "cancelRequested"
    from lanes l join runs r on r.id = l.run_id where l.node_id = ${nodeId} and l.state = 'running'`;
}
