import { againIfWithdrawn } from './again.ts';
import type { MessagePart } from '../domain/parts.ts';
import type {
  ScheduleConversation,
  ScheduleMissed,
  ScheduleStatus,
  TickState,
  TickTrigger,
} from '../domain/schedule.ts';
import type { Database, Sql } from './database.ts';

export interface ScheduleRow {
  id: string;
  orgId: string;
  agentId: string;
  name: string;
  status: ScheduleStatus;
  cron: string;
  timeZone: string;
  content: string;
  parts: MessagePart[];
  conversation: ScheduleConversation;
  conversationId: string | null;
  onBusy: 'enqueue' | 'interrupt' | 'reject';
  onMissed: ScheduleMissed;
  /** The tick that comes next. */
  dueAt: Date | null;
  createdAt: Date;
  updatedAt: Date;
}

export interface TickRow {
  id: string;
  scheduleId: string;
  trigger: TickTrigger;
  state: TickState;
  dueAt: Date;
  firedAt: Date | null;
  reason: string | null;
  message: string | null;
  missedBefore: number;
  conversationId: string | null;
  runId: string | null;
}

const columns = (sql: Sql) => sql`
  s.id, s.org_id as "orgId", s.agent_id as "agentId", s.name, s.status, s.cron, s.time_zone as "timeZone", s.content,
  s.parts, s.conversation, s.conversation_id as "conversationId", s.on_busy as "onBusy", s.on_missed as "onMissed",
  s.due_at as "dueAt", s.created_at as "createdAt", s.updated_at as "updatedAt"`;

const tickColumns = (sql: Sql) => sql`
  id, schedule_id as "scheduleId", trigger, state, due_at as "dueAt", fired_at as "firedAt", reason, message,
  missed_before as "missedBefore", conversation_id as "conversationId", run_id as "runId"`;

export type ScheduleStore = ReturnType<typeof createScheduleStore>;

