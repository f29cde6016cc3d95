import type { Sealed } from '../domain/box.ts';
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

    /** The hosts of a secret; null when there is none of this name. */
    async hostsOf(agentId: string, key: string): Promise<string[] | null> {
      const rows = await db.sql<{ hosts: string[] }[]>`
        select hosts from secrets where agent_id = ${agentId} and key = ${key}`;
      return rows[0]?.hosts ?? null;
    },

    /** Those with hosts, without their values. */
    async withHosts(agentId: string): Promise<{ key: string; hosts: string[] }[]> {
      return db.sql<{ key: string; hosts: string[] }[]>`
        select key, hosts from secrets where agent_id = ${agentId} and hosts <> '{}' order by key`;
    },

    async sealedWithHosts(agentId: string): Promise<SealedSecret[]> {
      const { sql } = db;
      return sql<SealedSecret[]>`
        select ${sealedColumns(sql)} from secrets where agent_id = ${agentId} and hosts <> '{}' order by key`;
    },

    async remove(agentId: string, key: string): Promise<boolean> {
      const result = await db.sql`delete from secrets where agent_id = ${agentId} and key = ${key}`;
      return result.count === 1;
    },

    async removeAllOfAgent(agentId: string): Promise<void> {
      await db.sql`delete from secrets where agent_id = ${agentId}`;
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
