import type { Sealed } from '../domain/box.ts';
import { limits } from '../domain/limits.ts';
import type { Database, Sql } from './database.ts';

export interface SecretRow {
  id: string;
  key: string;
  hosts: string[];
  updatedAt: Date;
}

export interface SealedSecret extends Sealed {
  key: string;
  hosts: string[];
  /** The origin that it was set for, when the service itself sends it somewhere; else null. */
  sentTo: string | null;
}

const sealedColumns = (sql: Sql) => sql`
  key, hosts, sent_to as "sentTo", sealed_value as sealed, wrapped_key as "wrappedKey", kek_id as "kekId"`;

const earlierSince = (sql: Sql) => sql`now() - make_interval(days => ${limits.earlierValueDays})`;

export type SecretStore = ReturnType<typeof createSecretStore>;

/** Values come in and go out sealed; this file could not read one. */
export function createSecretStore(db: Database) {
  return {
    async list(
      agentId: string,
      { before, limit }: { before: string | null; limit: number },
    ): Promise<SecretRow[]> {
      const { sql } = db;
      return sql<SecretRow[]>`
        select id, key, hosts, updated_at as "updatedAt" from secrets
        where agent_id = ${agentId} ${before === null ? sql`` : sql`and id < ${before}`}
        order by id desc limit ${limit}`;
    },

    /** Secrets of the agent other than `key`. */
    async countOthers(agentId: string, key: string): Promise<number> {
      const rows = await db.sql<{ count: number }[]>`
        select count(*)::int as count from secrets where agent_id = ${agentId} and key <> ${key}`;
      return rows[0]!.count;
    },

    /** Sets or rotates; a rotated one keeps its place in the list. */
    async put(
      id: string,
      agentId: string,
      { key, hosts, sentTo, sealed, wrappedKey, kekId }: SealedSecret,
    ): Promise<void> {
      await db.sql`
        insert into secrets (id, agent_id, key, hosts, sent_to, sealed_value, wrapped_key, kek_id)
        values (${id}, ${agentId}, ${key}, ${hosts}::text[], ${sentTo}, ${sealed}, ${wrappedKey}, ${kekId})
        on conflict (agent_id, key) do update set
          hosts = excluded.hosts, sent_to = excluded.sent_to, sealed_value = excluded.sealed_value, wrapped_key = excluded.wrapped_key,
          kek_id = excluded.kek_id, updated_at = now()`;
    },

    /** Those with hosts, without their values. */
    async withHosts(agentId: string): Promise<{ key: string; hosts: string[] }[]> {
      return db.sql<{ key: string; hosts: string[] }[]>`
        select key, hosts from secrets where agent_id = ${agentId} and hosts <> '{}' order by key`;
    },

    /** Those with hosts, and what such were before; of one moment, so that none is missed while it is rotated. */
    async sealedWithHosts(agentId: string): Promise<(SealedSecret & { isEarlier: boolean })[]> {
      const { sql } = db;
      return sql<(SealedSecret & { isEarlier: boolean })[]>`
        select ${sealedColumns(sql)}, false as "isEarlier" from secrets where agent_id = ${agentId} and hosts <> '{}'
        union all
        select key, hosts, null, sealed_value, wrapped_key, kek_id, true from earlier_secret_values
        where agent_id = ${agentId} and replaced_at > ${earlierSince(sql)}
        order by key`;
    },

    /** Of what is searched for although it was rotated, deleted or given other hosts. */
    async earlierHosts(agentId: string): Promise<string[]> {
      const { sql } = db;
      const rows = await sql<{ host: string }[]>`
        select distinct unnest(hosts) as host from earlier_secret_values
        where agent_id = ${agentId} and replaced_at > ${earlierSince(sql)} order by host`;
      return rows.map(({ host }) => host);
    },

    /** Before a secret with hosts is changed or removed: keeps what it is for a while. */
    async keepEarlier(id: string, agentId: string, key: string): Promise<void> {
      const { sql } = db;
      await sql`
        insert into earlier_secret_values (id, agent_id, key, hosts, sealed_value, wrapped_key, kek_id)
        select ${id}, agent_id, key, hosts, sealed_value, wrapped_key, kek_id from secrets
        where agent_id = ${agentId} and key = ${key} and hosts <> '{}'`;
      await sql`
        delete from earlier_secret_values where id in (
          select id from (
            select id, row_number() over (partition by key order by replaced_at desc, id desc) as of_key,
              row_number() over (order by replaced_at desc, id desc) as of_agent
            from earlier_secret_values where agent_id = ${agentId}) newest
          where of_key > ${limits.earlierValuesPerSecret} or of_agent > ${limits.earlierValuesPerAgent})`;
    },

    /** Removes what is not searched for any more; returns how many rows that were. */
    async purgeEarlier(): Promise<number> {
      const { sql } = db;
      const result = await sql`delete from earlier_secret_values where replaced_at <= ${earlierSince(sql)}`;
      return result.count;
    },

    async remove(agentId: string, key: string): Promise<boolean> {
      const result = await db.sql`delete from secrets where agent_id = ${agentId} and key = ${key}`;
      return result.count === 1;
    },

    async removeAllOfAgent(agentId: string): Promise<void> {
      await db.sql`delete from secrets where agent_id = ${agentId}`;
      await db.sql`delete from earlier_secret_values where agent_id = ${agentId}`;
    },

    async sealedOf(agentId: string, keys: string[] | null = null): Promise<SealedSecret[]> {
      const { sql } = db;
      return sql<SealedSecret[]>`
        select ${sealedColumns(sql)} from secrets
        where agent_id = ${agentId} ${keys === null ? sql`` : sql`and key = any(${keys}::text[])`}
        order by key`;
    },
  };
}
