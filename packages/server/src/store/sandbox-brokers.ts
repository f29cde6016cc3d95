import type { Sealed } from '../domain/box.ts';
import type { Database } from './database.ts';

export type SandboxBrokerStore = ReturnType<typeof createSandboxBrokerStore>;

/** What stands for the brokered secrets in a sandbox, sealed, so that a service that was restarted goes on with it. */
export function createSandboxBrokerStore(db: Database) {
  return {
    /** Rows of the agent's earlier sandboxes go: one whose end was not seen would otherwise leave its own for ever. */
    async put(sandboxId: string, agentId: string, { sealed, wrappedKey, kekId }: Sealed): Promise<void> {
      await db.sql`
        with ended as (
          delete from sandbox_brokers b using sandboxes s
          where b.agent_id = ${agentId} and s.id = b.sandbox_id and s.state in ('stopped', 'failed'))
        insert into sandbox_brokers (sandbox_id, agent_id, sealed_value, wrapped_key, kek_id)
        values (${sandboxId}, ${agentId}, ${sealed}, ${wrappedKey}, ${kekId})`;
    },

    async get(sandboxId: string): Promise<Sealed | null> {
      const rows = await db.sql<Sealed[]>`
        select sealed_value as sealed, wrapped_key as "wrappedKey", kek_id as "kekId"
        from sandbox_brokers where sandbox_id = ${sandboxId}`;
      return rows[0] ?? null;
    },

    async remove(sandboxId: string): Promise<void> {
      await db.sql`delete from sandbox_brokers where sandbox_id = ${sandboxId}`;
    },
  };
}
