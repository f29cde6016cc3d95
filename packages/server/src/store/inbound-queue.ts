import type { InboundState } from '../domain/channel.ts';
import type { ReplyTo } from '../domain/ports/channel.ts';
import type { Database, Sql } from './database.ts';
import { columns, step, type InboundEventRow, type StoredRequest } from './inbound-events.ts';

/** One that is to be worked on, with all that is needed for it. */
export interface DueEvent extends InboundEventRow {
  line: string | null;
  messageKey: string | null;
  /** Null once its turn has begun: nobody reads them again. */
  request: StoredRequest | null;
  body: Buffer | null;
  place: number;
  replyTo: ReplyTo | null;
  /** Others stand behind it in its line. */
  isFollowed: boolean;
}

interface Started {
  id: string;
  sender: string | null;
}

export interface ClaimLimits {
  /** Of each organisation, of those to begin and of those to end. */
  perOrg: number;
  /** Organisations that have enough under way here. */
  except: string[];
  /** Turns of an organisation that may be under way. */
  turnsPerOrg: number;
  nodeId: string;
  leaseMs: number;
  /** Between two looks at a turn that goes on. */
  checkMs: number;
  /** An event that failed so often does not hold back those behind it. */
  patience: number;
}

/** Mail stands in one line of its channel until it is known to which conversation it belongs. */
export const unread = '~unread';

export type InboundQueue = ReturnType<typeof createInboundQueue>;

