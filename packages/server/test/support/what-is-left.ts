import { execFileSync } from 'node:child_process';
import { openServiceDatabase } from './scenario-world.ts';
import type { Service } from './service.ts';

/** What the service, which must still run, has not ended: its lanes, runs and their events, and the host's processes. As JSON. */
export async function whatIsLeft(service: Service): Promise<string> {
  const db = openServiceDatabase(service);
  try {
    const lanes = await db.sql<{ conversation_id: string }[]>`
      select * from lanes where state <> 'idle' or pending > 0`;
    const ids = lanes.map((lane) => lane.conversation_id);
    const left = {
      lanes,
      nodes: await db.sql`select *, now() from nodes`,
      runs: await db.sql`select * from runs where conversation_id = any(${ids}) order by accept_seq desc limit 100`,
      sandboxes: await db.sql`select * from sandboxes`,
      events:
        await db.sql`select * from events where conversation_id = any(${ids}) order by seq desc limit 500`,
      processes: execFileSync('ps', ['-eo', 'pid,ppid,stat,lstart,wchan:30,args'], {
        encoding: 'utf8',
      }).split('\n'),
    };
    return JSON.stringify(left, (_, value) => (typeof value === 'bigint' ? String(value) : value), 1);
  } finally {
    await db.close();
  }
}
