import type { Sealed } from '../domain/box.ts';
import type { Database } from './database.ts';

export interface SigningKeyRow extends Sealed {
  /** The key's thumbprint (RFC 7638), its `kid`. */
  id: string;
  publicJwk: Record<string, unknown>;
}

export type A2aSigningStore = ReturnType<typeof createA2aSigningStore>;

/** Keys by which agent cards are signed, newest first. */
export function createA2aSigningStore(db: Database) {
  return {
    async list(): Promise<SigningKeyRow[]> {
      return db.sql<SigningKeyRow[]>`
        select id, public_jwk as "publicJwk", sealed_value as sealed, wrapped_key as "wrappedKey", kek_id as "kekId"
        from a2a_signing_keys order by created_at desc, id`;
    },

    async insert(row: SigningKeyRow): Promise<void> {
      await db.sql`
        insert into a2a_signing_keys (id, public_jwk, sealed_value, wrapped_key, kek_id)
        values (${row.id}, ${JSON.stringify(row.publicJwk)}::text::jsonb, ${row.sealed}, ${row.wrappedKey}, ${row.kekId})`;
    },

    /** One process of the installation at a time, until the end of the transaction. */
    async lock(): Promise<void> {
      await db.sql`select pg_advisory_xact_lock(hashtextextended('berth:a2a-signing-keys', 0))`;
    },
  };
}
