import type { Agent } from '../domain/nouns.ts';
import { batchReads } from './batched-reads.ts';
import type { Database, Sql } from './database.ts';

export interface NewAgent {
  id: string;
  orgId: string;
  name: string;
  description: string;
  model: string;
  externalGitUrl: string | null;
}

export interface AgentPatch {
  name?: string;
  description?: string;
  model?: string;
  externalGitUrl?: string | null;
  allowedOrigins?: string[];
}

export interface AgentPosition {
  /** Only ids smaller than this one; null = from the newest. */
  before: string | null;
  limit: number;
  /** Only this agent, for a caller that is bound to it. */
  only: string | null;
}

const columns = (sql: Sql) => sql`
  id, org_id as "orgId", slot, name, description, model, external_git_url as "externalGitUrl",
  deployment_id as "deploymentId", allowed_origins as "allowedOrigins", created_at as "createdAt", updated_at as "updatedAt"`;

export type AgentStore = ReturnType<typeof createAgentStore>;

/** Agents that are not deleted; a deleted one is only seen by `claimRemovals`. */
export function createAgentStore(db: Database) {
  const readMany = (ids: string[]) => {
    const { sql } = db;
    return sql<
      Agent[]
    >`select ${columns(sql)} from agents where id = any(${ids}::uuid[]) and deleted_at is null`;
  };
  const listeners: ((id: string) => void)[] = [];
  const readJoined = batchReads<Agent>(async (ids) => db.outside(() => readMany(ids)));

  /** To be called by whoever changes an agent's row; tells of it after the commit. */
  function changed(id: string): void {
    db.afterCommit(() => {
      for (const listener of listeners) listener(id);
    });
  }

  return {
    changed,
    onChange: (listener: (id: string) => void) => void listeners.push(listener),

    /** The hot read: joined with the others of its tick, except inside a transaction, which must see its own writes. */
    async get(id: string): Promise<Agent | null> {
      if (!db.inTransaction) return readJoined(id);
      return (await readMany([id]))[0] ?? null;
    },

    /** Holds the row until the end of the transaction, so that what depends on it happens one after another. */
    async lock(id: string): Promise<Agent | null> {
      const { sql } = db;
      const rows = await sql<Agent[]>`
        select ${columns(sql)} from agents where id = ${id} and deleted_at is null for no key update`;
      return rows[0] ?? null;
    },

    async list(orgId: string, { before, limit, only }: AgentPosition): Promise<Agent[]> {
      const { sql } = db;
      return sql<Agent[]>`
        select ${columns(sql)} from agents
        where org_id = ${orgId} and deleted_at is null
          ${before === null ? sql`` : sql`and id < ${before}`}
          ${only === null ? sql`` : sql`and id = ${only}`}
        order by id desc limit ${limit}`;
    },

    async insert(agent: NewAgent): Promise<Agent> {
      const { sql } = db;
      const rows = await sql<Agent[]>`
        insert into agents (id, org_id, name, description, model, external_git_url)
        values (${agent.id}, ${agent.orgId}, ${agent.name}, ${agent.description}, ${agent.model},
                ${agent.externalGitUrl})
        returning ${columns(sql)}`;
      return rows[0]!;
    },

    /** A new model counts as a change that a running sandbox cannot see. Null when there is no such agent. */
    async update(id: string, patch: AgentPatch): Promise<Agent | null> {
      const { sql } = db;
      const git = patch.externalGitUrl;
      const rows = await sql<Agent[]>`
        update agents set
          name = coalesce(${patch.name ?? null}::text, name),
          description = coalesce(${patch.description ?? null}::text, description),
          model = coalesce(${patch.model ?? null}::text, model),
          allowed_origins = coalesce(${patch.allowedOrigins ?? null}::text[], allowed_origins),
          external_git_url = ${git === undefined ? sql`external_git_url` : sql`${git}::text`},
          generation = generation + case when ${patch.model ?? null}::text <> model then 1 else 0 end,
          updated_at = now()
        where id = ${id} and deleted_at is null
        returning ${columns(sql)}`;
      changed(id);
      return rows[0] ?? null;
    },

    /** A running sandbox is replaced before its next turn. */
    async bumpGeneration(id: string): Promise<void> {
      await db.sql`update agents set generation = generation + 1 where id = ${id}`;
    },

    /** False when it was deleted already. */
    async markDeleted(id: string): Promise<boolean> {
      const result =
        await db.sql`update agents set deleted_at = now() where id = ${id} and deleted_at is null`;
      changed(id);
      return result.count === 1;
    },

    /** What the host keeps of a deleted agent (volume, repository) is gone. */
    async markPurged(id: string): Promise<void> {
      await db.sql`update agents set purged_at = now() where id = ${id} and deleted_at is not null`;
    },

    /**
     * Deleted agents of which something may be left, for a node that removes it: this one's from now on. One whose sandbox
     * may be on another living node is that one's, whosever the agent was.
     */
    async claimRemovals(nodeId: string, leftOut: string[], limit: number): Promise<string[]> {
      const rows = await db.sql<{ id: string }[]>`
        update agents set node_id = ${nodeId}
        where id in (
          select id from agents a
          where deleted_at is not null and purged_at is null and id <> all (${leftOut}::uuid[])
            and (
              not exists (select 1 from nodes n where n.id = a.node_id and n.id <> ${nodeId})
              or exists (
                select 1 from sandboxes s
                where s.agent_id = a.id and s.node_id = ${nodeId} and s.state in ('starting', 'running', 'stopping')))
            and not exists (
              select 1 from sandboxes s join nodes n on n.id = s.node_id
              where s.agent_id = a.id and n.id <> ${nodeId} and s.state in ('starting', 'running', 'stopping'))
          order by id limit ${limit} for no key update skip locked)
        returning id`;
      return rows.map((row) => row.id);
    },
  };
}
