import type { Sealed } from '../domain/box.ts';
import type { DisabledReason, EndpointStatus } from '../domain/webhook-endpoint.ts';
import type { Database, Sql } from './database.ts';

export interface EndpointRow {
  id: string;
  orgId: string;
  name: string;
  url: string;
  events: string[];
  agentId: string | null;
  status: EndpointStatus;
  disabledReason: DisabledReason | null;
  failingSince: Date | null;
  lastSuccessAt: Date | null;
  createdAt: Date;
  updatedAt: Date;
}

export type SecretSlot = 'current' | 'previous';

export interface SealedEndpointSecret extends Sealed {
  name: SecretSlot;
  validUntil: Date | null;
}

const columns = (sql: Sql) => sql`
  id, org_id as "orgId", name, url, events, agent_id as "agentId", status, disabled_reason as "disabledReason",
  failing_since as "failingSince", last_success_at as "lastSuccessAt", created_at as "createdAt",
  updated_at as "updatedAt"`;

export type WebhookEndpointStore = ReturnType<typeof createWebhookEndpointStore>;

/** Secrets come in and go out sealed; this file could not read one. */
export function createWebhookEndpointStore(db: Database) {
  return {
    async list(
      orgId: string,
      { before, limit }: { before: string | null; limit: number },
    ): Promise<EndpointRow[]> {
      const { sql } = db;
      return sql<EndpointRow[]>`
        select ${columns(sql)} from webhook_endpoints
        where org_id = ${orgId} ${before === null ? sql`` : sql`and id < ${before}`}
        order by id desc limit ${limit}`;
    },

    async get(id: string): Promise<EndpointRow | null> {
      const { sql } = db;
      const rows = await sql<EndpointRow[]>`select ${columns(sql)} from webhook_endpoints where id = ${id}`;
      return rows[0] ?? null;
    },

    /** Holds the row until the end of the transaction; null when it is gone. */
    async lock(id: string): Promise<EndpointRow | null> {
      const { sql } = db;
      const rows = await sql<EndpointRow[]>`
        select ${columns(sql)} from webhook_endpoints where id = ${id} for no key update`;
      return rows[0] ?? null;
    },

    /** Makes counting and adding one step. */
    async countLocked(orgId: string): Promise<number> {
      await db.sql`select pg_advisory_xact_lock(hashtextextended('webhook endpoints of ' || ${orgId}, 0))`;
      const rows = await db.sql<{ count: number }[]>`
        select count(*)::int as count from webhook_endpoints where org_id = ${orgId}`;
      return rows[0]!.count;
    },

    async insert(
      row: Pick<EndpointRow, 'id' | 'orgId' | 'name' | 'url' | 'events' | 'agentId'>,
    ): Promise<void> {
      await db.sql`
        insert into webhook_endpoints (id, org_id, name, url, events, agent_id, status)
        values (${row.id}, ${row.orgId}, ${row.name}, ${row.url}, ${row.events}::text[], ${row.agentId}, 'enabled')`;
    },

    async update(id: string, row: Pick<EndpointRow, 'name' | 'url' | 'events' | 'agentId'>): Promise<void> {
      await db.sql`
        update webhook_endpoints set name = ${row.name}, url = ${row.url}, events = ${row.events}::text[],
          agent_id = ${row.agentId}, updated_at = now() where id = ${id}`;
    },

    /** What waits to be sent is held while it is disabled, and goes out when it is enabled again. */
    async setStatus(id: string, status: EndpointStatus, reason: DisabledReason | null): Promise<void> {
      await db.sql`
        update webhook_endpoints set status = ${status}, disabled_reason = ${reason}, failing_since = null, warned_days = 0,
          updated_at = now() where id = ${id}`;
      await db.sql`
        update webhook_deliveries
        set due_at = ${status === 'enabled' ? db.sql`greatest(now(), leased_until)` : null}
        where endpoint_id = ${id} and state = 'pending'`;
    },

    async remove(id: string): Promise<void> {
      await db.sql`delete from webhook_endpoints where id = ${id}`;
      await db.sql`delete from webhook_deliveries where endpoint_id = ${id}`;
    },

    async succeeded(id: string): Promise<void> {
      await db.sql`
        update webhook_endpoints set failing_since = null, warned_days = 0, last_success_at = now()
        where id = ${id} and (failing_since is not null or last_success_at is null
          or last_success_at < now() - interval '10 seconds')`;
    },

    /** Since when attempts have failed; null when it is gone, or disabled. */
    async failed(id: string): Promise<Date | null> {
      const rows = await db.sql<{ since: Date }[]>`
        update webhook_endpoints set failing_since = coalesce(failing_since, now())
        where id = ${id} and status = 'enabled' returning failing_since as since`;
      return rows[0]?.since ?? null;
    },

    /** False: it was said before, and no attempt was taken since. */
    async warned(id: string, days: number): Promise<boolean> {
      const { count } = await db.sql`
        update webhook_endpoints set warned_days = ${days} where id = ${id} and warned_days < ${days}`;
      return count === 1;
    },

    async putSecret(endpointId: string, { name, validUntil, ...value }: SealedEndpointSecret): Promise<void> {
      await db.sql`
        insert into webhook_endpoint_secrets (endpoint_id, name, valid_until, sealed_value, wrapped_key, kek_id)
        values (${endpointId}, ${name}, ${validUntil}, ${value.sealed}, ${value.wrappedKey}, ${value.kekId})
        on conflict (endpoint_id, name) do update set
          valid_until = excluded.valid_until, sealed_value = excluded.sealed_value,
          wrapped_key = excluded.wrapped_key, kek_id = excluded.kek_id`;
    },

    /** Those that sign now, the present one first. */
    async secrets(endpointId: string): Promise<SealedEndpointSecret[]> {
      return db.sql<SealedEndpointSecret[]>`
        select name, valid_until as "validUntil", sealed_value as sealed, wrapped_key as "wrappedKey", kek_id as "kekId"
        from webhook_endpoint_secrets
        where endpoint_id = ${endpointId} and (valid_until is null or valid_until > now()) order by name`;
    },
  };
}
