import type { Chunk } from '../domain/ports/volume.ts';
import type { Database, Sql } from './database.ts';

export interface SnapshotRow {
  id: string;
  orgId: string;
  agentId: string;
  name: string;
  bytes: number;
  storedBytes: number;
  createdAt: Date;
}

interface Stored extends Omit<SnapshotRow, 'bytes' | 'storedBytes'> {
  bytes: string;
  storedBytes: string;
}

/** SHA-256 and length of each chunk, one after another. */
const CHUNK_BYTES = 36;

/** Without the chunks: a large snapshot has very many. */
const columns = (sql: Sql) => sql`
  id, org_id as "orgId", agent_id as "agentId", name, bytes::text as bytes, stored_bytes::text as "storedBytes",
  created_at as "createdAt"`;

export type SnapshotStore = ReturnType<typeof createSnapshotRows>;

export function createSnapshotRows(db: Database) {
  return {
    async insert(row: Omit<SnapshotRow, 'createdAt'> & { chunks: Chunk[] }): Promise<SnapshotRow> {
      const { sql } = db;
      const rows = await sql<Stored[]>`
        insert into snapshots (id, org_id, agent_id, name, chunks, bytes, stored_bytes)
        values (${row.id}, ${row.orgId}, ${row.agentId}, ${row.name}, ${pack(row.chunks)}, ${row.bytes}, ${row.storedBytes})
        returning ${columns(sql)}`;
      return read(rows[0]!);
    },

    async get(agentId: string, id: string): Promise<SnapshotRow | null> {
      const { sql } = db;
      const rows = await sql<Stored[]>`
        select ${columns(sql)} from snapshots where id = ${id} and agent_id = ${agentId}`;
      return rows[0] ? read(rows[0]) : null;
    },

    /** In order; null when there is no such snapshot. */
    async chunksOf(agentId: string, id: string): Promise<Chunk[] | null> {
      const rows = await db.sql<{ chunks: Buffer }[]>`
        select chunks from snapshots where id = ${id} and agent_id = ${agentId}`;
      return rows[0] ? unpack(rows[0].chunks) : null;
    },

    async list(agentId: string, at: { before: string | null; limit: number }): Promise<SnapshotRow[]> {
      const { sql } = db;
      const rows = await sql<Stored[]>`
        select ${columns(sql)} from snapshots
        where agent_id = ${agentId} ${at.before === null ? sql`` : sql`and id < ${at.before}`}
        order by id desc limit ${at.limit}`;
      return rows.map(read);
    },

    async countOf(agentId: string): Promise<number> {
      const rows = await db.sql<{ count: number }[]>`
        select count(*)::int as count from snapshots where agent_id = ${agentId}`;
      return rows[0]!.count;
    },

    async remove(agentId: string, id: string): Promise<void> {
      await db.sql`delete from snapshots where id = ${id} and agent_id = ${agentId}`;
    },

    /** The organisation whose they were; null when there were none. */
    async removeAllOf(agentId: string): Promise<string | null> {
      const rows = await db.sql<{ orgId: string }[]>`
        delete from snapshots where agent_id = ${agentId} returning org_id as "orgId"`;
      return rows[0]?.orgId ?? null;
    },

    /** Removes the snapshots of which a chunk is not there, by the hashes of an organisation's chunks. Returns how many. */
    async removeBroken(storedOf: (orgId: string) => Promise<ReadonlySet<string>>): Promise<number> {
      const stored = new Map<string, ReadonlySet<string>>();
      const broken: string[] = [];
      const rows = await db.sql<{ id: string; orgId: string; chunks: Buffer }[]>`
        select id, org_id as "orgId", chunks from snapshots`;
      for (const { id, orgId, chunks } of rows) {
        const there = stored.get(orgId) ?? (await storedOf(orgId));
        stored.set(orgId, there);
        if (unpack(chunks).some(({ hash }) => !there.has(hash))) broken.push(id);
      }
      if (broken.length > 0) await db.sql`delete from snapshots where id = any (${broken}::uuid[])`;
      return broken.length;
    },

    /** Of all chunks that an organisation's snapshots consist of. */
    async hashesOf(orgId: string): Promise<Set<string>> {
      const hashes = new Set<string>();
      const rows = await db.sql<{ chunks: Buffer }[]>`select chunks from snapshots where org_id = ${orgId}`;
      for (const { chunks } of rows) for (const { hash } of unpack(chunks)) hashes.add(hash);
      return hashes;
    },
  };
}

function read(row: Stored): SnapshotRow {
  return { ...row, bytes: Number(row.bytes), storedBytes: Number(row.storedBytes) };
}

function pack(chunks: Chunk[]): Buffer {
  return Buffer.concat(
    chunks.map(({ hash, bytes }) => {
      const length = Buffer.alloc(4);
      length.writeUInt32BE(bytes);
      return Buffer.concat([Buffer.from(hash, 'hex'), length]);
    }),
  );
}

function unpack(packed: Buffer): Chunk[] {
  return Array.from({ length: packed.length / CHUNK_BYTES }, (_, index) => {
    const at = index * CHUNK_BYTES;
    return { hash: packed.toString('hex', at, at + 32), bytes: packed.readUInt32BE(at + 32) };
  });
}
