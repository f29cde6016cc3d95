import type { PermissionOption } from '../domain/events.ts';
import type { Database } from './database.ts';
import { eventOf, type EventRow } from './events.ts';

export interface AskedPermission {
  runId: string;
  requestId: string;
  toolCallId: string;
  options: PermissionOption[];
}

/** Before the run is told to wait, so that whoever reads that it waits finds the request. */
export async function insertPermission(db: Database, asked: AskedPermission): Promise<void> {
  await db.sql`
    insert into permissions (run_id, request_id, tool_call_id, options)
    values (${asked.runId}, ${asked.requestId}, ${asked.toolCallId}, ${JSON.stringify(asked.options)}::text::jsonb)`;
}

export async function findPermission(
  db: Database,
  runId: string,
  requestId: string,
): Promise<{ options: PermissionOption[]; isResolved: boolean } | null> {
  const rows = await db.sql<{ options: PermissionOption[]; isResolved: boolean }[]>`
    select options, resolved_at is not null as "isResolved" from permissions
    where run_id = ${runId} and request_id = ${requestId}`;
  return rows[0] ?? null;
}

/** What callers chose, for the owners of the runs. */
export async function answeredPermissions(
  db: Database,
  runIds: string[],
): Promise<{ runId: string; requestId: string; optionId: string }[]> {
  return db.sql<{ runId: string; requestId: string; optionId: string }[]>`
    select run_id as "runId", request_id as "requestId", option_id as "optionId" from permissions
    where run_id = any (${runIds}::uuid[]) and option_id is not null`;
}

export interface OpenPermission {
  requestId: string;
  toolCallId: string;
  isAnswered: boolean;
}

/** Those of a run that nobody has cancelled. */
export async function openPermissions(db: Database, runId: string): Promise<OpenPermission[]> {
  return db.sql<OpenPermission[]>`
    select request_id as "requestId", tool_call_id as "toolCallId", option_id is not null as "isAnswered"
    from permissions where run_id = ${runId} and (resolved_at is null or option_id is not null)`;
}

export async function cancelPermission(db: Database, runId: string, requestId: string): Promise<void> {
  await db.sql`
    update permissions set resolved_at = now()
    where run_id = ${runId} and request_id = ${requestId} and resolved_at is null`;
}

/** Stores a caller's answer with its events; null when the request is not open any more. */
export async function respondPermission(db: Database, runId: string, requestId: string, optionId: string) {
  const at = new Date();
  const [row] = await db.sql<
    { outcome: string; conversation_id: string; events: Omit<EventRow, 'conversation_id' | 'at'>[] | null }[]
  >`select * from respond_permission(${runId}, ${requestId}, ${optionId}, ${at})`;
  if (row?.outcome !== 'resolved') return null;
  return (row.events ?? []).map((event) => eventOf({ ...event, conversation_id: row.conversation_id, at }));
}