export function createScheduleStore(db: Database) {
  return {
    async list(
      agentId: string,
      { before, limit }: { before: string | null; limit: number },
    ): Promise<ScheduleRow[]> {
      const { sql } = db;
      return sql<ScheduleRow[]>`
        select ${columns(sql)} from schedules s
        where s.agent_id = ${agentId} ${before === null ? sql`` : sql`and s.id < ${before}`}
        order by s.id desc limit ${limit}`;
    },

    /** Null also when its agent was deleted. */
    async get(id: string): Promise<ScheduleRow | null> {
      const { sql } = db;
      const rows = await sql<ScheduleRow[]>`
        select ${columns(sql)} from schedules s join agents a on a.id = s.agent_id and a.deleted_at is null
        where s.id = ${id}`;
      return rows[0] ?? null;
    },

    /** Holds the row until the end of the transaction; null when it is gone. */
    async lock(id: string): Promise<ScheduleRow | null> {
      const { sql } = db;
      const rows = await sql<
        ScheduleRow[]
      >`select ${columns(sql)} from schedules s where s.id = ${id} for no key update`;
      return rows[0] ?? null;
    },

    async count(agentId: string): Promise<number> {
      const rows = await db.sql<{ count: number }[]>`
        select count(*)::int as count from schedules where agent_id = ${agentId}`;
      return rows[0]!.count;
    },

    async insert(row: Omit<ScheduleRow, 'createdAt' | 'updatedAt'>): Promise<void> {
      await db.sql`
        insert into schedules (id, org_id, agent_id, name, status, cron, time_zone, content, parts, conversation,
          conversation_id, on_busy, on_missed, due_at, look_at)
        values (${row.id}, ${row.orgId}, ${row.agentId}, ${row.name}, ${row.status}, ${row.cron}, ${row.timeZone},
          ${row.content}, ${JSON.stringify(row.parts)}::text::json, ${row.conversation}, ${row.conversationId},
          ${row.onBusy}, ${row.onMissed}, ${row.dueAt}, ${row.dueAt})`;
    },

    async update(row: ScheduleRow): Promise<void> {
      await db.sql`
        update schedules set name = ${row.name}, status = ${row.status}, cron = ${row.cron},
          time_zone = ${row.timeZone}, content = ${row.content}, parts = ${JSON.stringify(row.parts)}::text::json,
          conversation = ${row.conversation}, conversation_id = ${row.conversationId}, on_busy = ${row.onBusy},
          on_missed = ${row.onMissed}, due_at = ${row.dueAt}, look_at = ${row.dueAt}, updated_at = now()
        where id = ${row.id}`;
    },

    async remove(id: string): Promise<void> {
      await againIfWithdrawn(async () => db.sql`delete from schedules where id = ${id}`);
    },

    async removeAllOfAgent(agentId: string): Promise<void> {
      await db.sql`delete from schedules where agent_id = ${agentId}`;
    },

    /** Ids of those to look at, the longest due first. */
    async due(at: Date, limit: number): Promise<string[]> {
      const rows = await db.sql<{ id: string }[]>`
        select id from schedules where look_at <= ${at} order by look_at limit ${limit}`;
      return rows.map((row) => row.id);
    },

    /** Holds one that is due until the end of the transaction; null when another replica has it, or had it. */
    async take(id: string, at: Date): Promise<ScheduleRow | null> {
      const { sql } = db;
      const rows = await sql<ScheduleRow[]>`
        select ${columns(sql)} from schedules s join agents a on a.id = s.agent_id and a.deleted_at is null
        where s.id = ${id} and s.look_at <= ${at} for no key update of s skip locked`;
      return rows[0] ?? null;
    },

    /** Null: there is no next tick. */
    async proceed(id: string, dueAt: Date | null): Promise<void> {
      await db.sql`update schedules set due_at = ${dueAt}, look_at = ${dueAt} where id = ${id}`;
    },

    /** The one that its next tick goes on with. */
    async keepConversation(id: string, conversationId: string | null): Promise<void> {
      await db.sql`
        update schedules set conversation_id = ${conversationId}
        where id = ${id} and conversation_id is distinct from ${conversationId}`;
    },

    /** The same tick again, later. */
    async postpone(id: string, lookAt: Date): Promise<void> {
      await db.sql`update schedules set look_at = ${lookAt} where id = ${id} and look_at is not null`;
    },

    async hasTick(id: string, dueAt: Date): Promise<boolean> {
      const rows = await db.sql`
        select 1 from schedule_ticks where schedule_id = ${id} and due_at = ${dueAt} and trigger = 'schedule'`;
      return rows.length > 0;
    },

    /** False: there is a row for this tick. */
    async addTick(row: TickRow): Promise<boolean> {
      const rows = await db.sql`
        insert into schedule_ticks (id, schedule_id, trigger, state, due_at, fired_at, reason, message, missed_before,
          conversation_id, run_id)
        values (${row.id}, ${row.scheduleId}, ${row.trigger}, ${row.state}, ${row.dueAt}, ${row.firedAt},
          ${row.reason}, ${row.message}, ${row.missedBefore}, ${row.conversationId}, ${row.runId})
        on conflict (schedule_id, due_at) where trigger = 'schedule' do nothing returning 1`;
      return rows.length > 0;
    },

    async ticks(
      scheduleId: string,
      { before, limit }: { before: string | null; limit: number },
    ): Promise<TickRow[]> {
      const { sql } = db;
      return sql<TickRow[]>`
        select ${tickColumns(sql)} from schedule_ticks
        where schedule_id = ${scheduleId} ${before === null ? sql`` : sql`and id < ${before}`}
        order by id desc limit ${limit}`;
    },

    async purgeTicks(days: number): Promise<void> {
      await db.sql`delete from schedule_ticks where due_at < now() - make_interval(days => ${days})`;
    },
  };
}
