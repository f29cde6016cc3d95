import type { Database } from './database.ts';

export interface AcpSessionRow {
  id: string;
  cwd: string;
  /** `''` while nothing was said. */
  title: string;
  /** Null while nothing was said. */
  lastMessageAt: Date | null;
}

export type AcpSessionStore = ReturnType<typeof createAcpSessionStore>;

/** Sessions of the Agent Client Protocol: every conversation of an agent, and those that have no message yet. */
export function createAcpSessionStore(db: Database) {
  return {
    async insert(row: { id: string; orgId: string; agentId: string; cwd: string }): Promise<void> {
      await db.sql`
        insert into acp_sessions (id, org_id, agent_id, cwd)
        values (${row.id}, ${row.orgId}, ${row.agentId}, ${row.cwd})`;
    },

    /** `anyCwd` stands for the folder of a conversation that began elsewhere. Null also when it was deleted. */
    async find(agentId: string, id: string, anyCwd: string): Promise<AcpSessionRow | null> {
      const rows = await db.sql<AcpSessionRow[]>`
        select ${id}::uuid as id, coalesce(s.cwd, ${anyCwd}) as cwd, coalesce(c.title, '') as title,
          l.last_message_at as "lastMessageAt"
        from (select 1) one
          left join conversations c on c.id = ${id} and c.agent_id = ${agentId}
          left join lanes l on l.conversation_id = c.id
          left join acp_sessions s on s.id = ${id} and s.agent_id = ${agentId}
        where (c.id is not null or s.id is not null) and c.deleted_at is null`;
      return rows[0] ?? null;
    },

    /** Newest first, those in which something was said. `cwd` null: of every folder. */
    async list(
      agentId: string,
      cwd: string | null,
      anyCwd: string,
      at: { before: string | null; limit: number },
    ): Promise<AcpSessionRow[]> {
      const { sql } = db;
      return sql<AcpSessionRow[]>`
        select c.id, coalesce(s.cwd, ${anyCwd}) as cwd, c.title, l.last_message_at as "lastMessageAt"
        from conversations c join lanes l on l.conversation_id = c.id left join acp_sessions s on s.id = c.id
        where c.agent_id = ${agentId} and c.deleted_at is null
          ${cwd === null ? sql`` : sql`and coalesce(s.cwd, ${anyCwd}) = ${cwd}`}
          ${at.before === null ? sql`` : sql`and c.id < ${at.before}`}
        order by c.id desc limit ${at.limit}`;
    },

    /** Of a session in which nothing was said. */
    async remove(agentId: string, id: string): Promise<void> {
      await db.sql`
        delete from acp_sessions where id = ${id} and agent_id = ${agentId}
          and not exists (select 1 from conversations where id = ${id})`;
    },

    /** Sessions that were opened long ago and in which nothing was ever said; returns how many. */
    async purge(olderThanDays: number): Promise<number> {
      const rows = await db.sql`
        delete from acp_sessions s where created_at < now() - make_interval(days => ${olderThanDays})
          and not exists (select 1 from conversations c where c.id = s.id)
        returning 1`;
      return rows.length;
    },
  };
}
