import type { Database } from './database.ts';

/** Of these keys, conversations and agents, the ids of those that nobody may read by, or read, any more. */
export async function closedAmong(
  db: Database,
  keyIds: string[],
  conversationIds: string[],
  agentIds: string[] = [],
): Promise<Set<string>> {
  const rows = await db.sql<{ id: string }[]>`
    select id from api_keys
      where id = any (${keyIds}::uuid[]) and (revoked_at is not null or expires_at <= now())
    union all
    select c.id from conversations c join agents a on a.id = c.agent_id
      where c.id = any (${conversationIds}::uuid[]) and (c.deleted_at is not null or a.deleted_at is not null)
    union all
    select id from agents where id = any (${agentIds}::uuid[]) and deleted_at is not null`;
  return new Set(rows.map((row) => row.id));
}
