import type { EgressPolicy, EgressReason } from '../domain/egress-policy.ts';
import type { Database } from './database.ts';

/** What agents may reach, what did not go out, and what passed (`migrations/0004_egress.sql`). */

export interface StoredPolicy extends EgressPolicy {
  updatedAt: Date;
}

/** Null: the agent has the default. */
export async function egressPolicyOf(db: Database, agentId: string): Promise<StoredPolicy | null> {
  const [row] = await db.sql<StoredPolicy[]>`
    select mode, allow, deny, presets, transparent, updated_at as "updatedAt"
    from egress_policies where agent_id = ${agentId}`;
  return row ?? null;
}

export async function putEgressPolicy(db: Database, agentId: string, policy: EgressPolicy): Promise<void> {
  const { mode, allow, deny, presets, transparent } = policy;
  await db.sql`
    insert into egress_policies (agent_id, mode, allow, deny, presets, transparent)
      values (${agentId}, ${mode}, ${allow}::text[], ${deny}::text[], ${presets}::text[], ${transparent})
      on conflict (agent_id) do update set mode = excluded.mode, allow = excluded.allow, deny = excluded.deny,
        presets = excluded.presets, transparent = excluded.transparent, updated_at = now()`;
}

export async function removeEgressPolicy(db: Database, agentId: string): Promise<void> {
  await db.sql`delete from egress_policies where agent_id = ${agentId}`;
}

export interface RefusalRow {
  id: string;
  agentId: string;
  host: string;
  port: number;
  reason: EgressReason;
  message: string;
  count: number;
  firstAt: Date;
  lastAt: Date;
}

export async function refusalsOf(
  db: Database,
  agentId: string,
  { before, limit }: { before: string | null; limit: number },
): Promise<RefusalRow[]> {
  const { sql } = db;
  return sql<RefusalRow[]>`
    select id, agent_id as "agentId", host, port, reason, message, count::float8 as count,
      first_at as "firstAt", last_at as "lastAt"
    from egress_refusals where agent_id = ${agentId} ${before === null ? sql`` : sql`and id < ${before}`}
    order by id desc limit ${limit}`;
}

/** Adds up what is there already, and keeps the `keep` kinds of each agent that were seen last. */
export async function addRefusals(db: Database, rows: RefusalRow[], keep: number): Promise<void> {
  const given = JSON.stringify(rows.map((row) => ({ ...row, agent_id: row.agentId })));
  await db.tx(async () => {
    // In order, so that two writers cannot wait for each other.
    await db.sql`
      insert into egress_refusals as r (id, agent_id, host, port, reason, message, count, first_at, last_at)
        select id, agent_id, host, port, reason, message, count, "firstAt", "lastAt"
          from json_to_recordset(${given}::text::json) as u (id uuid, agent_id uuid, host text, port integer, reason text,
            message text, count bigint, "firstAt" timestamptz, "lastAt" timestamptz)
          order by agent_id, host, port, reason
        on conflict (agent_id, host, port, reason) do update set count = r.count + excluded.count,
          message = excluded.message, last_at = greatest(r.last_at, excluded.last_at)`;
    const agentIds = [...new Set(rows.map((row) => row.agentId))];
    await db.sql`
      delete from egress_refusals where id in (
        select id from (
          select id, row_number() over (partition by agent_id order by last_at desc, id desc) as place
            from egress_refusals where agent_id = any (${agentIds}::uuid[])) as placed
        where place > ${keep})`;
  });
}

export interface TrafficRow {
  agentId: string;
  host: string;
  sentBytes: number;
  receivedBytes: number;
  connections: number;
}

/** Days that lie further back than `keepDays` are forgotten for the agents that are written. */
export async function addTraffic(
  db: Database,
  day: string,
  keepDays: number,
  rows: TrafficRow[],
): Promise<void> {
  const given = JSON.stringify(rows);
  await db.sql`
    insert into egress_traffic as t (agent_id, day, host, sent_bytes, received_bytes, connections)
      select "agentId", ${day}::date, host, "sentBytes", "receivedBytes", connections
        from json_to_recordset(${given}::text::json) as u ("agentId" uuid, host text, "sentBytes" bigint,
          "receivedBytes" bigint, connections bigint)
        order by "agentId", host
      on conflict (agent_id, day, host) do update set sent_bytes = t.sent_bytes + excluded.sent_bytes,
        received_bytes = t.received_bytes + excluded.received_bytes, connections = t.connections + excluded.connections`;
  const agentIds = [...new Set(rows.map((row) => row.agentId))];
  await db.sql`
    delete from egress_traffic where agent_id = any (${agentIds}::uuid[]) and day < ${day}::date - ${keepDays}::int`;
}

export interface HostTraffic {
  host: string;
  sentBytes: number;
  receivedBytes: number;
  connections: number;
}

/** The hosts with the most bytes in the days since, the present one included. */
export async function trafficOf(
  db: Database,
  agentId: string,
  sinceDay: string,
  limit: number,
): Promise<HostTraffic[]> {
  return db.sql<HostTraffic[]>`
    select host, sum(sent_bytes)::float8 as "sentBytes", sum(received_bytes)::float8 as "receivedBytes",
      sum(connections)::float8 as connections
    from egress_traffic where agent_id = ${agentId} and day >= ${sinceDay}::date
    group by host order by sum(sent_bytes + received_bytes) desc, host limit ${limit}`;
}
