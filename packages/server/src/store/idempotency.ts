import type { Sealed } from '../domain/box.ts';
import { limits } from '../domain/limits.ts';
import type { Database } from './database.ts';

export interface KeptRequest {
  requestHash: string;
  /** Null: still being worked on, or a send, whose answer is that of its run. */
  answer: KeptAnswer | null;
  /** Of a request still being worked on: nobody has renewed it for longer than `leaseSeconds`. */
  abandoned: boolean;
  /** The answer was forgotten with the secret in it, or that secret has expired. */
  withdrawn: boolean;
}

export interface KeptAnswer extends Sealed {
  status: number;
  secretOf: string | null;
  headers: Record<string, string>;
}

interface Row extends Sealed {
  requestHash: string;
  runId: string | null;
  status: number | null;
  headers: Record<string, string>;
  secretOf: string | null;
  abandoned: boolean;
  withdrawn: boolean;
}

export type IdempotencyStore = ReturnType<typeof createIdempotencyStore>;

/** First answers by the caller's key and Idempotency-Key. Rows older than a day count as absent everywhere. */
export function createIdempotencyStore(db: Database, leaseSeconds: number) {
  return {
    /** Until the end of the open transaction; false when another transaction has it. */
    async tryLock(keyId: string, key: string): Promise<boolean> {
      const rows = await db.sql<{ locked: boolean }[]>`
        select pg_try_advisory_xact_lock(hashtextextended(${`idempotency:${keyId}:${key}`}, 0)) as locked`;
      return rows[0]!.locked;
    },

    async find(keyId: string, key: string): Promise<KeptRequest | null> {
      const rows = await db.sql<Row[]>`
        select request_hash as "requestHash", run_id as "runId", status, headers, sealed_body as sealed,
          wrapped_key as "wrappedKey", kek_id as "kekId", secret_of as "secretOf",
          status is not null and (sealed_body is null or (secret_of is not null
            and not exists (select from api_keys where id = secret_of and revoked_at is null
              and (expires_at is null or expires_at > now()))
            and not exists (select from webhook_endpoint_secrets where endpoint_id = secret_of)
            and not exists (select from channel_credentials where channel_id = secret_of))) as withdrawn,
          created_at < now() - make_interval(secs => ${leaseSeconds}) as abandoned
        from idempotency
        where key_id = ${keyId} and idempotency_key = ${key}
          and created_at > now() - make_interval(hours => ${limits.idempotencyHours})`;
      const [row] = rows;
      if (!row) return null;
      const { requestHash, runId, status, withdrawn, abandoned, ...kept } = row;
      const answer = status === null || withdrawn ? null : { ...kept, status };
      return { requestHash, answer, withdrawn, abandoned: status === null && runId === null && abandoned };
    },

    /** Marks the key as taken, to be kept alive by `renew`. Call it under the lock. */
    async take(keyId: string, key: string, requestHash: string): Promise<void> {
      await db.sql`
        insert into idempotency (key_id, idempotency_key, request_hash)
        values (${keyId}, ${key}, ${requestHash})
        on conflict (key_id, idempotency_key) do update set request_hash = excluded.request_hash,
          run_id = null, status = null, headers = null, sealed_body = null, wrapped_key = null, kek_id = null,
          secret_of = null,
          created_at = now()`;
    },

    async renew(keyId: string, key: string): Promise<void> {
      await db.sql`
        update idempotency set created_at = now()
        where key_id = ${keyId} and idempotency_key = ${key} and status is null and run_id is null`;
    },

    /** As if nobody had renewed it for long enough: at once nobody works on it any more. */
    async abandon(keyId: string, key: string): Promise<void> {
      await db.sql`
        update idempotency set created_at = now() - make_interval(secs => ${leaseSeconds + 1})
        where key_id = ${keyId} and idempotency_key = ${key} and status is null and run_id is null`;
    },

    async release(keyId: string, key: string): Promise<void> {
      await db.sql`
        delete from idempotency
        where key_id = ${keyId} and idempotency_key = ${key} and status is null and run_id is null`;
    },

    async keep(keyId: string, key: string, requestHash: string, answer: KeptAnswer): Promise<void> {
      const { sql } = db;
      const headers = sql.json(answer.headers);
      await sql`
        insert into idempotency
          (key_id, idempotency_key, request_hash, status, headers, sealed_body, wrapped_key, kek_id, secret_of)
        values (${keyId}, ${key}, ${requestHash}, ${answer.status}, ${headers}, ${answer.sealed},
          ${answer.wrappedKey}, ${answer.kekId}, ${answer.secretOf})
        on conflict (key_id, idempotency_key) do update set request_hash = excluded.request_hash, run_id = null,
          status = excluded.status, headers = excluded.headers, sealed_body = excluded.sealed_body,
          wrapped_key = excluded.wrapped_key, kek_id = excluded.kek_id, secret_of = excluded.secret_of,
          created_at = now()`;
    },

    /** Removes what is older than a day; returns how many rows that were. */
    async purge(): Promise<number> {
      const result = await db.sql`
        delete from idempotency where created_at < now() - make_interval(hours => ${limits.idempotencyHours})`;
      return result.count;
    },
  };
}
