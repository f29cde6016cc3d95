import { AsyncLocalStorage } from 'node:async_hooks';
import postgres from 'postgres';

export type Sql = postgres.Sql<{ bigint: bigint }>;

/** The way to the database; every file in this folder takes one. */
export interface Database {
  /** The open transaction of the calling async context, else the pool. Read it anew for each statement. */
  readonly sql: Sql;
  /** Runs in a transaction, or joins the one that the calling context has open. */
  tx<T>(work: () => Promise<T>): Promise<T>;
  /** Runs `effect` once what is written is durable: after the open transaction's commit, or now when none is open. */
  afterCommit(effect: () => void): void;
  /** Runs `work` apart from the calling context's transaction, if any: what it writes is committed by itself. */
  outside<T>(work: () => T): T;
  /** Whether the calling context has a transaction open. */
  readonly inTransaction: boolean;
  close(): Promise<void>;
}

interface OpenTransaction {
  sql: Sql;
  effects: (() => void)[];
}

export interface DatabaseOptions {
  /** Connection options of postgres.js, e.g. `{ host: '/path/of/socket/dir', user, database }`, or a URL. */
  connection: string | postgres.Options<Record<string, never>>;
  pool: number;
}

/** bigint columns are read as bigint, jsonb as parsed values, timestamptz as Date. */
export function openDatabase(options: DatabaseOptions): Database {
  const settings = {
    max: options.pool,
    idle_timeout: 0,
    onnotice: () => {},
    types: { bigint: postgres.BigInt },
  };
  const pool = (typeof options.connection === 'string'
    ? postgres(options.connection, settings)
    : postgres({ ...options.connection, ...settings })) as unknown as Sql;
  const open = new AsyncLocalStorage<OpenTransaction>();

  return {
    get sql() {
      return open.getStore()?.sql ?? pool;
    },
    async tx(work) {
      if (open.getStore()) return work();
      const effects: (() => void)[] = [];
      const result = await pool.begin((tx) => open.run({ sql: tx as unknown as Sql, effects }, work));
      for (const effect of effects) effect();
      return result as Awaited<ReturnType<typeof work>>;
    },
    afterCommit(effect) {
      const transaction = open.getStore();
      if (transaction) transaction.effects.push(effect);
      else effect();
    },
    outside: (work) => open.exit(work),
    get inTransaction() {
      return open.getStore() !== undefined;
    },
    close: () => pool.end({ timeout: 5 }),
  };
}
