import type { ApiKey, Binding, Scope } from '../domain/nouns.ts';
import type { Database, Sql } from './database.ts';

export interface NewApiKey {
  id: string;
  orgId: string;
  agentId: string | null;
  name: string;
  prefix: string;
  hash: string;
  scope: Scope;
  binding: Binding;
  expiresAt: Date | null;
}

/** What authentication needs of an active key. */
export interface KeyIdentity {
  keyId: string;
  orgId: string;
  agentId: string | null;
  scope: Scope;
  binding: Binding;
  quota: number | null;
  windowSeconds: number | null;
  expiresAt: Date | null;
  lastUsedAt: Date | null;
}

export interface KeyPosition {
  before: string | null;
  limit: number;
}

const columns = (sql: Sql) => sql`
  id, org_id as "orgId", agent_id as "agentId", name, prefix, scope, binding, last_used_at as "lastUsedAt",
  expires_at as "expiresAt", created_at as "createdAt"`;

/** Neither revoked nor expired. */
const active = (sql: Sql) => sql`revoked_at is null and (expires_at is null or expires_at > now())`;

export type ApiKeyStore = ReturnType<typeof createApiKeyStore>;

export function createApiKeyStore(db: Database) {
  const page = (owner: (sql: Sql) => ReturnType<typeof columns>, { before, limit }: KeyPosition) => {
    const { sql } = db;
    return sql<ApiKey[]>`
      select ${columns(sql)} from api_keys
      where ${owner(sql)} and ${active(sql)} ${before === null ? sql`` : sql`and id < ${before}`}
      order by id desc limit ${limit}`;
  };

  return {
    async findActive(hash: string): Promise<KeyIdentity | null> {
      const { sql } = db;
      const rows = await sql<KeyIdentity[]>`
        select id as "keyId", org_id as "orgId", agent_id as "agentId", scope, binding, rate_limit_quota as quota,
               rate_limit_window_seconds as "windowSeconds", expires_at as "expiresAt", last_used_at as "lastUsedAt"
        from api_keys where hash = ${hash} and ${active(sql)}`;
      return rows[0] ?? null;
    },

    async insert(key: NewApiKey): Promise<ApiKey> {
      const { sql } = db;
      const rows = await sql<ApiKey[]>`
        insert into api_keys (id, org_id, agent_id, name, prefix, hash, scope, binding, expires_at)
        values (${key.id}, ${key.orgId}, ${key.agentId}, ${key.name}, ${key.prefix}, ${key.hash}, ${key.scope},
                ${key.binding}, ${key.expiresAt})
        returning ${columns(sql)}`;
      return rows[0]!;
    },

    listForAgent: (agentId: string, at: KeyPosition): Promise<ApiKey[]> =>
      page((sql) => sql`agent_id = ${agentId}`, at),
    listForOrg: (orgId: string, at: KeyPosition): Promise<ApiKey[]> =>
      page((sql) => sql`org_id = ${orgId}`, at),

    /** The hash of the key that this call revoked; null when there is no such active key. */
    async revoke(owner: { orgId: string } | { agentId: string }, keyId: string): Promise<string | null> {
      const { sql } = db;
      const rows = await sql<{ hash: string }[]>`
        update api_keys set revoked_at = now()
        where id = ${keyId} and ${active(sql)}
          and ${'orgId' in owner ? sql`org_id = ${owner.orgId}` : sql`agent_id = ${owner.agentId}`}
        returning hash`;
      return rows[0]?.hash ?? null;
    },

    /** The hashes of the keys that were revoked. */
    async revokeAllOfAgent(agentId: string): Promise<string[]> {
      const rows = await db.sql<{ hash: string }[]>`
        update api_keys set revoked_at = now() where agent_id = ${agentId} and revoked_at is null returning hash`;
      return rows.map((row) => row.hash);
    },

    /** At most once a minute per key, whatever the number of replicas. */
    async touch(uses: { keyId: string; at: Date }[]): Promise<void> {
      await db.sql`
        update api_keys set last_used_at = used.at
        from unnest(${uses.map((use) => use.keyId)}::uuid[], ${uses.map((use) => use.at.toISOString())}::timestamptz[])
          as used (id, at)
        where api_keys.id = used.id
          and (last_used_at is null or last_used_at <= used.at - interval '1 minute')`;
    },
  };
}
