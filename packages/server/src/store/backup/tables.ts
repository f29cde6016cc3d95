import type { Sql } from '../database.ts';

export interface TableShape {
  name: string;
  columns: string[];
  identityColumns: string[];
}

/** Not data: a restore makes it anew by running the migrations. */
const LEDGER = 'schema_migrations';

/** The durable tables of the schema, each after those that it refers to. */
export async function readTables(sql: Sql): Promise<TableShape[]> {
  const tables = await sql<{ name: string; columns: string[]; identities: string[] }[]>`
    select c.relname as name,
      array_agg(a.attname::text order by a.attnum) as columns,
      coalesce(array_agg(a.attname::text order by a.attnum) filter (where a.attidentity <> ''), '{}') as identities
    from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
    where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p') and c.relpersistence = 'p'
      and not c.relispartition and c.relname <> ${LEDGER}
    group by c.relname order by c.relname`;
  const references = await sql<{ from: string; to: string }[]>`
    select distinct f.relname as from, t.relname as to
    from pg_constraint k join pg_class f on f.oid = k.conrelid join pg_class t on t.oid = k.confrelid
    where k.contype = 'f' and k.connamespace = current_schema()::regnamespace and f.oid <> t.oid`;

  const ordered = inOrder(
    tables.map((table) => table.name),
    references,
  );
  const byName = new Map(tables.map((table) => [table.name, table]));
  return ordered.map((name) => {
    const table = byName.get(name)!;
    return { name, columns: table.columns, identityColumns: table.identities };
  });
}

function inOrder(names: string[], references: { from: string; to: string }[]): string[] {
  const left = new Set(names);
  const ordered: string[] = [];
  while (left.size > 0) {
    const free = [...left].filter(
      (name) => !references.some(({ from, to }) => from === name && left.has(to)),
    );
    if (free.length === 0)
      throw new Error(`Tables refer to each other in a circle: ${[...left].join(', ')}.`);
    for (const name of free) left.delete(name);
    ordered.push(...free);
  }
  return ordered;
}

/** Names of tables of the schema that hold a row. */
export async function tablesWithRows(sql: Sql): Promise<string[]> {
  const tables = await sql<{ name: string }[]>`
    select relname as name from pg_class
    where relnamespace = current_schema()::regnamespace and relkind in ('r', 'p') and relname <> ${LEDGER}
    order by relname`;
  const filled: string[] = [];
  for (const { name } of tables) {
    const rows = await sql`select 1 from ${sql(name)} limit 1`;
    if (rows.length > 0) filled.push(name);
  }
  return filled;
}

/** Drops every table and function of the schema, but nothing that an extension brought. */
export async function dropEverything(sql: Sql): Promise<void> {
  await sql`
    do $$
    declare item record;
    begin
      for item in select c.oid::regclass as name from pg_class c
        where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p')
          and not exists (select 1 from pg_depend d where d.objid = c.oid and d.deptype = 'e') loop
        execute format('drop table if exists %s cascade', item.name);
      end loop;
      for item in select p.oid::regprocedure as name from pg_proc p
        where p.pronamespace = current_schema()::regnamespace
          and not exists (select 1 from pg_depend d where d.objid = p.oid and d.deptype = 'e') loop
        execute format('drop routine if exists %s cascade', item.name);
      end loop;
    end $$`;
}
