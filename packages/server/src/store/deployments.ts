import type { Deployment, DeploymentSource } from '../domain/nouns.ts';
import type { Manifest } from '../domain/manifest.ts';
import type { Database, Sql } from './database.ts';

export interface NewDeployment {
  id: string;
  orgId: string;
  agentId: string;
  commit: string | null;
  ref: string;
  source: DeploymentSource;
}

/** What a sandbox is started from. */
export interface ActiveDeployment {
  id: string;
  commit: string;
  manifest: Manifest;
}

const columns = (sql: Sql) => sql`
  id, org_id as "orgId", agent_id as "agentId", commit, ref, source, status, error, created_at as "createdAt",
  activated_at as "activatedAt"`;

export type DeploymentStore = ReturnType<typeof createDeploymentStore>;

export function createDeploymentStore(db: Database) {
  return {
    /** Pending. */
    async insert(deployment: NewDeployment): Promise<Deployment> {
      const { sql } = db;
      const { id, orgId, agentId, commit, ref, source } = deployment;
      const rows = await sql<Deployment[]>`
        insert into deployments (id, org_id, agent_id, commit, ref, source, status)
        values (${id}, ${orgId}, ${agentId}, ${commit}, ${ref}, ${source}, 'pending')
        returning ${columns(sql)}`;
      return rows[0]!;
    },

    async get(agentId: string, id: string): Promise<Deployment | null> {
      const { sql } = db;
      const rows = await sql<Deployment[]>`
        select ${columns(sql)} from deployments where id = ${id} and agent_id = ${agentId}`;
      return rows[0] ?? null;
    },

    async list(
      agentId: string,
      { before, limit }: { before: string | null; limit: number },
    ): Promise<Deployment[]> {
      const { sql } = db;
      return sql<Deployment[]>`
        select ${columns(sql)} from deployments
        where agent_id = ${agentId} ${before === null ? sql`` : sql`and id < ${before}`}
        order by id desc limit ${limit}`;
    },

    async resolved(id: string, commit: string, ref: string): Promise<void> {
      await db.sql`update deployments set commit = ${commit}, ref = ${ref} where id = ${id} and status = 'pending'`;
    },

    /** False when it was not pending any more. */
    async markReady(id: string, manifest: Manifest): Promise<boolean> {
      const { sql } = db;
      const result = await sql`
        update deployments set status = 'ready', manifest = ${JSON.stringify(manifest)}::text::jsonb
        where id = ${id} and status = 'pending'`;
      return result.count === 1;
    },

    async markFailed(id: string, error: string): Promise<void> {
      await db.sql`update deployments set status = 'failed', error = ${error} where id = ${id} and status = 'pending'`;
    },

    /** Whether one that was made later has been active: an older one that comes in late must not take its place. */
    async newerWasActive(agentId: string, id: string): Promise<boolean> {
      const rows = await db.sql`
        select 1 from deployments where agent_id = ${agentId} and id > ${id} and activated_at is not null limit 1`;
      return rows.length > 0;
    },

    /** Makes it what the agent runs; a running sandbox is replaced before its next turn. Needs the agent's lock. */
    async activate(agentId: string, id: string): Promise<void> {
      const { sql } = db;
      await sql`update deployments set activated_at = now() where id = ${id}`;
      await sql`
        update agents set deployment_id = ${id}, generation = generation + 1, updated_at = now() where id = ${agentId}`;
    },

    /** Null when none is active. */
    async activeOf(agentId: string): Promise<ActiveDeployment | null> {
      const rows = await db.sql<ActiveDeployment[]>`
        select d.id, d.commit, d.manifest from agents a join deployments d on d.id = a.deployment_id
        where a.id = ${agentId} and a.deleted_at is null`;
      return rows[0] ?? null;
    },

    /** Those that were never finished, oldest first. */
    async pending(agentId: string | null = null): Promise<Deployment[]> {
      const { sql } = db;
      return sql<Deployment[]>`
        select ${columns(sql)} from deployments
        where status = 'pending' ${agentId === null ? sql`` : sql`and agent_id = ${agentId}`}
          and exists (select 1 from agents a where a.id = agent_id and a.deleted_at is null)
        order by id`;
    },
  };
}
