import type { InboundState } from '../domain/channel.ts';
import type { ReplyTo } from '../domain/ports/channel.ts';
import type { JSONValue } from 'postgres';
import type { Database, Sql } from './database.ts';

/** What is kept of a request, so that its events can be read again. Values that prove the sender are blanked. */
export interface StoredRequest {
  method: string;
  url: string;
  headers: [name: string, value: string][];
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
  retryCount: number;
  conversationId: string | null;
  runId: string | null;
  attempts: number;
  receivedAt: Date;
  history: { state: InboundState; at: string; reason: string | null }[];
}

/** One that is to be worked on, with all that is needed for it. */
export interface DueEvent extends InboundEventRow {
  deliveryKey: string;
  messageKey: string | null;
  request: StoredRequest;
  body: Buffer;
  place: number;
  replyTo: ReplyTo | null;
}

const columns = (sql: Sql) => sql`
  e.id, e.channel_id as "channelId", e.org_id as "orgId", e.agent_id as "agentId", e.kind, e.state, e.reason,
  e.duplicate_of as "duplicateOf", e.retry_count as "retryCount", e.conversation_id as "conversationId",
  e.run_id as "runId", e.attempts, e.received_at as "receivedAt", e.history`;

/** Appended with every change of state: what became of an event can be read from its row alone. */
const step = (sql: Sql, state: InboundState, reason: string | null) => sql`
  state = ${state}, reason = ${reason},
  history = history || jsonb_build_array(jsonb_build_object('state', ${state}::text, 'at',
    to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), 'reason', ${reason}::text))`;

export type InboundEventStore = ReturnType<typeof createInboundEventStore>;

