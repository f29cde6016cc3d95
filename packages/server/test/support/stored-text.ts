import type { Database } from '../../src/store/database.ts';

/** Every row of every table as text, bytes as hex digits, for tests that look for what must not be stored. */
export async function everythingStored(db: Database): Promise<string> {
  const tables = await db.sql<{ name: string }[]>`
    select quote_ident(table_name) as name from information_schema.tables where table_schema = 'public'`;
  const texts: string[] = [];
  for (const { name } of tables) {
    const rows = await db.sql.unsafe<{ row: string }[]>(`select t::text as row from ${name} t`);
    texts.push(...rows.map(({ row }) => row));
  }
  return texts.join('\n');
}
