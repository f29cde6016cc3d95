import type { ConversationEvent, EventType } from '../domain/events.ts';
import type { Reader } from '../domain/large-json.ts';
import type { RunStatus } from '../domain/nouns.ts';
import type { Database } from './database.ts';
import { eventsOf, type EventText } from './events.ts';

export interface TaskFilter {
  conversationId: string | null;
  statuses: RunStatus[] | null;
  /** With `failed` among the statuses: only runs that were refused, or only others. */
  refused: boolean | null;
  /** With `awaiting_input` among the statuses: only runs whose last question is an authorization, or only others. */
  authorization: boolean | null;
  since: Date | null;
}

export interface TaskRow {
  runId: string;
  conversationId: string;
  /** Of the last change of state; in milliseconds, as the service writes all such times. */
  statusAt: Date;
}

/** What says what a task is, without the pieces of its text; artifacts can be large, and are read when asked for. */
const taskTypes: EventType[] = [
  'message.created',
  'run.queued',
  'run.started',
  'run.awaiting_input',
  'run.resumed',
  'run.retrying',
  'run.completed',
  'run.failed',
  'run.cancelled',
  'input.requested',
  'input.resolved',
  'permission.requested',
  'permission.resolved',
];

export type A2aTaskStore = ReturnType<typeof createA2aTaskStore>;

export function createA2aTaskStore(db: Database) {
  const matches = (filter: TaskFilter) => {
    const { sql } = db;
    return sql`
      ${filter.conversationId === null ? sql`` : sql`and r.conversation_id = ${filter.conversationId}`}
      ${filter.statuses === null ? sql`` : sql`and r.status = any (${filter.statuses}::text[])`}
      ${filter.refused === null ? sql`` : filter.refused ? sql`and r.error_code = 'refused'` : sql`and r.error_code is distinct from 'refused'`}
      ${filter.authorization === null ? sql`` : filter.authorization ? sql`and ${asksToAllow()}` : sql`and not ${asksToAllow()}`}
      and exists (select 1 from conversations c where c.id = r.conversation_id and c.deleted_at is null)`;
  };

  /** By the question that the run was last told to wait for, which is the one that its task shows. */
  const asksToAllow = () => db.sql`exists (
    select 1 from questions q where q.run_id = r.id and q.question ->> 'purpose' = 'authorization' and q.request_id = (
      select e.data ->> 'requestId' from events e where e.run_id = r.id and e.type = 'run.awaiting_input'
      order by e.seq desc limit 1))`;

  return {
    /**
     * Newest status first, after `before`, at most `limit`; and how many there are in all. The runs that have ended come
     * by their index; those that have not are few.
     */
    async list(
      agentId: string,
      filter: TaskFilter,
      before: { statusAt: Date; runId: string } | null,
      limit: number,
    ): Promise<{ rows: TaskRow[]; total: number }> {
      const { sql } = db;
      const since = filter.since;
      const rows = await sql<TaskRow[]>`
        with found as (
          (select r.id, r.conversation_id, r.ended_at as status_at from runs r
            where r.agent_id = ${agentId} and r.ended_at is not null ${matches(filter)}
              ${since === null ? sql`` : sql`and r.ended_at >= ${since}`}
              ${before === null ? sql`` : sql`and (r.ended_at, r.id) < (${before.statusAt}, ${before.runId}::uuid)`}
            order by r.ended_at desc, r.id desc limit ${limit})
          union all
          (select * from (
            select r.id, r.conversation_id, date_trunc('milliseconds', coalesce((
                select max(e.at) from events e where e.run_id = r.id
                  and e.type in ('run.started', 'run.awaiting_input', 'run.resumed', 'run.retrying')
              ), r.created_at)) as status_at
            from runs r
            where r.agent_id = ${agentId} and r.ended_at is null ${matches(filter)}) open
            where true ${since === null ? sql`` : sql`and status_at >= ${since}`}
              ${before === null ? sql`` : sql`and (status_at, id) < (${before.statusAt}, ${before.runId}::uuid)`})
        )
        select id as "runId", conversation_id as "conversationId", status_at as "statusAt" from found
        order by status_at desc, id desc limit ${limit}`;
      const [count] = await sql<{ total: number }[]>`
        select count(*)::int as total from runs r where r.agent_id = ${agentId} ${matches(filter)}
          ${
            since === null
              ? sql``
              : sql`and coalesce(r.ended_at, (select max(e.at) from events e where e.run_id = r.id
            and e.type in ('run.started', 'run.awaiting_input', 'run.resumed', 'run.retrying')), r.created_at) >= ${since}`
          }`;
      return { rows, total: count!.total };
    },

    /** Of runs, oldest first, without the pieces of their texts. */
    async events(reader: Reader, runIds: string[], withArtifacts: boolean): Promise<ConversationEvent[]> {
      const types = withArtifacts ? [...taskTypes, 'artifact.updated'] : taskTypes;
      const rows = await db.sql<EventText[]>`
        select conversation_id, seq, run_id, type, data::text as data, at from events
        where run_id = any (${runIds}::uuid[]) and type = any (${types}::text[]) order by conversation_id, seq`;
      return eventsOf(reader, rows);
    },

    /** The seq of the last event of a run. */
    async lastSeq(runId: string): Promise<number> {
      const [row] = await db.sql<
        { seq: string | null }[]
      >`select max(seq) as seq from events where run_id = ${runId}`;
      return Number(row?.seq ?? 0);
    },

    /** The conversation that a context id names at this agent: its own id, or one that a client chose. */
    async findContext(agentId: string, contextId: string, asId: string | null): Promise<string | null> {
      const [row] = await db.sql<{ id: string | null }[]>`
        select coalesce(
          (select c.id from conversations c where c.id = ${asId}::uuid and c.agent_id = ${agentId} and c.deleted_at is null),
          (select x.conversation_id from a2a_contexts x where x.agent_id = ${agentId} and x.context_id = ${contextId}
            and not exists (select 1 from conversations c where c.id = x.conversation_id and c.deleted_at is not null))
        ) as id`;
      return row?.id ?? null;
    },

    /** Gives a context id a conversation; the one that it has, unless that was deleted. */
    async putContext(agentId: string, contextId: string, conversationId: string): Promise<string> {
      const [row] = await db.sql<{ id: string }[]>`
        insert into a2a_contexts as x (agent_id, context_id, conversation_id)
        values (${agentId}, ${contextId}, ${conversationId})
        on conflict (agent_id, context_id) do update set conversation_id = case
          when exists (select 1 from conversations c where c.id = x.conversation_id and c.deleted_at is not null)
          then excluded.conversation_id else x.conversation_id end
        returning conversation_id as id`;
      return row!.id;
    },

    /** Those of the conversations that a client named. */
    async contextIds(conversationIds: string[]): Promise<Map<string, string>> {
      const rows = await db.sql<{ id: string; contextId: string }[]>`
        select conversation_id as id, context_id as "contextId" from a2a_contexts
        where conversation_id = any (${conversationIds}::uuid[])`;
      return new Map(rows.map((row) => [row.id, row.contextId]));
    },

    /** The sends of this key that began the run are answered: the same again is a new one. */
    async forgetSend(keyId: string, runId: string): Promise<void> {
      await db.sql`
        delete from idempotency where run_id = ${runId} and key_id = ${keyId} and idempotency_key like 'a2a:%'`;
    },
  };
}
