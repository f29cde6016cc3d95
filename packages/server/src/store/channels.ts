import { againIfWithdrawn } from './again.ts';
import type { Sealed } from '../domain/box.ts';
import type { ChannelKindName, ChannelStatus } from '../domain/channel.ts';
import type { SettingValue } from '../domain/ports/channel.ts';
import type { Database, Sql } from './database.ts';

export interface ChannelRow {
  id: string;
  orgId: string;
  agentId: string;
  kind: ChannelKindName;
  name: string;
  status: ChannelStatus;
  settings: Record<string, SettingValue>;
  apiBaseUrl: string | null;
  lastEventAt: Date | null;
  lastError: string | null;
  createdAt: Date;
  /** Names of its credentials. */
  credentialsSet: string[];
}

export interface SealedCredential extends Sealed {
  name: string;
  validUntil: Date | null;
}

/** Under which the signing secret before the last rotation is kept; no credential of a kind has such a name. */
export const PREVIOUS = '~previous';

const columns = (sql: Sql) => sql`
  c.id, c.org_id as "orgId", c.agent_id as "agentId", c.kind, c.name, c.status, c.settings,
  c.api_base_url as "apiBaseUrl", c.last_event_at as "lastEventAt", c.last_error as "lastError",
  c.created_at as "createdAt",
  array(select k.name from channel_credentials k where k.channel_id = c.id and k.name <> ${PREVIOUS} order by k.name)
    as "credentialsSet"`;

export type ChannelStore = ReturnType<typeof createChannelStore>;

/** Credentials come in and go out sealed; this file could not read one. */
export function createChannelStore(db: Database) {
  return {
    async list(
      agentId: string,
      { before, limit }: { before: string | null; limit: number },
    ): Promise<ChannelRow[]> {
      const { sql } = db;
      return sql<ChannelRow[]>`
        select ${columns(sql)} from channels c
        where c.agent_id = ${agentId} ${before === null ? sql`` : sql`and c.id < ${before}`}
        order by c.id desc limit ${limit}`;
    },

    /** Null also when its agent was deleted. */
    async get(id: string): Promise<ChannelRow | null> {
      const { sql } = db;
      const rows = await sql<ChannelRow[]>`
        select ${columns(sql)} from channels c join agents a on a.id = c.agent_id and a.deleted_at is null
        where c.id = ${id}`;
      return rows[0] ?? null;
    },

    /** The channel that takes mail to this address over SMTP: active, its agent not deleted. */
    async ofMailAddress(address: string): Promise<{ id: string; orgId: string } | null> {
      const rows = await db.sql<{ id: string; orgId: string }[]>`
        select c.id, c.org_id as "orgId" from channels c join agents a on a.id = c.agent_id and a.deleted_at is null
        where c.kind = 'email' and c.settings ->> 'provider' = 'smtp' and lower(c.settings ->> 'address') = ${address}
          and c.status <> 'paused'`;
      return rows[0] ?? null;
    },

    async count(agentId: string): Promise<number> {
      const rows = await db.sql<{ count: number }[]>`
        select count(*)::int as count from channels where agent_id = ${agentId}`;
      return rows[0]!.count;
    },

    /** Active channels that share a Slack app, the oldest first. */
    async ofSlackApp(appId: string, limit: number): Promise<string[]> {
      const rows = await db.sql<{ id: string }[]>`
        select c.id from channels c join agents a on a.id = c.agent_id and a.deleted_at is null
        where c.kind = 'slack' and c.settings ->> 'appId' = ${appId} and c.status = 'active'
        order by c.id limit ${limit}`;
      return rows.map(({ id }) => id);
    },

    /** How many other organisations share a Slack app, and how many channels of this one do, beside `except`. */
    async countOfSlackApp(
      appId: string,
      orgId: string,
      except: string,
    ): Promise<{ otherOrgs: number; own: number }> {
      const [found] = await db.sql<{ otherOrgs: number; own: number }[]>`
        select count(distinct org_id) filter (where org_id <> ${orgId})::int as "otherOrgs",
               count(*) filter (where org_id = ${orgId})::int as own
        from channels where kind = 'slack' and settings ->> 'appId' = ${appId} and id <> ${except}`;
      return found!;
    },

    async insert(
      row: Pick<ChannelRow, 'id' | 'orgId' | 'agentId' | 'kind' | 'name' | 'settings' | 'apiBaseUrl'>,
    ): Promise<void> {
      const { sql } = db;
      await sql`
        insert into channels (id, org_id, agent_id, kind, name, status, settings, api_base_url)
        values (${row.id}, ${row.orgId}, ${row.agentId}, ${row.kind}, ${row.name}, 'active',
                ${sql.json(row.settings)}, ${row.apiBaseUrl})`;
    },

    /** Holds the row until the end of the transaction; false when it is gone. */
    async lock(id: string): Promise<boolean> {
      const rows = await db.sql`select 1 from channels where id = ${id} for update`;
      return rows.length === 1;
    },

    async update(
      id: string,
      { name, settings, apiBaseUrl }: Pick<ChannelRow, 'name' | 'settings' | 'apiBaseUrl'>,
    ): Promise<void> {
      const { sql } = db;
      await sql`
        update channels set name = ${name}, settings = ${sql.json(settings)}, api_base_url = ${apiBaseUrl}
        where id = ${id}`;
    },

    /** Null leaves what went wrong last as it is. */
    async setStatus(id: string, status: ChannelStatus): Promise<void> {
      await db.sql`update channels set status = ${status} where id = ${id}`;
    },

    /** What is wrong with it; whether it takes anything is for people to say. */
    async noteError(id: string, lastError: string): Promise<void> {
      await db.sql`update channels set last_error = ${lastError} where id = ${id}`;
    },

    async remove(id: string): Promise<void> {
      await againIfWithdrawn(async () => db.sql`delete from channels where id = ${id}`);
    },

    async putCredential(channelId: string, { name, validUntil, ...value }: SealedCredential): Promise<void> {
      await db.sql`
        insert into channel_credentials (channel_id, name, valid_until, sealed_value, wrapped_key, kek_id)
        values (${channelId}, ${name}, ${validUntil}, ${value.sealed}, ${value.wrappedKey}, ${value.kekId})
        on conflict (channel_id, name) do update set
          valid_until = excluded.valid_until, sealed_value = excluded.sealed_value,
          wrapped_key = excluded.wrapped_key, kek_id = excluded.kek_id`;
    },

    async removeCredential(channelId: string, name: string): Promise<void> {
      await db.sql`delete from channel_credentials where channel_id = ${channelId} and name = ${name}`;
    },

    /** Those that hold now. */
    async credentials(channelId: string): Promise<SealedCredential[]> {
      return db.sql<SealedCredential[]>`
        select name, valid_until as "validUntil", sealed_value as sealed, wrapped_key as "wrappedKey", kek_id as "kekId"
        from channel_credentials where channel_id = ${channelId} and (valid_until is null or valid_until > now())`;
    },

    async removeAllOfAgent(agentId: string): Promise<void> {
      await db.sql`delete from channels where agent_id = ${agentId}`;
    },
  };
}