export function createInboundEventStore(db: Database) {
  return {
    /**
     * Stores a batch in one statement, so that one commit answers many senders. A delivery that is there already is
     * counted, and a retry that says so is recorded beside it. Rows of channels that are gone are left out.
     */
    async insertBatch(events: NewInboundEvent[]): Promise<void> {
      const { sql } = db;
      const rows = events.map((event) => ({
        id: event.id,
        channel_id: event.channelId,
        org_id: event.orgId,
        agent_id: event.agentId,
        kind: event.kind,
        delivery_key: event.deliveryKey,
        request: event.request,
        body: event.body.toString('base64'),
        place: event.place,
        received_at: event.receivedAt.toISOString(),
        retry_id: event.retry?.id ?? null,
        retry_kind: event.retry?.kind ?? null,
        retry_attempt: event.retry?.attempt ?? null,
      }));
      await sql`
        with given as (
          select g.*, row_number() over (partition by g.channel_id, g.delivery_key order by g.received_at, g.id) as copy
          from jsonb_to_recordset(${sql.json(rows as unknown as JSONValue)}) as g (
            id uuid, channel_id uuid, org_id uuid, agent_id uuid, kind text, delivery_key text, request jsonb, body text,
            place integer, received_at timestamptz, retry_id uuid, retry_kind text, retry_attempt integer)
          join channels c on c.id = g.channel_id
        ),
        firsts as (
          insert into inbound_events (id, channel_id, org_id, agent_id, kind, state, delivery_key, retry_count, request,
                                      body, place, due_at, history, received_at, last_seen_at)
          select f.id, f.channel_id, f.org_id, f.agent_id, f.kind, 'queued', f.delivery_key,
                 (select count(*) - 1 from given o where o.channel_id = f.channel_id and o.delivery_key = f.delivery_key),
                 f.request, decode(f.body, 'base64'), f.place, f.received_at,
                 jsonb_build_array(jsonb_build_object('state', 'queued', 'at', f.request ->> 'at', 'reason', null)),
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
               r.delivery_key || '#retry:' || r.retry_attempt, f.id, r.place, '[]', r.received_at, r.received_at
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
     * The next ones to work on, the same number of each organisation, so that nobody's backlog is before another's
     * single event. Each is held for `leaseMs`; whoever dies meanwhile has lost it then.
     */
    async claimDue(perOrg: number, leaseMs: number): Promise<DueEvent[]> {
      const { sql } = db;
      return sql<DueEvent[]>`
        with recursive orgs as (
          (select org_id from inbound_events where due_at is not null order by org_id limit 1)
          union all
          select (select e.org_id from inbound_events e where e.due_at is not null and e.org_id > o.org_id
                  order by e.org_id limit 1)
          from orgs o where o.org_id is not null
        ),
        due as (
          select d.id from orgs o cross join lateral (
            select e.id from inbound_events e
            where e.org_id = o.org_id and e.due_at <= now() order by e.due_at limit ${perOrg} for update skip locked
          ) d where o.org_id is not null
        )
        update inbound_events e set due_at = now() + ${leaseMs} * interval '1 millisecond', attempts = attempts + 1
        from due where e.id = due.id
        returning ${columns(sql)}, e.delivery_key as "deliveryKey", e.message_key as "messageKey", e.request, e.body,
                  e.place, e.reply_to as "replyTo"`;
    },

    /** Ends it, with the retries that waited for it. */
    async settle(id: string, state: InboundState, reason: string | null): Promise<void> {
      const { sql } = db;
      await sql`update inbound_events set ${step(sql, state, reason)}, due_at = null where id = ${id}`;
      await sql`
        update inbound_events set ${step(sql, 'duplicate', null)} where duplicate_of = ${id} and state = 'queued'`;
    },

    /** Ends it as a copy of another one. */
    async settleDuplicate(id: string, of: string): Promise<void> {
      const { sql } = db;
      await sql`
        update inbound_events set ${step(sql, 'duplicate', null)}, duplicate_of = ${of}, due_at = null where id = ${id}`;
    },

    /** Takes the message for this event; the id of the one that has it, when that is another. */
    async takeMessage(id: string, channelId: string, messageKey: string): Promise<string> {
      const { sql } = db;
      // Copies of one message queue up here for each other's commit.
      await sql`select pg_advisory_xact_lock(hashtextextended(${`${channelId}:${messageKey}`}, 0))`;
      const [owner] = await sql<{ id: string }[]>`
        select id from inbound_events where channel_id = ${channelId} and message_key = ${messageKey}`;
      if (owner) return owner.id;
      await sql`update inbound_events set message_key = ${messageKey} where id = ${id}`;
      return id;
    },

    async started(
      id: string,
      { conversationId, runId, replyTo }: { conversationId: string; runId: string; replyTo: ReplyTo | null },
      checkMs: number,
    ): Promise<void> {
      const { sql } = db;
      await sql`
        update inbound_events set ${step(sql, 'processing', null)}, conversation_id = ${conversationId},
          run_id = ${runId}, reply_to = ${replyTo === null ? null : sql.json(replyTo)}, attempts = 0,
          due_at = now() + ${checkMs} * interval '1 millisecond'
        where id = ${id}`;
    },

    /** To be worked on again after so long. `isAttempt` false: nothing went wrong, it only waits. */
    async postpone(id: string, afterMs: number, isAttempt: boolean): Promise<void> {
      const { sql } = db;
      await sql`
        update inbound_events set due_at = now() + ${afterMs} * interval '1 millisecond'
          ${isAttempt ? sql`` : sql`, attempts = 0`}
        where id = ${id} and due_at is not null`;
    },

    /** Holds it for so long from now; false when another worker has claimed it meanwhile. */
    async hold(id: string, attempts: number, leaseMs: number): Promise<boolean> {
      const result = await db.sql`
        update inbound_events set due_at = now() + ${leaseMs} * interval '1 millisecond'
        where id = ${id} and attempts = ${attempts} and due_at is not null`;
      return result.count === 1;
    },

    /** For another attempt that somebody asked for. A turn that completed is not run again, and what was sent stays sent. */
    async requeue(id: string): Promise<boolean> {
      const { sql } = db;
      const result = await sql`
        update inbound_events e set ${step(sql, 'queued', 'replayed')}, attempts = 0, due_at = now(),
          run_id = (select r.id from runs r where r.id = e.run_id and r.status = 'completed')
        where id = ${id} and body is not null and state in ('failed', 'dead', 'ignored')`;
      return result.count === 1;
    },

    /** How many of the conversation were answered in the last hour. */
    async answeredLately(conversationId: string): Promise<number> {
      const rows = await db.sql<{ count: number }[]>`
        select count(*)::int as count from inbound_events
        where conversation_id = ${conversationId} and run_id is not null and received_at > now() - interval '1 hour'`;
      return rows[0]!.count;
    },

    /** What became of the messages that answer an event, by their place. */
    async answers(eventId: string): Promise<Map<number, 'sending' | 'sent' | 'failed'>> {
      const rows = await db.sql<{ place: number; state: 'sending' | 'sent' | 'failed' }[]>`
        select place, state from channel_answers where event_id = ${eventId}`;
      return new Map(rows.map((row) => [row.place, row.state]));
    },

    /** Durable before the call is made: whoever comes after a crash knows that it may have been. */
    async putAnswer(
      eventId: string,
      place: number,
      state: 'sending' | 'sent' | 'failed',
      externalId: string | null,
    ): Promise<void> {
      await db.sql`
        insert into channel_answers (event_id, place, state, external_id, sent_at)
        values (${eventId}, ${place}, ${state}, ${externalId}, ${state === 'sent' ? new Date() : null})
        on conflict (event_id, place) do update set
          state = excluded.state, external_id = excluded.external_id, sent_at = excluded.sent_at`;
    },

    /** Drops what came in more than `days` ago; keys and states stay, so that nothing old is taken for new. */
    async purgeBodies(days: number): Promise<void> {
      await db.sql`
        update inbound_events set body = null, request = null
        where id in (select id from inbound_events
          where body is not null and due_at is null and received_at < now() - ${days} * interval '1 day' limit 10000)`;
    },

    async conversationOf(channelId: string, keys: string[]): Promise<string | null> {
      if (keys.length === 0) return null;
      const rows = await db.sql<{ conversationId: string }[]>`
        select k.conversation_id as "conversationId"
        from unnest(${keys}::text[]) with ordinality as given (key, rank)
        join channel_conversations k on k.channel_id = ${channelId} and k.key = given.key
        join conversations c on c.id = k.conversation_id and c.deleted_at is null
        order by given.rank limit 1`;
      return rows[0]?.conversationId ?? null;
    },

    async rememberConversation(channelId: string, keys: string[], conversationId: string): Promise<void> {
      await db.sql`
        insert into channel_conversations (channel_id, key, conversation_id)
        select ${channelId}, key, ${conversationId} from unnest(${[...new Set(keys)]}::text[]) as key
        on conflict (channel_id, key) do update set conversation_id = excluded.conversation_id`;
    },
  };
}
