import type { Database } from './database.ts';

/** A row whose data key is wrapped by a key-encryption key; `a` and `b` are what its context is made of. */
export interface WrappedRow {
  table:
    | 'secrets'
    | 'earlier_secret_values'
    | 'sandbox_brokers'
    | 'idempotency'
    | 'a2a_push_configs'
    | 'a2a_signing_keys'
    | 'channel_credentials'
    | 'webhook_endpoint_secrets';
  a: string;
  b: string;
  /** Where a context names several rows. */
  id?: string;
  wrappedKey: Buffer;
  kekId: string;
}

export type SealedRowStore = ReturnType<typeof createSealedRowStore>;

/** All that is sealed, for the rotation of the key-encryption key. Only wrapped keys are touched, never values. */
export function createSealedRowStore(db: Database) {
  return {
    /** By which keys the secrets of agents and the credentials of channels are sealed. */
    async secretKeyIds(): Promise<{ kekId: string; count: number }[]> {
      return db.sql<{ kekId: string; count: number }[]>`
        select kek_id as "kekId", count(*)::int as count
        from (select kek_id from secrets union all select kek_id from channel_credentials
          union all select kek_id from webhook_endpoint_secrets) sealed group by kek_id`;
    },

    /** Some rows under one of these keys, held until the end of the transaction. */
    async someUnder(kekIds: string[], limit: number): Promise<WrappedRow[]> {
      const secrets = await db.sql<WrappedRow[]>`
        select 'secrets' as table, agent_id as a, key as b, wrapped_key as "wrappedKey", kek_id as "kekId"
        from secrets where kek_id = any(${kekIds}::text[]) limit ${limit} for update`;
      if (secrets.length > 0) return secrets;
      const earlier = await db.sql<WrappedRow[]>`
        select 'earlier_secret_values' as table, agent_id as a, key as b, id, wrapped_key as "wrappedKey",
               kek_id as "kekId"
        from earlier_secret_values where kek_id = any(${kekIds}::text[]) limit ${limit} for update`;
      if (earlier.length > 0) return earlier;
      const brokers = await db.sql<WrappedRow[]>`
        select 'sandbox_brokers' as table, sandbox_id::text as a, '' as b, wrapped_key as "wrappedKey",
               kek_id as "kekId"
        from sandbox_brokers where kek_id = any(${kekIds}::text[]) limit ${limit} for update`;
      if (brokers.length > 0) return brokers;
      const pushes = await db.sql<WrappedRow[]>`
        select 'a2a_push_configs' as table, id::text as a, '' as b, wrapped_key as "wrappedKey", kek_id as "kekId"
        from a2a_push_configs where kek_id = any(${kekIds}::text[]) limit ${limit} for update`;
      if (pushes.length > 0) return pushes;
      const signers = await db.sql<WrappedRow[]>`
        select 'a2a_signing_keys' as table, id as a, '' as b, wrapped_key as "wrappedKey", kek_id as "kekId"
        from a2a_signing_keys where kek_id = any(${kekIds}::text[]) limit ${limit} for update`;
      if (signers.length > 0) return signers;
      const credentials = await db.sql<WrappedRow[]>`
        select 'channel_credentials' as table, channel_id::text as a, name as b, wrapped_key as "wrappedKey",
               kek_id as "kekId"
        from channel_credentials where kek_id = any(${kekIds}::text[]) limit ${limit} for update`;
      if (credentials.length > 0) return credentials;
      const signing = await db.sql<WrappedRow[]>`
        select 'webhook_endpoint_secrets' as table, endpoint_id::text as a, name as b, wrapped_key as "wrappedKey",
               kek_id as "kekId"
        from webhook_endpoint_secrets where kek_id = any(${kekIds}::text[]) limit ${limit} for update`;
      if (signing.length > 0) return signing;
      return db.sql<WrappedRow[]>`
        select 'idempotency' as table, key_id as a, idempotency_key as b, wrapped_key as "wrappedKey",
               kek_id as "kekId"
        from idempotency where kek_id = any(${kekIds}::text[]) limit ${limit} for update`;
    },

    async rewrap({ table, a, b, id = '', wrappedKey, kekId }: WrappedRow): Promise<void> {
      const { sql } = db;
      const wrapped = sql`wrapped_key = ${wrappedKey}, kek_id = ${kekId}`;
      switch (table) {
        case 'secrets':
          await sql`update secrets set ${wrapped} where agent_id = ${a} and key = ${b}`;
          return;
        case 'earlier_secret_values':
          await sql`update earlier_secret_values set ${wrapped} where id = ${id}`;
          return;
        case 'sandbox_brokers':
          await sql`update sandbox_brokers set ${wrapped} where sandbox_id = ${a}`;
          return;
        case 'a2a_push_configs':
          await sql`update a2a_push_configs set ${wrapped} where id = ${a}`;
          return;
        case 'a2a_signing_keys':
          await sql`update a2a_signing_keys set ${wrapped} where id = ${a}`;
          return;
        case 'channel_credentials':
          await sql`update channel_credentials set ${wrapped} where channel_id = ${a} and name = ${b}`;
          return;
        case 'webhook_endpoint_secrets':
          await sql`update webhook_endpoint_secrets set ${wrapped} where endpoint_id = ${a} and name = ${b}`;
          return;
        case 'idempotency':
          await sql`update idempotency set ${wrapped} where key_id = ${a} and idempotency_key = ${b}`;
      }
    },

    /** Waits for whoever is writing sealed rows, and holds back new ones until the end of the transaction. */
    async holdWriters(): Promise<void> {
      await db.sql`lock table secrets, earlier_secret_values, sandbox_brokers, channel_credentials, webhook_endpoint_secrets, a2a_push_configs, a2a_signing_keys, idempotency
        in share row exclusive mode`;
    },
  };
}
