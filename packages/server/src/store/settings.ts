import type { Database } from './database.ts';

export type SettingsStore = ReturnType<typeof createSettingsStore>;

/** Small values of the whole installation, by name. */
export function createSettingsStore(db: Database) {
  return {
    async get(name: string): Promise<string | null> {
      const rows = await db.sql<
        { value: string }[]
      >`select value #>> '{}' as value from settings where name = ${name}`;
      return rows[0]?.value ?? null;
    },

    /** The same, unchanged until the end of the transaction. */
    async getShared(name: string): Promise<string | null> {
      const rows = await db.sql<{ value: string }[]>`
        select value #>> '{}' as value from settings where name = ${name} for share`;
      return rows[0]?.value ?? null;
    },

    async set(name: string, value: string): Promise<void> {
      await db.sql`
        insert into settings (name, value) values (${name}, to_jsonb(${value}::text))
        on conflict (name) do update set value = excluded.value`;
    },

    /** Keeps what is there; answers what is there now. */
    async setOnce(name: string, value: string): Promise<string> {
      await db.sql`
        insert into settings (name, value) values (${name}, to_jsonb(${value}::text)) on conflict (name) do nothing`;
      const rows = await db.sql<
        { value: string }[]
      >`select value #>> '{}' as value from settings where name = ${name}`;
      return rows[0]!.value;
    },

    /** One process of the installation at a time, until the end of the transaction. */
    async lockInstallation(): Promise<void> {
      await db.sql`select pg_advisory_xact_lock(hashtextextended('berth:installation', 0))`;
    },
  };
}
