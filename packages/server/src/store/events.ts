import type { ConversationEvent, EventBody } from '../domain/events.ts';
import { parsedTexts, type Reader } from '../domain/large-json.ts';
import type { Database, Sql } from './database.ts';

export interface EventRow {
  conversation_id: string;
  seq: bigint | number;
  run_id: string;
  type: string;
  data: unknown;
  at: Date;
}

export function eventOf(row: EventRow): ConversationEvent {
  return {
    ...({ type: row.type, data: row.data } as EventBody),
    conversationId: row.conversation_id,
    runId: row.run_id,
    seq: Number(row.seq),
    at: row.at,
  };
}

/** A row whose data was read as the text that it is stored as. */
export type EventText = Omit<EventRow, 'data'> & { data: string };

/** What is large waits its turn among what others read: the driver would parse all that arrives in one turn of the event loop. */
export async function eventsOf(reader: Reader, rows: readonly EventText[]): Promise<ConversationEvent[]> {
  const parsed = parsedTexts(
    reader,
    rows.map(({ data }) => data),
  );
  const all = parsed instanceof Promise ? await parsed : parsed;
  return rows.map((row, index) => eventOf({ ...row, data: all[index] }));
}

export type EventFilter = { conversationId: string } | { runId: string };

const columns = (sql: Sql) => sql`conversation_id, seq, run_id, type, data, at`;
const textColumns = (sql: Sql) => sql`conversation_id, seq, run_id, type, data::text as data, at`;

function where(sql: Sql, filter: EventFilter) {
  return 'runId' in filter ? sql`run_id = ${filter.runId}` : sql`conversation_id = ${filter.conversationId}`;
}

/** Oldest first, those after `after`. */
export async function eventsAfter(
  db: Database,
  filter: EventFilter,
  after: number,
  limit: number,
): Promise<ConversationEvent[]> {
  const { sql } = db;
  const rows = await sql<EventRow[]>`
    select ${columns(sql)} from events where ${where(sql, filter)} and seq > ${after}::bigint order by seq limit ${limit}`;
  return rows.map(eventOf);
}

/**
 * The same, cut where they would take more than `maxBytes` together (one is always there), so that many readers of large
 * events do not fill the memory. `isAll`: there were no more.
 */
export async function eventsWithin(
  db: Database,
  reader: Reader,
  filter: EventFilter,
  after: number,
  limit: number,
  maxBytes: number,
): Promise<{ events: ConversationEvent[]; isAll: boolean }> {
  const { sql } = db;
  const rows = await sql<(EventText & { is_more: boolean })[]>`
    with page as (
      select ${columns(sql)}, sum(octet_length(data::text)) over (order by seq) - octet_length(data::text) as bytes_before
      from events where ${where(sql, filter)} and seq > ${after}::bigint order by seq limit ${limit})
    select ${textColumns(sql)}, (select count(*) = ${limit} or max(bytes_before) >= ${maxBytes} from page) as is_more
    from page where bytes_before < ${maxBytes} order by seq`;
  return { events: await eventsOf(reader, rows), isAll: !rows[0]?.is_more };
}

/** Newest first, those before `before` (null = from the newest), cut in the same way. */
export async function eventsBefore(
  db: Database,
  reader: Reader,
  filter: EventFilter,
  before: number | null,
  limit: number,
  maxBytes: number,
): Promise<{ rows: ConversationEvent[]; isCut: boolean }> {
  const { sql } = db;
  const bound = before === null ? sql`` : sql`and seq < ${before}::bigint`;
  const rows = await sql<(EventText & { is_cut: boolean })[]>`
    with page as (
      select ${columns(sql)}, sum(octet_length(data::text)) over (order by seq desc) - octet_length(data::text) as bytes_before
      from events where ${where(sql, filter)} ${bound} order by seq desc limit ${limit})
    select ${textColumns(sql)}, (select max(bytes_before) >= ${maxBytes} from page) as is_cut
    from page where bytes_before < ${maxBytes} order by seq desc`;
  return { rows: await eventsOf(reader, rows), isCut: rows[0]?.is_cut ?? false };
}

/** What a run's present attempt, or its last one, has told of artifacts, oldest first. */
export async function artifactEvents(db: Database, runId: string): Promise<ConversationEvent[]> {
  const { sql } = db;
  const rows = await sql<EventRow[]>`
    select ${columns(sql)} from events where run_id = ${runId} and type = 'artifact.updated'
      and seq > coalesce((select max(seq) from events where run_id = ${runId} and type in ('run.started', 'run.retrying')), 0)
    order by seq`;
  return rows.map(eventOf);
}

/** What the harness did in a conversation's runs, for its history: tool calls, oldest first. */
export async function toolEvents(db: Database, runIds: string[]): Promise<ConversationEvent[]> {
  const { sql } = db;
  const rows = await sql<EventRow[]>`
    select ${columns(sql)} from events
    where run_id = any (${runIds}::uuid[]) and type in ('tool.started', 'tool.updated', 'tool.finished') order by seq`;
  return rows.map(eventOf);
}

/** Everything of one run, oldest first. */
export async function eventsOfRun(db: Database, runId: string): Promise<ConversationEvent[]> {
  const { sql } = db;
  const rows = await sql<EventRow[]>`select ${columns(sql)} from events where run_id = ${runId} order by seq`;
  return rows.map(eventOf);
}

/**
 * Removes deltas of runs that ended more than `hours` ago, at most `limit` runs a call; their text stays in the
 * message. Resolves with the number of events removed.
 */
export async function compactDeltas(db: Database, hours: number, limit: number): Promise<number> {
  const rows = await db.sql`
    delete from events where type in ('message.delta', 'thought.delta') and run_id in (
      select r.id from runs r
      where r.ended_at < now() - ${hours} * interval '1 hour'
        and exists (select 1 from events e where e.run_id = r.id and e.type in ('message.delta', 'thought.delta'))
      limit ${limit})
    returning seq`;
  return rows.length;
}

/** The seq of a run's first event. */
export async function startOfRun(db: Database, runId: string): Promise<number> {
  const [row] = await db.sql<{ accept_seq: bigint }[]>`select accept_seq from runs where id = ${runId}`;
  return Number(row?.accept_seq ?? 1n);
}

/** The seq of the event that ended a run; 0 when it has not ended. */
export async function endOfRun(db: Database, runId: string): Promise<number> {
  const [row] = await db.sql<{ seq: bigint | null }[]>`
    select max(seq) as seq from events
    where run_id = ${runId} and type in ('run.completed', 'run.failed', 'run.cancelled')`;
  return Number(row?.seq ?? 0n);
}

/** What runs that have no message had streamed under their last message id. */
export async function unansweredText(db: Database, runIds: string[]): Promise<Map<string, string>> {
  if (runIds.length === 0) return new Map();
  const rows = await db.sql<{ run_id: string; text: string }[]>`
    select e.run_id, string_agg(e.data->>'text', '' order by e.seq) as text
    from events e join runs r on r.id = e.run_id
    where e.run_id = any (${runIds}::uuid[]) and e.type = 'message.delta' and e.data->>'messageId' = r.message_id::text
    group by e.run_id`;
  return new Map(rows.map((row) => [row.run_id, row.text]));
}
