import type { Database } from './database.ts';

export interface OthersUsage {
  keyId: string;
  /** Which exchange window, counted from 1970. */
  window: number;
  /** Requests that the other nodes let through in it. */
  used: number;
  /** Seconds since the window began. */
  ageSeconds: number;
}

export type RateUsageStore = ReturnType<typeof createRateUsageStore>;

/** What each node let through, for the others. Windows are of the database's clock, so that all nodes agree on them. */
export function createRateUsageStore(db: Database, windowSeconds = 60) {
  return {
    /** Whether another node was there lately. */
    async hasOtherNodes(nodeId: string): Promise<boolean> {
      const rows = await db.sql<{ found: boolean }[]>`
        select exists (
          select 1 from nodes where id <> ${nodeId} and seen_at > now() - interval '30 seconds'
        ) as found`;
      return rows[0]!.found;
    },

    /** Adds what this node used, and reads what the others used of the watched keys, in one statement. */
    async exchange(nodeId: string, used: Map<string, number>, watched: string[]): Promise<OthersUsage[]> {
      const keyIds = [...used.keys()];
      const counts = [...used.values()];
      return db.sql<OthersUsage[]>`
        with bounds as (
          select to_timestamp(floor(extract(epoch from now()) / ${windowSeconds}::int) * ${windowSeconds}::int) as current
        ), mine as (
          insert into rate_usage (key_id, window_start, node_id, used)
          select added.key_id, bounds.current, ${nodeId}::uuid, added.used
          from unnest(${keyIds}::uuid[], ${counts}::int[]) as added (key_id, used), bounds
          on conflict (key_id, window_start, node_id) do update set used = rate_usage.used + excluded.used
        )
        select key_id as "keyId", (extract(epoch from window_start) / ${windowSeconds}::int)::int as window,
          sum(used)::int as used, extract(epoch from now() - window_start)::float8 as "ageSeconds"
        from rate_usage, bounds
        where key_id = any(${watched}::uuid[]) and node_id <> ${nodeId}
          and window_start >= bounds.current - make_interval(secs => ${windowSeconds}::int)
        group by key_id, window_start
        order by window_start`;
    },

    async purge(): Promise<void> {
      await db.sql`delete from rate_usage where window_start < now() - make_interval(secs => ${windowSeconds * 5}::int)`;
    },
  };
}
