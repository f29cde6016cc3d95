import type { Database } from './database.ts';

/**
 * Says that a node lives; how many others do, and whether it was known before. Others that were seen in the future were seen
 * by a clock that has been set back since: they have a lease from now on to say that they live.
 */
export async function touchNode(
  db: Database,
  nodeId: string,
  aliveMs: number,
): Promise<{ others: number; wasKnown: boolean }> {
  const [row] = await db.sql<[{ others: number; wasKnown: boolean }]>`
    with me as (
      insert into nodes (id, started_at, seen_at) values (${nodeId}, now(), now())
      on conflict (id) do update set seen_at = now()
    ), ahead as (
      update nodes set seen_at = now() where id in (
        select id from nodes where id <> ${nodeId} and seen_at > now() + ${aliveMs} * interval '1 millisecond'
        for update skip locked)
    )
    select count(*) filter (where id <> ${nodeId} and seen_at > now() - ${aliveMs} * interval '1 millisecond')::integer
        as others,
      coalesce(bool_or(id = ${nodeId}), false) as "wasKnown"
    from nodes`;
  return row;
}

/** Nodes that have not been seen for so long are gone: their agents are free, their sandboxes are no more. */
export async function buryNodes(db: Database, nodeId: string, deadMs: number): Promise<void> {
  const rows = await db.sql<{ id: string }[]>`
    select id from nodes where id <> ${nodeId} and seen_at < now() - ${deadMs} * interval '1 millisecond'`;
  for (const { id } of rows) await forgetNode(db, id, deadMs);
}

async function forgetNode(db: Database, id: string, deadMs: number): Promise<void> {
  await db.tx(async () => {
    const dead = await db.sql`
      delete from nodes where id = ${id} and seen_at < now() - ${deadMs} * interval '1 millisecond'`;
    if (dead.count === 1) await freeAgents(db, id, 'The node was lost.');
  });
}

async function freeAgents(db: Database, nodeId: string, reason: string): Promise<void> {
  await db.sql`update agents set node_id = null where node_id = ${nodeId}`;
  await db.sql`
    update sandboxes set state = 'stopped', reason = ${reason}, stopped_at = now()
    where node_id = ${nodeId} and state in ('starting', 'running', 'stopping')`;
}

/** A node that left: its agents may be taken by others at once. */
export async function leaveNode(db: Database, nodeId: string): Promise<void> {
  await db.tx(async () => {
    await db.sql`delete from nodes where id = ${nodeId}`;
    await freeAgents(db, nodeId, 'The service was stopped.');
  });
}
