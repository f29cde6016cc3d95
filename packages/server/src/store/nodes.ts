import type { Database } from './database.ts';

/** Says that a node lives, and how many others do. */
export async function touchNode(db: Database, nodeId: string, aliveMs: number): Promise<number> {
  const [row] = await db.sql<{ others: number }[]>`
    with me as (
      insert into nodes (id, started_at, seen_at) values (${nodeId}, now(), now())
      on conflict (id) do update set seen_at = now()
    )
    select count(*)::integer as others from nodes
    where id <> ${nodeId} and seen_at > now() - ${aliveMs} * interval '1 millisecond'`;
  return row!.others;
}

/** A node that left: its agents may be taken by others at once. */
export async function leaveNode(db: Database, nodeId: string): Promise<void> {
  await db.sql`delete from nodes where id = ${nodeId}`;
  await db.sql`update agents set node_id = null where node_id = ${nodeId}`;
}
