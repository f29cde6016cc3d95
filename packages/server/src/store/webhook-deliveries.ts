import type { DeliveryState } from '../domain/webhook-endpoint.ts';
import type { Database, Sql } from './database.ts';

export interface DeliveryRow {
  id: string;
  endpointId: string;
  orgId: string;
  type: string;
  agentId: string | null;
  conversationId: string | null;
  runId: string | null;
  seq: number | null;
  data: Record<string, unknown>;
  at: Date;
  state: DeliveryState;
  attempts: number;
  dueAt: Date | null;
  lastStatus: number | null;
  lastError: string | null;
  endedAt: Date | null;
  createdAt: Date;
}

export interface AttemptRow {
  number: number;
  at: Date;
  latencyMs: number;
  status: number | null;
  error: string | null;
  answer: string | null;
}

const columns = (sql: Sql) => sql`
  d.id, d.endpoint_id as "endpointId", d.org_id as "orgId", d.type, d.agent_id as "agentId",
  d.conversation_id as "conversationId", d.run_id as "runId", d.seq::float8 as seq, d.data, d.at, d.state, d.attempts,
  d.due_at as "dueAt", d.last_status as "lastStatus", d.last_error as "lastError", d.ended_at as "endedAt",
  d.created_at as "createdAt"`;

export interface ClaimBounds {
  limit: number;
  /** Of one endpoint at once, over all replicas. */
  perEndpoint: number;
  /** Of one organisation, in one claim. */
  perOrg: number;
  /** Organisations that have as many under way. */
  leftOut: string[];
  leaseMs: number;
}

export type WebhookDeliveryStore = ReturnType<typeof createWebhookDeliveryStore>;

