import type { RunErrorCode } from '../domain/errors.ts';
import type { Message, Run, RunStatus } from '../domain/nouns.ts';
import type { MessageExtras } from '../domain/parts.ts';
import type { Database, Sql } from './database.ts';

interface Row {
  id: string;
  org_id: string;
  agent_id: string;
  conversation_id: string;
  deployment_id: string | null;
  status: RunStatus;
  attempt: number;
  error_code: RunErrorCode | null;
  error_text: string | null;
  input_tokens: bigint;
  output_tokens: bigint;
  cost_micros: bigint;
  created_at: Date;
  started_at: Date | null;
  ended_at: Date | null;
}

const columns = (sql: Sql) => sql`
  id, org_id, agent_id, conversation_id, deployment_id, status, attempt, error_code, error_text, input_tokens,
  output_tokens, cost_micros, created_at, started_at, ended_at`;

function runOf(row: Row): Run {
  return {
    id: row.id,
    agentId: row.agent_id,
    orgId: row.org_id,
    conversationId: row.conversation_id,
    deploymentId: row.deployment_id,
    status: row.status,
    attempt: row.attempt,
    error: row.error_code === null ? null : { error: row.error_text ?? '', code: row.error_code },
    usage: {
      inputTokens: Number(row.input_tokens),
      outputTokens: Number(row.output_tokens),
      costMicros: row.cost_micros,
    },
    createdAt: row.created_at,
    startedAt: row.started_at,
    endedAt: row.ended_at,
  };
}

/** Null also when its conversation or agent was deleted. */
export async function findRun(db: Database, id: string): Promise<Run | null> {
  const { sql } = db;
  const rows = await sql<Row[]>`
    select ${columns(sql)} from runs r where id = ${id}
      and exists (select 1 from conversations c where c.id = r.conversation_id and c.deleted_at is null)
      and exists (select 1 from agents a where a.id = r.agent_id and a.deleted_at is null)`;
  return rows[0] ? runOf(rows[0]) : null;
}

/** Newest first. */
export async function listRuns(
  db: Database,
  agentId: string,
  before: string | null,
  limit: number,
): Promise<Run[]> {
  const { sql } = db;
  const bound = before === null ? sql`` : sql`and r.id < ${before}`;
  const rows = await sql<Row[]>`
    select ${columns(sql)} from runs r where agent_id = ${agentId} ${bound}
      and exists (select 1 from conversations c where c.id = r.conversation_id and c.deleted_at is null)
    order by id desc limit ${limit}`;
  return rows.map(runOf);
}

/** Runs of a conversation or an agent that have not ended. */
export async function activeRuns(
  db: Database,
  filter: { conversationId: string } | { agentId: string },
): Promise<{ id: string; conversationId: string; status: RunStatus }[]> {
  const { sql } = db;
  const rows = await sql<{ id: string; conversation_id: string; status: RunStatus }[]>`
    select id, conversation_id, status from runs
    where ${'agentId' in filter ? sql`agent_id = ${filter.agentId}` : sql`conversation_id = ${filter.conversationId}`}
      and status in ('queued', 'running', 'awaiting_input') order by accept_seq desc`;
  return rows.map((row) => ({ id: row.id, conversationId: row.conversation_id, status: row.status }));
}

/** Queued or running work that nobody will look at: of conversations and agents that were deleted. */
export async function orphanedRuns(
  db: Database,
  limit: number,
): Promise<{ id: string; conversationId: string }[]> {
  const rows = await db.sql<{ id: string; conversation_id: string }[]>`
    select r.id, r.conversation_id from runs r
      join conversations c on c.id = r.conversation_id join agents a on a.id = r.agent_id
    where r.status in ('queued', 'running', 'awaiting_input') and (c.deleted_at is not null or a.deleted_at is not null)
    limit ${limit}`;
  return rows.map((row) => ({ id: row.id, conversationId: row.conversation_id }));
}

export async function assistantMessage(db: Database, runId: string): Promise<Message | null> {
  const [row] = await db.sql<
    {
      id: string;
      agent_id: string;
      conversation_id: string;
      content: string;
      artifact_ids: string[] | null;
      created_at: Date;
    }[]
  >`select m.id, m.agent_id, m.conversation_id, m.content, m.artifact_ids, m.created_at
    from runs r join messages m on m.conversation_id = r.conversation_id and m.run_id = r.id and m.role = 'assistant'
    where r.id = ${runId}`;
  if (!row) return null;
  return {
    id: row.id,
    agentId: row.agent_id,
    conversationId: row.conversation_id,
    runId,
    role: 'assistant',
    content: row.content,
    extras: null,
    artifactIds: row.artifact_ids ?? [],
    createdAt: row.created_at,
  };
}

/** What came with the user's message of a run beside its text. */
export async function messageExtras(db: Database, runId: string): Promise<MessageExtras | null> {
  const [row] = await db.sql<{ extras: MessageExtras | null }[]>`
    select m.extras from runs r join messages m on m.id = r.user_message_id where r.id = ${runId}`;
  return row?.extras ?? null;
}

/** The deployment that a run executes, when it had none at its start; it keeps it for all its attempts. */
export async function bindDeployment(db: Database, runId: string, deploymentId: string): Promise<void> {
  await db.sql`update runs set deployment_id = ${deploymentId} where id = ${runId} and deployment_id is null`;
}

/** Those of the runs that are under way and that somebody wants to stop. */
export async function cancelRequests(db: Database, runIds: string[]): Promise<string[]> {
  const rows = await db.sql<{ id: string }[]>`
    select id from runs where id = any (${runIds}::uuid[]) and cancel_requested_at is not null
      and status in ('running', 'awaiting_input')`;
  return rows.map((row) => row.id);
}

/** The run that was accepted last in a conversation. */
export async function newestRunOf(db: Database, conversationId: string): Promise<string | null> {
  const [row] = await db.sql<{ id: string }[]>`
    select id from runs where conversation_id = ${conversationId} order by accept_seq desc limit 1`;
  return row?.id ?? null;
}

/** The run of the same conversation that was accepted directly before this one. */
export async function runBefore(db: Database, runId: string): Promise<string | null> {
  const [row] = await db.sql<{ id: string }[]>`
    select before.id from runs r
      join runs before on before.conversation_id = r.conversation_id and before.accept_seq < r.accept_seq
    where r.id = ${runId} order by before.accept_seq desc limit 1`;
  return row?.id ?? null;
}
