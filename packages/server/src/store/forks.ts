import type { ConversationEvent, EventBody, EventType } from '../domain/events.ts';
import type { Database, Sql } from './database.ts';
import { eventOf, type EventRow } from './events.ts';

/** How far a log is copied. A log only grows, so that what is before these stays as it is. */
export interface ForkCut {
  conversationId: string;
  /** Events before this one. */
  nextSeq: number;
  /** Of runs that were accepted before this one or are it. */
  acceptSeq: number;
}

/**
 * `busy`: a run is queued or under way; with `whileBusy` one up to that of the message, as later ones change nothing of
 * what is copied then. `no_message`: there is no such message in the conversation.
 */
export async function forkCut(
  db: Database,
  conversationId: string,
  messageId: string | null,
  whileBusy: boolean,
): Promise<ForkCut | 'busy' | 'no_message'> {
  const [row] = await db.sql<{ is_idle: boolean; next_seq: bigint; accept_seq: bigint | null }[]>`
    select l.next_seq, c.accept_seq, l.state = 'idle' or (${whileBusy} and not exists (
        select 1 from runs r where r.conversation_id = l.conversation_id and r.accept_seq <= c.accept_seq
          and r.status in ('queued', 'running', 'awaiting_input'))) as is_idle
    from lanes l, lateral (select case when ${messageId}::uuid is null then l.next_seq else (
        select r.accept_seq from messages m join runs r on r.id = m.run_id
        where m.id = ${messageId}::uuid and m.conversation_id = l.conversation_id) end as accept_seq) c
    where l.conversation_id = ${conversationId}`;
  if (!row || row.accept_seq === null) return 'no_message';
  if (!row.is_idle) return 'busy';
  return { conversationId, nextSeq: Number(row.next_seq), acceptSeq: Number(row.accept_seq) };
}

/** Events whose sizes are summed up at a time. */
const SIZES = 500;

export interface ForkedRun {
  id: string;
  userMessageId: string;
  /** Of its last attempt. */
  messageId: string | null;
}

/** In the order in which they were accepted. */
export async function runsToFork(db: Database, cut: ForkCut): Promise<ForkedRun[]> {
  return db.sql<ForkedRun[]>`
    select id, user_message_id as "userMessageId", message_id as "messageId" from runs
    where conversation_id = ${cut.conversationId} and accept_seq <= ${cut.acceptSeq}::bigint
      and accept_seq < ${cut.nextSeq}::bigint
    order by accept_seq`;
}

/** All messages of the runs, by id: that is the order in which lists show them. */
export async function messageIdsToFork(db: Database, cut: ForkCut, runIds: string[]): Promise<string[]> {
  const rows = await db.sql<{ id: string }[]>`
    select id from messages where conversation_id = ${cut.conversationId} and run_id = any (${runIds}::uuid[])
    order by id`;
  return rows.map(({ id }) => id);
}

function eventsOf(
  sql: Sql,
  { conversationId, nextSeq, acceptSeq }: ForkCut,
  after: number,
  leftOut: EventType[],
) {
  return sql`
    from events e join runs r on r.id = e.run_id
    where e.conversation_id = ${conversationId} and e.seq > ${after}::bigint and e.seq < ${nextSeq}::bigint
      and r.accept_seq <= ${acceptSeq}::bigint and e.type <> all (${leftOut}::text[])
    order by e.seq`;
}

/** Whether there are more events, or more bytes of their data, than may be. Looks no further than it needs to. */
export async function isTooLargeToFork(
  db: Database,
  cut: ForkCut,
  most: { events: number; bytes: number },
  leftOut: EventType[],
): Promise<boolean> {
  const { sql } = db;
  let events = 0;
  let bytes = 0;
  for (let after = 0; ;) {
    const [page] = await sql<[{ events: number; bytes: string; last: bigint | null }]>`
      with page as (
        select e.seq, octet_length(e.data::text) as bytes ${eventsOf(sql, cut, after, leftOut)} limit ${SIZES})
      select count(*)::int as events, coalesce(sum(bytes), 0)::text as bytes, max(seq) as last from page`;
    if (page.last === null) return false;
    events += page.events;
    bytes += Number(page.bytes);
    if (events > most.events || bytes > most.bytes) return true;
    after = Number(page.last);
  }
}

/** Oldest first, a page of hardly more than `maxBytes`. Empty: there are no more. */
export async function eventsToFork(
  db: Database,
  cut: ForkCut,
  page: { after: number; limit: number; maxBytes: number; leftOut: EventType[] },
): Promise<ConversationEvent[]> {
  const { sql } = db;
  const size = sql`octet_length(e.data::text)`;
  const rows = await sql<EventRow[]>`
    with page as (
      select e.*, sum(${size}) over (order by e.seq) - ${size} as bytes_before
      ${eventsOf(sql, cut, page.after, page.leftOut)} limit ${page.limit})
    select conversation_id, seq, run_id, type, data, at from page where bytes_before < ${page.maxBytes} order by seq`;
  return rows.map(eventOf);
}