export function createWebhookDeliveryStore(db: Database) {
  return {
    async list(
      endpointId: string,
      { before, limit, state }: { before: string | null; limit: number; state: DeliveryState | null },
    ): Promise<DeliveryRow[]> {
      const { sql } = db;
      return sql<DeliveryRow[]>`
        select ${columns(sql)} from webhook_deliveries d
        where d.endpoint_id = ${endpointId} ${before === null ? sql`` : sql`and d.id < ${before}`}
          ${state === null ? sql`` : sql`and d.state = ${state}`}
        order by d.id desc limit ${limit}`;
    },

    async get(endpointId: string, id: string): Promise<DeliveryRow | null> {
      const { sql } = db;
      const rows = await sql<DeliveryRow[]>`
        select ${columns(sql)} from webhook_deliveries d where d.id = ${id} and d.endpoint_id = ${endpointId}`;
      return rows[0] ?? null;
    },

    async attempts(id: string): Promise<AttemptRow[]> {
      return db.sql<AttemptRow[]>`
        select number, at, latency_ms as "latencyMs", status, error, answer from webhook_attempts
        where delivery_id = ${id} order by number`;
    },

    /** An event that is about no conversation. */
    async insert(
      row: Pick<DeliveryRow, 'id' | 'endpointId' | 'orgId' | 'type' | 'data' | 'at'>,
    ): Promise<DeliveryRow> {
      const { sql } = db;
      const rows = await sql<DeliveryRow[]>`
        insert into webhook_deliveries as d (id, endpoint_id, org_id, type, data, at, state, due_at)
        values (${row.id}, ${row.endpointId}, ${row.orgId}, ${row.type}, ${JSON.stringify(row.data)}::text::json,
          ${row.at}, 'pending', now()) returning ${columns(sql)}`;
      return rows[0]!;
    },

    /** To every other enabled endpoint of the organisation that wants to hear of it. */
    async tellOthers(row: Pick<DeliveryRow, 'endpointId' | 'orgId' | 'type' | 'data'>): Promise<void> {
      await db.sql`
        insert into webhook_deliveries (id, endpoint_id, org_id, type, data, at, state, due_at)
        select uuid_v7(), e.id, e.org_id, ${row.type}, ${JSON.stringify(row.data)}::text::json, now(), 'pending', now()
        from webhook_endpoints e
        where e.org_id = ${row.orgId} and e.id <> ${row.endpointId} and e.status = 'enabled'
          and (e.events @> array[${row.type}] or e.events @> array['*'])`;
    },

    /**
     * Some that are due, leased: one of each organisation first, then the second of each, so that nobody's backlog is in
     * another's way; of an endpoint that fails one at a time.
     */
    async claim({ limit, perEndpoint, perOrg, leftOut, leaseMs }: ClaimBounds): Promise<DeliveryRow[]> {
      const { sql } = db;
      const due = await sql`select 1 from webhook_deliveries where due_at <= now() limit 1`;
      if (due.length === 0) return [];
      return sql<DeliveryRow[]>`
        with candidate as (
          select n.id, n.due_at, row_number() over (partition by e.org_id order by n.due_at) as place
          from webhook_endpoints e cross join lateral (
            select d.id, d.due_at from webhook_deliveries d
            where d.endpoint_id = e.id and d.due_at <= now() order by d.due_at
            limit greatest(0, case when e.failing_since is null then ${perEndpoint}::integer else 1 end
              - (select count(*) from webhook_deliveries b where b.endpoint_id = e.id and b.leased_until > now()))
          ) n
          where e.status = 'enabled' and e.org_id <> all (${leftOut}::uuid[])
        )
        update webhook_deliveries d set
          leased_until = now() + make_interval(secs => ${leaseMs / 1000}),
          due_at = now() + make_interval(secs => ${leaseMs / 1000})
        where d.id in (
          select o.id from webhook_deliveries o
          where o.due_at <= now() and o.id in (
            select id from candidate where place <= ${perOrg} order by place, due_at limit ${limit})
          for update skip locked)
        returning ${columns(sql)}`;
    },

    /** Notes an attempt. False: the delivery is gone, or it is not the one of this lease any more. */
    async noted(id: string, before: number, attempt: Omit<AttemptRow, 'number'>): Promise<boolean> {
      const rows = await db.sql`
        update webhook_deliveries set attempts = ${before + 1}, leased_until = null, last_status = ${attempt.status},
          last_error = ${attempt.error}
        where id = ${id} and attempts = ${before} and leased_until is not null returning 1`;
      if (rows.length === 0) return false;
      await db.sql`
        insert into webhook_attempts (delivery_id, number, at, latency_ms, status, error, answer)
        values (${id}, ${before + 1}, ${attempt.at}, ${attempt.latencyMs}, ${attempt.status}, ${attempt.error},
          ${attempt.answer})`;
      return true;
    },

    async end(id: string, state: 'delivered' | 'failed'): Promise<void> {
      await db.sql`
        update webhook_deliveries set state = ${state}, due_at = null, ended_at = now() where id = ${id}`;
    },

    /** Unless it is held. */
    async retryIn(id: string, delayMs: number): Promise<void> {
      await db.sql`
        update webhook_deliveries set due_at = now() + make_interval(secs => ${delayMs / 1000})
        where id = ${id} and due_at is not null`;
    },

    /** Without an attempt: another process goes on at once, or whoever enables the endpoint again. */
    async release(id: string): Promise<void> {
      await db.sql`
        update webhook_deliveries
        set due_at = case when due_at is null then null else now() end, leased_until = null
        where id = ${id} and leased_until is not null`;
    },

    /** From the first attempt on, at once. Null: an attempt is under way. */
    async again(id: string): Promise<DeliveryRow | null> {
      const { sql } = db;
      const rows = await sql<DeliveryRow[]>`
        update webhook_deliveries d set state = 'pending', due_at = now(), ended_at = null
        where d.id = ${id} and (d.leased_until is null or d.leased_until < now()) returning ${columns(sql)}`;
      return rows[0] ?? null;
    },

    /** Those that failed since then, at once; how many they are. */
    async againSince(endpointId: string, since: Date): Promise<number> {
      const rows = await db.sql`
        update webhook_deliveries set state = 'pending', due_at = now(), ended_at = null
        where endpoint_id = ${endpointId} and state = 'failed' and at >= ${since} returning 1`;
      return rows.length;
    },

    /** What is old, and what has no endpoint any more. */
    async purge(days: number): Promise<void> {
      await db.sql`delete from webhook_deliveries where created_at < now() - make_interval(days => ${days})`;
      await db.sql`
        delete from webhook_deliveries d
        where not exists (select 1 from webhook_endpoints e where e.id = d.endpoint_id)`;
    },
  };
}
