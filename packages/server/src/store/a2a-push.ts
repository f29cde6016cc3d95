import type { Sealed } from '../domain/box.ts';
import type { Database, Sql } from './database.ts';

export interface PushConfigRow extends Sealed {
  id: string;
  orgId: string;
  agentId: string;
  conversationId: string;
  runId: string;
  keyId: string;
  configId: string;
  url: string;
  version: '1.0' | '0.3';
  deliveredSeq: number;
  attempts: number;
}

const columns = (sql: Sql) => sql`
  p.id, p.org_id as "orgId", p.agent_id as "agentId", p.conversation_id as "conversationId", p.run_id as "runId",
  p.key_id as "keyId", p.config_id as "configId", p.url, p.version, p.sealed_value as sealed,
  p.wrapped_key as "wrappedKey", p.kek_id as "kekId", p.delivered_seq::float8 as "deliveredSeq", p.attempts`;

export interface PushBounds {
  /** In one claim; an agent and an organisation have so many at once, with those that are under way. */
  most: { ofAgent: number; ofOrg: number; ofAll: number };
  /** Of each push that is under way. */
  underWay: { agentId: string; orgId: string }[];
  leaseMs: number;
}

/** What is never sent: pieces of a text, which comes whole, and what A2A does not show. */
const unsent = [
  'message.delta',
  'thought.delta',
  'tool.started',
  'tool.updated',
  'tool.finished',
  'plan.updated',
  'usage.recorded',
];

export type A2aPushStore = ReturnType<typeof createA2aPushStore>;

export function createA2aPushStore(db: Database) {
  return {
    /** Replaces one of the same id. `deliveredSeq`: what came up to it is not sent. */
    async put(row: Omit<PushConfigRow, 'attempts'>, isOver: boolean): Promise<void> {
      await db.sql`
        insert into a2a_push_configs (id, org_id, agent_id, conversation_id, run_id, key_id, config_id, url, version,
          sealed_value, wrapped_key, kek_id, delivered_seq, ended_at)
        values (${row.id}, ${row.orgId}, ${row.agentId}, ${row.conversationId}, ${row.runId}, ${row.keyId},
          ${row.configId}, ${row.url}, ${row.version}, ${row.sealed}, ${row.wrappedKey}, ${row.kekId},
          ${row.deliveredSeq}::bigint, ${isOver ? db.sql`now()` : null})
        on conflict (run_id, config_id) do update set id = excluded.id, key_id = excluded.key_id, url = excluded.url,
          version = excluded.version, sealed_value = excluded.sealed_value, wrapped_key = excluded.wrapped_key,
          kek_id = excluded.kek_id, attempts = 0, due_at = now(), last_error = null, ended_at = excluded.ended_at`;
    },

    async countOthers(runId: string, configId: string): Promise<number> {
      const [row] = await db.sql<{ count: number }[]>`
        select count(*)::int as count from a2a_push_configs where run_id = ${runId} and config_id <> ${configId}`;
      return row!.count;
    },

    async list(runId: string): Promise<PushConfigRow[]> {
      const { sql } = db;
      return sql<PushConfigRow[]>`
        select ${columns(sql)} from a2a_push_configs p where run_id = ${runId} order by created_at, config_id`;
    },

    async remove(runId: string, configId: string): Promise<void> {
      await db.sql`delete from a2a_push_configs where run_id = ${runId} and config_id = ${configId}`;
    },

    /**
     * Takes some that have something to send, for `leaseMs`: no other replica sends for them meanwhile. First what makes the
     * first of its agent, then the second of each, so that nobody's backlog is in another's way.
     */
    async claim(nodeId: string, { most, underWay, leaseMs }: PushBounds): Promise<PushConfigRow[]> {
      const { sql } = db;
      return sql<PushConfigRow[]>`
        with busy as (
          select * from unnest(${underWay.map((one) => one.agentId)}::uuid[],
            ${underWay.map((one) => one.orgId)}::uuid[]) as b (agent_id, org_id)
        ), due as (
          select o.id, o.due_at, o.org_id, row_number() over (partition by o.agent_id order by o.due_at, o.id)
            + (select count(*) from busy b where b.agent_id = o.agent_id) as of_agent
          from a2a_push_configs o
          where o.ended_at is null and o.due_at <= now() and (o.leased_until is null or o.leased_until < now())
            and exists (select 1 from events e where e.run_id = o.run_id and e.seq > o.delivered_seq
              and e.type <> all (${unsent}::text[]))
            and exists (select 1 from api_keys k where k.id = o.key_id and k.revoked_at is null
              and (k.expires_at is null or k.expires_at > now()))
            and exists (select 1 from conversations c where c.id = o.conversation_id and c.deleted_at is null)
        ), fair as (
          select d.id, d.due_at, d.of_agent, row_number() over (partition by d.org_id order by d.of_agent, d.due_at)
            + (select count(*) from busy b where b.org_id = d.org_id) as of_org
          from due d where d.of_agent <= ${most.ofAgent}
        )
        update a2a_push_configs p set leased_by = ${nodeId},
          leased_until = now() + make_interval(secs => ${leaseMs / 1000})
        where p.id in (
          select o.id from a2a_push_configs o
          where o.ended_at is null and (o.leased_until is null or o.leased_until < now()) and o.id in (
            select id from fair where of_org <= ${most.ofOrg} order by of_agent, due_at
            limit ${most.ofAll - underWay.length})
          for update skip locked)
        returning ${columns(sql)}`;
    },

    /** It was sent up to `seq`; the lease is renewed. False: it was deleted or replaced meanwhile. */
    async advance(id: string, seq: number, leaseMs: number): Promise<boolean> {
      const rows = await db.sql`
        update a2a_push_configs set delivered_seq = ${seq}::bigint, attempts = 0, last_error = null,
          leased_until = now() + make_interval(secs => ${leaseMs / 1000})
        where id = ${id} and ended_at is null returning 1`;
      return rows.length > 0;
    },

    /** What this node held when its last process ended. To be called before it claims anything. */
    async releaseAll(nodeId: string): Promise<void> {
      await db.sql`
        update a2a_push_configs set leased_until = null where leased_by = ${nodeId} and leased_until is not null`;
    },

    async release(id: string): Promise<void> {
      await db.sql`update a2a_push_configs set leased_until = null where id = ${id}`;
    },

    async retry(id: string, error: string, delayMs: number): Promise<void> {
      await db.sql`
        update a2a_push_configs set leased_until = null, attempts = attempts + 1, last_error = ${error},
          due_at = now() + make_interval(secs => ${delayMs / 1000})
        where id = ${id}`;
    },

    async end(id: string, error: string | null): Promise<void> {
      await db.sql`
        update a2a_push_configs set leased_until = null, ended_at = now(), last_error = ${error} where id = ${id}`;
    },

    /** Ends those whose key or conversation is no more, and removes what ended long ago. */
    async purge(days: number): Promise<void> {
      await db.sql`
        update a2a_push_configs p set ended_at = now() where ended_at is null and (
          not exists (select 1 from api_keys k where k.id = p.key_id and k.revoked_at is null
            and (k.expires_at is null or k.expires_at > now()))
          or exists (select 1 from conversations c where c.id = p.conversation_id and c.deleted_at is not null))`;
      await db.sql`delete from a2a_push_configs where ended_at < now() - make_interval(days => ${days})`;
    },
  };
}
