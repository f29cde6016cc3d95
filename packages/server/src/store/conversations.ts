import { parsedTexts, type Reader } from '../domain/large-json.ts';
import type { Conversation, Message, Role } from '../domain/nouns.ts';
import type { MessageExtras } from '../domain/parts.ts';
import type { Database, Sql } from './database.ts';

interface Row {
  id: string;
  org_id: string;
  agent_id: string;
  title: string;
  source: string;
  created_at: Date;
  last_message_at: Date;
}

const columns = (sql: Sql) =>
  sql`c.id, c.org_id, c.agent_id, c.title, c.source, c.created_at, l.last_message_at`;

function conversationOf(row: Row): Conversation {
  return {
    id: row.id,
    agentId: row.agent_id,
    orgId: row.org_id,
    title: row.title,
    source: row.source,
    createdAt: row.created_at,
    lastMessageAt: row.last_message_at,
  };
}

/** Null also when it or its agent was deleted. */
export async function findConversation(db: Database, id: string): Promise<Conversation | null> {
  const { sql } = db;
  const rows = await sql<Row[]>`
    select ${columns(sql)} from conversations c
      join lanes l on l.conversation_id = c.id join agents a on a.id = c.agent_id
    where c.id = ${id} and c.deleted_at is null and a.deleted_at is null`;
  return rows[0] ? conversationOf(rows[0]) : null;
}

/** Newest first. */
export async function listConversations(
  db: Database,
  agentId: string,
  before: string | null,
  limit: number,
): Promise<Conversation[]> {
  const { sql } = db;
  const bound = before === null ? sql`` : sql`and c.id < ${before}`;
  const rows = await sql<Row[]>`
    select ${columns(sql)} from conversations c join lanes l on l.conversation_id = c.id
    where c.agent_id = ${agentId} and c.deleted_at is null ${bound} order by c.id desc limit ${limit}`;
  return rows.map(conversationOf);
}

interface MessageRow {
  id: string;
  agent_id: string;
  conversation_id: string;
  run_id: string;
  role: Role;
  content: string;
  extras: MessageExtras | null;
  artifact_ids: string[] | null;
  created_at: Date;
}

/** Newest first, and no more of them than take `maxBytes` together (one is always there). */
export async function listMessages(
  db: Database,
  reader: Reader,
  conversationId: string,
  before: string | null,
  limit: number,
  maxBytes: number,
): Promise<{ rows: Message[]; isCut: boolean }> {
  const { sql } = db;
  const bound = before === null ? sql`` : sql`and id < ${before}`;
  const size = sql`octet_length(content) + coalesce(octet_length(extras::text), 0)`;
  const rows = await sql<(Omit<MessageRow, 'extras'> & { extras: string | null; is_cut: boolean })[]>`
    with page as (
      select *, sum(${size}) over (order by id desc) - (${size}) as bytes_before
      from messages where conversation_id = ${conversationId} ${bound} order by id desc limit ${limit})
    select id, agent_id, conversation_id, run_id, role, content, extras::text as extras, artifact_ids, created_at,
      (select max(bytes_before) >= ${maxBytes} from page) as is_cut
    from page where bytes_before < ${maxBytes} order by id desc`;
  const extras = (await parsedTexts(
    reader,
    rows.map((row) => row.extras),
  )) as (MessageExtras | null)[];
  const messages = rows.map((row, index) => messageOf({ ...row, extras: extras[index]! }));
  return { rows: messages, isCut: rows[0]?.is_cut ?? false };
}

function messageOf(row: MessageRow): Message {
  return {
    id: row.id,
    agentId: row.agent_id,
    conversationId: row.conversation_id,
    runId: row.run_id,
    role: row.role,
    content: row.content,
    extras: row.extras,
    artifactIds: row.artifact_ids ?? [],
    createdAt: row.created_at,
  };
}

/** The turns that ended before a run began, oldest first, with what was said: at most the last `limit` messages. */
export async function messagesBeforeRun(
  db: Database,
  conversationId: string,
  runId: string,
  limit: number,
): Promise<{ runId: string; role: Role; content: string }[]> {
  const rows = await db.sql<{ run_id: string; role: Role; content: string }[]>`
    select m.run_id, m.role, concat_ws(e'\n\n', nullif(m.content, ''), m.extras_text) as content from messages m join runs r on r.id = m.run_id
    where m.conversation_id = ${conversationId}
      and r.accept_seq < (select accept_seq from runs where id = ${runId})
    order by r.accept_seq desc, m.role asc limit ${limit}`;
  return rows.map((row) => ({ runId: row.run_id, role: row.role, content: row.content })).toReversed();
}
