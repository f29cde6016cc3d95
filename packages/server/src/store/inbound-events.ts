import type { InboundState } from '../domain/channel.ts';
import type { JSONValue, PendingQuery, Row } from 'postgres';
import type { Database, Sql } from './database.ts';

/** What is kept of a request, so that its events can be read again. Values that prove the sender are blanked. */
export interface StoredRequest {
  method: string;
  url: string;
  headers: [name: string, value: string][];
  /** Only of what the service made itself. */
  sample?: SampleMark;
}

/** Marks a delivery that no provider made. */
export interface SampleMark {
  /** Whether its answer is sent to where the sample says that it came from. */
  isAnswered: boolean;
  /** What the provider would answer when it is asked for the rest; null when all is there. */
  fetched: string | null;
}

export interface NewInboundEvent {
  id: string;
  channelId: string;
  orgId: string;
  agentId: string;
  kind: string;
  deliveryKey: string;
  request: StoredRequest;
  body: Buffer;
  place: number;
  /** Events of one line are worked on in order; null: at any time. */
  line: string | null;
  /** Why it is kept and starts no turn; null: it is to be worked on. */
  ignore: string | null;
  /** A sender that says so: the attempt becomes a row of its own, linked to the first one. */
  retry: { attempt: number; kind: string; id: string } | null;
  receivedAt: Date;
}

export interface InboundEventRow {
  id: string;
  channelId: string;
  orgId: string;
  agentId: string;
  kind: string;
  state: InboundState;
  reason: string | null;
  duplicateOf: string | null;
  joinedTo: string | null;
  retryCount: number;
  conversationId: string | null;
  runId: string | null;
  attempts: number;
  /** Attempts that ended with their process. */
  cutOffs: number;
  receivedAt: Date;
  history: { state: InboundState; at: string; reason: string | null }[];
}

export const columns = (sql: Sql) => sql`
  e.id, e.channel_id as "channelId", e.org_id as "orgId", e.agent_id as "agentId", e.kind, e.state, e.reason,
  e.duplicate_of as "duplicateOf", e.joined_to as "joinedTo", e.retry_count as "retryCount", e.conversation_id as "conversationId",
  e.run_id as "runId", e.attempts, e.cut_offs as "cutOffs", e.received_at as "receivedAt", e.history`;

/** Appended with every change of state: what became of an event can be read from its row alone. */
export const step = (sql: Sql, state: InboundState, reason: string | null) => sql`
  state = ${state}, reason = ${reason},
  history = history || jsonb_build_array(jsonb_build_object('state', ${state}::text, 'at',
    to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), 'reason', ${reason}::text))`;

export type InboundEventStore = ReturnType<typeof createInboundEventStore>;

