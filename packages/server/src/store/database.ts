import { AsyncLocalStorage } from 'node:async_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import postgres from 'postgres';
import { arrayTypes } from './array-types.ts';
import { checkDriver } from './driver.ts';
import { asUnavailable } from './errors.ts';

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
  /** Work that outlives its transaction must not write on a connection which others use by then. */
  ended: boolean;
}

export interface DatabaseOptions {
  /** Connection options of postgres.js, e.g. `{ host: '/path/of/socket/dir', user, database }`, or a URL. */
  connection: string | postgres.Options<Record<string, never>>;
  pool: number;
  /**
   * After so long without a byte of an answer a connection is given up, with what was asked on it (ANSWER_TIMEOUT), so
   * that no statement waits for a server that hangs. Longer than the longest wait for a lock. Default: never.
   */
  answerSeconds?: number;
  /** Told of an effect that threw; the transaction before it is committed all the same. Default: a process warning. */
  onEffectError?: (error: unknown) => void;
}

/** A server that dies while a connection is being made may leave it without any answer; a request waits that long. */
const CONNECT_SECONDS = 5;
/** Seconds that `close` waits for statements in progress, and after which it gives up on a server that is silent. */
const CLOSE_SECONDS = 5;

/**
 * Before a connection is tried anew. The library's own wait grows to 20 seconds, in which requests hang although the
 * database is back; a pool's few tries a second cost nothing.
 */
function backoffSeconds(failures: number): number {
  return (0.5 + Math.random() / 2) * Math.min(2 ** failures / 100, 0.5);
}

/** bigint columns are read as bigint, jsonb as parsed values, timestamptz as Date. */
export function openDatabase(options: DatabaseOptions): Database {
  checkDriver();
  const settings = {
    max: options.pool,
    idle_timeout: 0,
    onnotice: () => {},
    backoff: backoffSeconds,
    connect_timeout: CONNECT_SECONDS,
    answer_timeout: options.answerSeconds ?? null,
    connection: { application_name: 'berth' },
    fetch_types: false,
    types: { bigint: postgres.BigInt, ...arrayTypes },
  };
  const onEffectError = options.onEffectError ?? ((error) => process.emitWarning(error as Error));
  const pool = (typeof options.connection === 'string'
    ? postgres(options.connection, settings)
    : postgres({ ...options.connection, ...settings })) as unknown as Sql;
  const open = new AsyncLocalStorage<OpenTransaction>();
  function current(): OpenTransaction | undefined {
    const transaction = open.getStore();
    return transaction?.ended ? undefined : transaction;
  }

  async function inNewTransaction<T>(work: () => Promise<T>): Promise<T> {
    const transaction: OpenTransaction = { sql: pool, effects: [], ended: false };
    const result = await pool.begin(async (tx) => {
      transaction.sql = tx as unknown as Sql;
      try {
        return await open.run(transaction, work);
      } finally {
        transaction.ended = true;
      }
    });
    for (const effect of transaction.effects) runEffect(effect);
    return result as T;
  }

  function runEffect(effect: () => void): void {
    try {
      effect();
    } catch (error) {
      // What is committed stays committed: the caller must not take it for a failure.
      onEffectError(error);
    }
  }

  return {
    get sql() {
      return current()?.sql ?? pool;
    },
    async tx(work) {
      if (current()) return work();
      try {
        return await inNewTransaction(work);
      } catch (error) {
        throw asUnavailable(error) ?? error;
      }
    },
    afterCommit(effect) {
      const transaction = current();
      if (transaction) transaction.effects.push(effect);
      else effect();
    },
    outside: (work) => open.exit(work),
    get inTransaction() {
      return current() !== undefined;
    },
    async close() {
      const late = delay((CLOSE_SECONDS + 1) * 1000, undefined, { ref: false });
      await Promise.race([pool.end({ timeout: CLOSE_SECONDS }), late]);
    },
  };
}
