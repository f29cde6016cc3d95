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

    /** `hasStarted`: the sandbox runs already, with what it was started with, if with anything. */
    async get(sandboxId: string): Promise<{ hasStarted: boolean; row: Sealed | null }> {
      const rows = await db.sql<({ hasStarted: boolean; sealed: Buffer | null } & Sealed)[]>`
        select s.state <> 'starting' as "hasStarted", b.sealed_value as sealed, b.wrapped_key as "wrappedKey",
          b.kek_id as "kekId"
        from sandboxes s left join sandbox_brokers b on b.sandbox_id = s.id where s.id = ${sandboxId}`;
      const [found] = rows;
      return { hasStarted: found?.hasStarted ?? false, row: found?.sealed ? found : null };
    },
  };
}
