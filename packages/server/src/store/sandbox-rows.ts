import type { Manifest } from '../domain/manifest.ts';
import type { Database } from './database.ts';

export interface SandboxRow {
  id: string;
  orgId: string;
  agentId: string;
  nodeId: string;
  driver: string;
  deploymentId: string;
  model: string;
  generation: number;
  tokenHash: string;
}

/** A sandbox that should run on a node, with what its agent says now. */
export interface LiveSandboxRow extends SandboxRow {
  /** The agent is gone, or another node's by now. One that never had a turn is nobody's, and its sandbox stays. */
  isAbandoned: boolean;
  isDeleted: boolean;
  manifest: Manifest | null;
  /** Whoever started it has not written down that its harness had answered. */
  isStarting: boolean;
}

/** False: its agent was deleted. Whoever deletes it meanwhile waits, and what removes it then knows of this row. */
export async function insertSandbox(db: Database, row: SandboxRow): Promise<boolean> {
  const { count } = await db.sql`
    insert into sandboxes (id, org_id, agent_id, node_id, driver, deployment_id, model, generation, state,
      token_hash)
    select ${row.id}::uuid, ${row.orgId}::uuid, ${row.agentId}::uuid, ${row.nodeId}::uuid, ${row.driver},
      ${row.deploymentId}::uuid, ${row.model}, ${row.generation}::integer, 'starting', ${row.tokenHash}
    from agents where id = ${row.agentId} and deleted_at is null for share`;
  return count === 1;
}

export async function markSandboxRunning(db: Database, id: string): Promise<void> {
  await db.sql`update sandboxes set state = 'running' where id = ${id} and state = 'starting'`;
}

export async function markSandboxEnded(
  db: Database,
  id: string,
  state: 'stopped' | 'failed',
  reason: string,
): Promise<void> {
  await db.sql`
    with broker as (delete from sandbox_brokers where sandbox_id = ${id})
    update sandboxes set state = ${state}, reason = ${reason}, stopped_at = now()
    where id = ${id} and state in ('starting', 'running', 'stopping')`;
}

/** What should run on a node. */
export async function liveSandboxes(db: Database, nodeId: string): Promise<LiveSandboxRow[]> {
  return db.sql<LiveSandboxRow[]>`
    select s.id, s.org_id as "orgId", s.agent_id as "agentId", s.node_id as "nodeId", s.driver,
      s.deployment_id as "deploymentId", s.model, s.generation, s.token_hash as "tokenHash", d.manifest,
      s.state = 'starting' as "isStarting",
      (a.id is null or a.deleted_at is not null or coalesce(a.node_id <> s.node_id, false)) as "isAbandoned",
      (a.id is null or a.deleted_at is not null) as "isDeleted"
    from sandboxes s left join agents a on a.id = s.agent_id left join deployments d on d.id = s.deployment_id
    where s.node_id = ${nodeId} and s.state in ('starting', 'running', 'stopping')`;
}

/** Those of a node that are not among the kept ones. */
export async function markOtherSandboxesEnded(
  db: Database,
  nodeId: string,
  keptIds: string[],
  reason: string,
): Promise<number> {
  const { count } = await db.sql`
    update sandboxes set state = 'stopped', reason = ${reason}, stopped_at = now()
    where node_id = ${nodeId} and state in ('starting', 'running', 'stopping') and id <> all (${keptIds}::uuid[])`;
  return count;
}

export interface SandboxTarget {
  orgId: string;
  slot: number;
  model: string;
  generation: number;
}

export async function sandboxTarget(db: Database, agentId: string): Promise<SandboxTarget | null> {
  const rows = await db.sql<SandboxTarget[]>`
    select org_id as "orgId", slot, model, generation from agents where id = ${agentId} and deleted_at is null`;
  return rows[0] ?? null;
}

export interface LastSandbox {
  id: string;
  agentId: string;
  nodeId: string;
  state: 'starting' | 'running' | 'stopping' | 'stopped' | 'failed';
  reason: string | null;
  createdAt: Date;
  stoppedAt: Date | null;
  /** Of all that the agent used since it was started, in micro-dollars. */
  costMicros: bigint;
}

/** The newest sandbox of each of the agents that had one. */
export async function lastSandboxes(db: Database, agentIds: string[]): Promise<LastSandbox[]> {
  const rows = await db.sql<(Omit<LastSandbox, 'costMicros'> & { costMicros: string })[]>`
    select s.id, s.agent_id as "agentId", s.node_id as "nodeId", s.state, s.reason, s.created_at as "createdAt",
           s.stopped_at as "stoppedAt",
           (select coalesce(sum(u.cost_micros), 0)::text from usage_ledger u
             where u.agent_id = s.agent_id and u.at >= s.created_at) as "costMicros"
    from unnest(${agentIds}::uuid[]) as wanted (agent_id)
    cross join lateral (
      select * from sandboxes where sandboxes.agent_id = wanted.agent_id order by id desc limit 1) s`;
  return rows.map((row) => ({ ...row, costMicros: BigInt(row.costMicros) }));
}

/** The agent may be executed by any node: no sandbox of it is here any more, and nothing executes. A deleted one stays whose it is. */
export async function releaseAgent(db: Database, nodeId: string, agentId: string): Promise<void> {
  await db.sql`
    update agents set node_id = null where id = ${agentId} and node_id = ${nodeId} and deleted_at is null
      and not exists (select 1 from lanes where lanes.node_id = ${nodeId} and state = 'running' and agent_id = ${agentId})`;
}