/** What is to be done with inbound events, by whom and when; replicas share it. */
export function createInboundQueue(db: Database) {
  /** What holds an event back: an earlier one of its line, or one whose turn goes on. */
  const isBlocked = (patience: number) => db.sql`
    exists (select 1 from inbound_events b
      where b.channel_id = e.channel_id and b.line = e.line and b.due_at is not null and b.id <> e.id
        and (b.id < e.id or b.run_id is not null) and b.attempts < ${patience})`;

  return {
    /**
     * The next ones to work on (`claim_inbound` in migrations/0009_channels.sql). Each is held for `leaseMs`; whoever dies
     * meanwhile has lost it then. `looked` counts those too that turned out to have to wait; `underWay` are those of them
     * whose turn goes on, and nobody holds it.
     */
    async claimDue(given: ClaimLimits): Promise<{ due: DueEvent[]; underWay: DueEvent[]; looked: number }> {
      const { sql } = db;
      const rows = await sql<(DueEvent & { waits: boolean })[]>`
        select ${columns(sql)}, e.line, e.message_key as "messageKey", e.place, e.reply_to as "replyTo", e.waits,
          e.request, e.body, e.is_followed as "isFollowed"
        from claim_inbound(${given.nodeId}, ${given.perOrg}, ${given.except}::uuid[], ${given.turnsPerOrg},
          ${given.leaseMs}, ${given.checkMs}, ${given.patience}) e`;
      const waiting = rows.filter((row) => row.waits && row.runId === null).map((row) => row.id);
      if (waiting.length > 0) await this.unblock(waiting, given.patience);
      const underWay = rows.filter((row) => row.waits && row.runId !== null);
      return { due: rows.filter((row) => !row.waits), underWay, looked: rows.length };
    },

    /** How many of an organisation's wait for their turn to begin; those beyond `atMost` are not counted. */
    async waiting(orgId: string, atMost: number): Promise<number> {
      const rows = await db.sql<[{ count: number }]>`
        select count(*)::int as count from (
          select 1 from inbound_events
          where org_id = ${orgId} and due_at is not null and run_id is null limit ${atMost}) e`;
      return rows[0].count;
    },

    /** What a process of this node, which is gone, had begun to work on; the next claim sees that it was cut off. */
    async release(nodeId: string): Promise<void> {
      await db.sql`
        update inbound_events set due_at = now() where due_at is not null and claimed_by = ${nodeId}`;
    },

    /** What went on while an event was found to have to wait does not hold it back. */
    async unblock(ids: string[], patience: number): Promise<void> {
      await db.sql`
        update inbound_events e set due_at = now()
        where e.id = any (${ids}::uuid[]) and e.due_at is not null and e.run_id is null and not ${isBlocked(patience)}`;
    },

    /** One whose turn has ended, for whoever heard of it; null when somebody else works on it. */
    async claimEnded(id: string, nodeId: string, leaseMs: number): Promise<DueEvent | null> {
      const { sql } = db;
      const rows = await sql<DueEvent[]>`
        update inbound_events e set
          due_at = now() + ${leaseMs} * interval '1 millisecond', attempts = e.attempts + 1, claimed_by = ${nodeId}
        where e.id = ${id} and e.state = 'processing' and e.due_at is not null and e.attempts = 0
        returning ${columns(sql)}, e.line, e.message_key as "messageKey", e.place, e.reply_to as "replyTo",
          null as request, null as body, false as "isFollowed"`;
      return rows[0] ?? null;
    },

    /**
     * Keeps others from a turn that is heard here, for so long from now. False: it is theirs already. It is no
     * attempt at the event (`attempts` stays 0), so that nothing counts when this process is gone before that.
     */
    async holdTurn(id: string, nodeId: string, leaseMs: number): Promise<boolean> {
      const { count } = await db.sql`
        update inbound_events set
          due_at = greatest(due_at, now() + ${leaseMs} * interval '1 millisecond'), claimed_by = ${nodeId}
        where id = ${id} and attempts = 0 and state = 'processing' and due_at is not null
          and (claimed_by is null or claimed_by = ${nodeId})`;
      return count > 0;
    },

    /** The turn that this process has held is for whoever looks next. */
    async letGoTurn(id: string, nodeId: string): Promise<void> {
      await db.sql`
        update inbound_events set due_at = now(), claimed_by = null
        where id = ${id} and attempts = 0 and state = 'processing' and due_at is not null and claimed_by = ${nodeId}`;
    },

    /** Holds it for so long from now, for the worker that has claimed it by this attempt. */
    async hold(id: string, attempts: number, leaseMs: number): Promise<void> {
      await db.sql`
        update inbound_events set due_at = now() + ${leaseMs} * interval '1 millisecond'
        where id = ${id} and attempts = ${attempts} and due_at is not null`;
    },

    /** Those that stand behind it in its line, in order. */
    async followers(event: DueEvent, limit: number): Promise<DueEvent[]> {
      const { sql } = db;
      return sql<DueEvent[]>`
        select ${columns(sql)}, e.line, e.message_key as "messageKey", e.place, e.reply_to as "replyTo",
          e.request, e.body, false as "isFollowed"
        from inbound_events e
        where e.channel_id = ${event.channelId} and e.line = ${event.line} and e.due_at is not null
          and e.run_id is null and e.id > ${event.id}
        order by e.id limit ${limit}`;
    },

    /** Holds them until the end of the transaction; those of them whose turn has not begun. */
    async lockQueued(ids: string[]): Promise<Set<string>> {
      const rows = await db.sql<{ id: string }[]>`
        select id from inbound_events
        where id = any (${ids}::uuid[]) and state = 'queued' and due_at is not null and run_id is null
        order by id for update`;
      return new Set(rows.map(({ id }) => id));
    },

    /** The line of an event that is known better now; false when it has to wait there. */
    async moveToLine(id: string, line: string, patience: number): Promise<boolean> {
      const { sql } = db;
      await sql`update inbound_events set line = ${line} where id = ${id}`;
      const rows = await sql`
        select 1 from inbound_events e where e.id = ${id} and ${isBlocked(patience)}`;
      return rows.length === 0;
    },

    /** Ends it, with those that were answered with it; the next of its line goes on. */
    async settle(id: string, state: InboundState, reason: string | null): Promise<void> {
      const { sql } = db;
      await sql`
        with ended as (
          update inbound_events set ${step(sql, state, reason)}, due_at = null where id = ${id}
        )
        update inbound_events set ${step(sql, state, reason)} where joined_to = ${id} and state = 'processing'`;
      await this.afterEnd(id);
    },

    /** Ends it as a copy of another one. */
    async settleDuplicate(id: string, of: string): Promise<void> {
      const { sql } = db;
      await sql`
        update inbound_events set ${step(sql, 'duplicate', null)}, duplicate_of = ${of}, due_at = null where id = ${id}`;
      await this.afterEnd(id);
    },

    /**
     * Ends the retries that waited for an event, and lets the next of its line go on. A statement of its own: it has to
     * see the retries that came while the event's row was being changed.
     */
    async afterEnd(id: string): Promise<void> {
      const { sql } = db;
      await sql`
        with copies as (
          update inbound_events set ${step(sql, 'duplicate', null)} where duplicate_of = ${id} and state = 'queued'
        )
        ${nextInLine(sql, id, null)}`;
    },

    /** Lets the first of a line go on that the event has left. */
    async leftLine(id: string, line: string): Promise<void> {
      await nextInLine(db.sql, id, line);
    },

    /** Takes the message for this event; the id of the one that has it, when that is another. */
    async takeMessage(id: string, channelId: string, messageKey: string): Promise<string> {
      const { sql } = db;
      // Copies of one message queue up here for each other's commit.
      await sql`select pg_advisory_xact_lock(hashtextextended(${`${channelId}:${messageKey}`}, 0))`;
      const [owner] = await sql<{ id: string }[]>`
        with owner as (
          select id from inbound_events where channel_id = ${channelId} and message_key = ${messageKey}
        ),
        taken as (
          update inbound_events set message_key = ${messageKey}
          where id = ${id} and not exists (select 1 from owner) returning id
        )
        select id from owner union all select id from taken`;
      return owner!.id;
    },

    /** The turn of the first has begun, and answers the others too. `sender`: whose answers are counted. */
    async started(
      [{ id, sender }, ...others]: [Started, ...Started[]],
      turn: { conversationId: string; runId: string; replyTo: ReplyTo | null; line: string | null },
      checkMs: number,
    ): Promise<void> {
      const { sql } = db;
      const { conversationId, runId, replyTo, line } = turn;
      await sql`
        update inbound_events set ${step(sql, 'processing', null)}, conversation_id = ${conversationId},
          run_id = ${runId}, reply_to = ${replyTo === null ? null : sql.json(replyTo)}, attempts = 0, cut_offs = 0, line = ${line}, claimed_by = null,
          sender = ${sender}, due_at = now() + ${checkMs} * interval '1 millisecond'
        where id = ${id}`;
      if (others.length === 0) return;
      await sql`
        update inbound_events set ${step(sql, 'processing', null)}, conversation_id = ${conversationId},
          run_id = ${runId}, joined_to = ${id}, due_at = null, sender = o.sender
        from unnest(${others.map((one) => one.id)}::uuid[], ${others.map((one) => one.sender)}::text[]) as o (id, sender)
        where inbound_events.id = o.id`;
    },

    /** Its turn was lost: another one is to begin after so long, for those too that were said in it. */
    async beginAgain(id: string, afterMs: number, reason: string): Promise<void> {
      const { sql } = db;
      await sql`
        update inbound_events set ${step(sql, 'queued', reason)}, run_id = null, joined_to = null, attempts = 0, cut_offs = 0,
          claimed_by = null, due_at = now() + ${afterMs} * interval '1 millisecond'
        where (id = ${id} or joined_to = ${id}) and state = 'processing'`;
    },

    /** To be worked on again after so long, and why; null: nothing went wrong, it only waits. `isAttempt`: the one that ends here counts. */
    async postpone(
      id: string,
      afterMs: number,
      reason: string | null,
      { isAttempt } = { isAttempt: true },
    ): Promise<void> {
      const { sql } = db;
      await sql`
        update inbound_events set due_at = now() + ${afterMs} * interval '1 millisecond', claimed_by = null
          ${reason === null ? sql`, attempts = 0, cut_offs = 0` : sql`, reason = ${reason}, attempts = greatest(0, attempts - ${isAttempt ? 0 : 1}::integer)`}
        where id = ${id} and due_at is not null`;
    },
  };
}

const nextInLine = (sql: Sql, id: string, line: string | null) => sql`
  update inbound_events set due_at = now()
  where id = (
    select n.id from inbound_events e
    join inbound_events n on n.channel_id = e.channel_id and n.line = coalesce(${line}, e.line) and n.due_at is not null
    where e.id = ${id} order by n.id limit 1
  ) and run_id is null and due_at > now() and attempts = 0`;