export interface EventCopy {
  seq: number;
  runId: string;
  at: Date;
  body: EventBody;
}

export async function insertForkedEvents(
  db: Database,
  conversationId: string,
  events: EventCopy[],
): Promise<void> {
  // They happened elsewhere, and were told of then.
  await db.sql`select set_config('berth.outbox', 'off', true)`;
  await db.sql`
    insert into events (conversation_id, seq, run_id, type, data, at)
    select ${conversationId}, e.seq, e.run_id, e.type, e.data::json, e.at
    from unnest(${events.map(({ seq }) => seq)}::bigint[], ${events.map(({ runId }) => runId)}::uuid[],
      ${events.map(({ body }) => body.type)}::text[], ${events.map(({ body }) => JSON.stringify(body.data))}::text[],
      ${events.map(({ at }) => at.toISOString())}::text[]::timestamptz[]) as e (seq, run_id, type, data, at)`;
}

export interface ForkTarget {
  conversationId: string;
  agentId: string;
  /** Who asked for the fork. */
  keyId: string;
  /** The fork is the same agent's, which has the deployments that its runs ran on. */
  keepsDeployments: boolean;
}

export interface RunCopy {
  from: string;
  id: string;
  userMessageId: string;
  messageId: string | null;
  acceptSeq: number;
}

/** Copies of whole rows but for what is named here, so that what a run has more one day is copied too. */
export async function insertForkedRuns(db: Database, target: ForkTarget, runs: RunCopy[]): Promise<void> {
  await db.sql`
    insert into runs select copy.*
    from unnest(${runs.map(({ from }) => from)}::uuid[], ${runs.map(({ id }) => id)}::uuid[],
        ${runs.map(({ userMessageId }) => userMessageId)}::uuid[], ${runs.map(({ messageId }) => messageId)}::uuid[],
        ${runs.map(({ acceptSeq }) => acceptSeq)}::bigint[]) as f (old, id, user_message_id, message_id, accept_seq)
      join runs r on r.id = f.old,
      jsonb_populate_record(r, jsonb_build_object(
        'id', f.id, 'conversation_id', ${target.conversationId}::uuid, 'agent_id', ${target.agentId}::uuid,
        'key_id', ${target.keyId}::uuid, 'user_message_id', f.user_message_id, 'message_id', f.message_id,
        'accept_seq', f.accept_seq, 'deployment_id', case when ${target.keepsDeployments} then r.deployment_id end,
        'input_tokens', 0, 'output_tokens', 0, 'cost_micros', 0)) copy`;
}

export async function insertForkedMessages(
  db: Database,
  target: ForkTarget,
  messages: { from: string; id: string }[],
  runs: Pick<RunCopy, 'from' | 'id'>[],
): Promise<void> {
  await db.sql`
    insert into messages select copy.*
    from unnest(${messages.map(({ from }) => from)}::uuid[], ${messages.map(({ id }) => id)}::uuid[]) as f (old, id)
      join messages m on m.id = f.old
      join unnest(${runs.map(({ from }) => from)}::uuid[], ${runs.map(({ id }) => id)}::uuid[]) as g (old, id)
        on g.old = m.run_id,
      jsonb_populate_record(m, jsonb_build_object(
        'id', f.id, 'run_id', g.id, 'conversation_id', ${target.conversationId}::uuid,
        'agent_id', ${target.agentId}::uuid)) copy`;
}

/**
 * The conversation itself: with it all that was copied can be seen, and nothing before. False: its agent is no more.
 */
export async function insertFork(
  db: Database,
  fork: {
    from: string;
    id: string;
    agentId: string;
    title: string | null;
    source: string;
    nextSeq: number;
    at: Date;
  },
): Promise<boolean> {
  const rows = await db.sql`
    with made as (
      insert into conversations (id, org_id, agent_id, title, source, created_at)
      select ${fork.id}, a.org_id, a.id, coalesce(${fork.title}::text, c.title), ${fork.source}, ${fork.at}
      from conversations c, agents a where c.id = ${fork.from} and a.id = ${fork.agentId} and a.deleted_at is null
      returning id, org_id, agent_id, created_at
    )
    insert into lanes (conversation_id, org_id, agent_id, state, next_seq, last_message_at)
    select id, org_id, agent_id, 'idle', ${fork.nextSeq}::bigint,
      coalesce((select max(m.created_at) from messages m where m.conversation_id = made.id), created_at)
    from made returning conversation_id`;
  return rows.length > 0;
}
