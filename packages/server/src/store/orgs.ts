import type { Database } from './database.ts';

export interface Org {
  id: string;
  name: string;
}

export type OrgStore = ReturnType<typeof createOrgStore>;

export function createOrgStore(db: Database) {
  return {
    async insert(org: Org): Promise<void> {
      await db.sql`insert into orgs (id, name) values (${org.id}, ${org.name})`;
    },

    async count(): Promise<number> {
      const rows = await db.sql<{ count: number }[]>`select count(*)::int as count from orgs`;
      return rows[0]?.count ?? 0;
    },

    /** The organisation that the first start made; null before it. */
    async first(): Promise<Org | null> {
      const rows = await db.sql<Org[]>`select id, name from orgs order by id limit 1`;
      return rows[0] ?? null;
    },
  };
}