export function createInboundEventStore(db: Database) {
  return {
    /**
     * Stores a batch in one statement, so that one commit answers many senders. A delivery that is there already is
     * counted, and a retry that says so is recorded beside it, by a key that no delivery has (`boundedKey`). Rows of channels that are gone are left out.
     */
    async insertBatch(events: NewInboundEvent[]): Promise<void> {
      const { sql } = db;
      let bytes = 0;
      const rows = events.map((event) => ({
        id: event.id,
        channel_id: event.channelId,
        org_id: event.orgId,
        agent_id: event.agentId,
        kind: event.kind,
        delivery_key: event.deliveryKey,
        request: event.request,
        body_from: (bytes += event.body.length) - event.body.length + 1,
        body_bytes: event.body.length,
        place: event.place,
        line: event.line,
        ignore: event.ignore,
        received_at: event.receivedAt.toISOString(),
        retry_id: event.retry?.id ?? null,
        retry_kind: event.retry?.kind ?? null,
        retry_attempt: event.retry?.attempt ?? null,
      }));
      // Apart from the rows: a body in JSON takes the server a tenth of a second for each megabyte, in which others wait.
      const bodies = Buffer.concat(events.map((event) => event.body));
      await sql`
        with given as (
          select g.*, row_number() over (same order by g.received_at, g.id) as copy, count(*) over same as copies
          from jsonb_to_recordset(${sql.json(rows as unknown as JSONValue)}) as g (
            id uuid, channel_id uuid, org_id uuid, agent_id uuid, kind text, delivery_key text, request jsonb,
            body_from integer, body_bytes integer, place integer, line text, ignore text, received_at timestamptz, retry_id uuid, retry_kind text, retry_attempt integer)
          join channels c on c.id = g.channel_id
          window same as (partition by g.channel_id, g.delivery_key)
        ),
        firsts as (
          insert into inbound_events (id, channel_id, org_id, agent_id, kind, state, reason, delivery_key, retry_count,
                                      request, body, place, line, due_at, history, received_at, last_seen_at)
          select f.id, f.channel_id, f.org_id, f.agent_id, f.kind,
                 case when f.ignore is null then 'queued' else 'ignored' end, f.ignore, f.delivery_key,
                 f.copies - 1, f.request, substring(${bodies}::bytea from f.body_from for f.body_bytes), f.place, f.line, case when f.ignore is null then now() end,
                 jsonb_build_array(jsonb_build_object('state', 'queued', 'at', f.request ->> 'at', 'reason', null))
                   || case when f.ignore is null then '[]'::jsonb else jsonb_build_array(
                        jsonb_build_object('state', 'ignored', 'at', f.request ->> 'at', 'reason', f.ignore)) end,
                 f.received_at, f.received_at
          from given f where f.copy = 1 order by f.channel_id, f.delivery_key
          on conflict (channel_id, delivery_key) do update set
            retry_count = inbound_events.retry_count + excluded.retry_count + 1, last_seen_at = excluded.last_seen_at
          returning id, channel_id, delivery_key, state, xmax = 0 as is_new
        ),
        touched as (
          update channels c set last_event_at = greatest(c.last_event_at, g.at)
          from (select channel_id, max(received_at) as at from given group by channel_id) g
          where c.id = g.channel_id and (c.last_event_at is null or c.last_event_at < g.at - interval '1 second')
        )
        insert into inbound_events (id, channel_id, org_id, agent_id, kind, state, delivery_key, duplicate_of, place,
                                    history, received_at, last_seen_at)
        select r.retry_id, r.channel_id, r.org_id, r.agent_id, r.retry_kind,
               case when f.state in ('queued', 'processing') then 'queued' else 'duplicate' end,
               'sha256:retry ' || r.retry_attempt || ' ' || r.delivery_key, f.id, r.place, '[]', r.received_at, r.received_at
        from given r join firsts f on f.channel_id = r.channel_id and f.delivery_key = r.delivery_key
        where r.retry_id is not null and not (f.is_new and r.copy = 1)
        on conflict do nothing`;
    },

    async get(id: string): Promise<InboundEventRow | null> {
      const { sql } = db;
      const rows = await sql<
        InboundEventRow[]
      >`select ${columns(sql)} from inbound_events e where e.id = ${id}`;
      return rows[0] ?? null;
    },

    async list(
      agentId: string,
      { before, limit }: { before: string | null; limit: number },
    ): Promise<InboundEventRow[]> {
      const { sql } = db;
      return sql<InboundEventRow[]>`
        select ${columns(sql)} from inbound_events e
        where e.agent_id = ${agentId} ${before === null ? sql`` : sql`and e.id < ${before}`}
        order by e.id desc limit ${limit}`;
    },

    /**
     * For another attempt that somebody asked for. A turn that completed is not run again, and what was sent stays sent;
     * what may have been sent is sent again; one that was answered together with others is answered with them again.
     */
    async requeue(id: string): Promise<boolean> {
      const { sql } = db;
      const which = sql`e.id = ${id} and e.body is not null and e.state in ('failed', 'dead', 'ignored')`;
      return (await requeueThose(sql, which, 1)) > 0;
    },

    /** The same for many of an agent, the oldest first. `left`: how many more there are. */
    async requeueFailed(
      agentId: string,
      { since, channelId }: { since: Date; channelId: string | null },
      atMost: number,
    ): Promise<{ replayed: number; left: number; doubtful: number }> {
      const { sql } = db;
      const inDoubt = sql`exists (
        select 1 from channel_answers c where c.event_id = coalesce(e.joined_to, e.id) and c.state = 'doubtful')`;
      const failed = sql`
        e.agent_id = ${agentId} and e.state in ('failed', 'dead') and e.body is not null and e.received_at >= ${since}
        ${channelId === null ? sql`` : sql`and e.channel_id = ${channelId}`}`;
      // An answer that may have been sent is sent again only for somebody who looked at it.
      const replayed = await requeueThose(sql, sql`${failed} and not ${inDoubt}`, atMost);
      const [rest] = await sql<{ left: number; doubtful: number }[]>`
        select count(*) filter (where not ${inDoubt})::int as left, count(*) filter (where ${inDoubt})::int as doubtful
        from inbound_events e where ${failed}`;
      return { replayed, left: rest!.left, doubtful: rest!.doubtful };
    },

    /** Drops what came in more than `days` ago; keys and states stay, so that nothing old is taken for new. */
    async purgeBodies(days: number): Promise<void> {
      await db.sql`
        update inbound_events set body = null, request = null
        where id in (select id from inbound_events
          where body is not null and due_at is null and received_at < now() - ${days} * interval '1 day' limit 10000)`;
    },
  };
}

/** How many go on. One of which somebody else changes the state meanwhile is left to them. */
async function requeueThose(sql: Sql, which: PendingQuery<Row[]>, atMost: number): Promise<number> {
  const rows = await sql<{ count: number }[]>`
    with asked as (
      select case when r.id is null then e.id else coalesce(e.joined_to, e.id) end as id, r.id as run_id
      from (
        select e.id, e.joined_to, e.run_id from inbound_events e
        where ${which} order by e.id limit ${atMost} for update skip locked
      ) e
      left join runs r on r.id = e.run_id and r.status = 'completed'
    ),
    forgiven as (
      delete from channel_answers c using asked a where c.event_id = a.id and c.state = 'doubtful'
    ),
    joined as (
      update inbound_events e set ${step(sql, 'processing', 'replayed')}
      from asked a where e.joined_to = a.id and a.run_id is not null and e.state in ('failed', 'dead')
      returning e.id
    ),
    requeued as (
      update inbound_events e set ${step(sql, 'queued', 'replayed')}, attempts = 0, cut_offs = 0, claimed_by = null, due_at = now(),
        run_id = a.run_id, joined_to = null
      from asked a where e.id = a.id and e.state in ('failed', 'dead', 'ignored')
      returning e.id
    )
    select ((select count(*) from joined) + (select count(*) from requeued))::int as count`;
  return rows[0]!.count;
}
