import { newId } from '../domain/ids.ts';
import { limits } from '../domain/limits.ts';
import type { Log } from '../domain/log.ts';
import type { EgressRecorder, EgressRefusal } from '../domain/ports/egress.ts';
import type { Database } from '../store/database.ts';
import { addRefusals, addTraffic, type RefusalRow, type TrafficRow } from '../store/egress.ts';
import { recordUsage } from '../store/lanes.ts';

export interface EgressRecords extends EgressRecorder {
  /** Writes what is waiting. */
  flush(): Promise<void>;
  close(): Promise<void>;
}

/** Refusals are looked for by people who wait; bytes are not. */
const refusalsMs = 1_000;
const trafficMs = 15_000;
/** Kinds and hosts of an agent that wait to be written; what is beyond is summed under one name. */
const maxWaiting = 200;
const beyond = '(others)';

interface Traffic extends TrafficRow {
  orgId: string;
}

/** Keeps what the egress proxies tell in memory, joined by kind, and writes it in batches: a loop inside costs nothing. */
export function createEgressRecords(deps: { db: Database; log: Log; now?: () => Date }): EgressRecords {
  const { db, log, now = () => new Date() } = deps;
  const refusals = new Waiting<RefusalRow>();
  const traffic = new Waiting<Traffic>();
  const hosts = new HostsOfDay();
  const timers = new Map<string, NodeJS.Timeout>();
  let writing: Promise<void> = Promise.resolve();

  function soon(name: string, delayMs: number, write: () => Promise<void>): void {
    if (timers.has(name)) return;
    const timer = setTimeout(() => {
      timers.delete(name);
      writing = writing.then(write).catch((error: unknown) => {
        log.warn('What went out of sandboxes could not be recorded.', { error: String(error) });
      });
    }, delayMs);
    timers.set(name, timer.unref());
  }

  async function writeRefusals(): Promise<void> {
    const rows = refusals.take();
    if (rows.length > 0) await db.outside(() => addRefusals(db, rows, limits.egressRefusals));
  }

  async function writeTraffic(): Promise<void> {
    const rows = traffic.take();
    if (rows.length === 0) return;
    const at = now().toISOString();
    await db.outside(() =>
      db.tx(async () => {
        await addTraffic(db, at.slice(0, 10), limits.egressTrafficDays, rows);
        await recordUsage(db, ledgerRows(rows, at));
      }),
    );
  }

  function add(refusal: EgressRefusal): void {
    const at = now();
    const { agentId, port, reason, message } = refusal;
    const host = printable(refusal.host);
    const row = refusals.add(agentId, `${host} ${port} ${reason}`, (isBeyond) => ({
      ...{ id: newId(), agentId, reason, message, firstAt: at, lastAt: at, count: 0 },
      ...(isBeyond ? { host: beyond, port: 0 } : { host, port }),
    }));
    row.count += 1;
    row.lastAt = at;
    soon('refusals', refusalsMs, writeRefusals);
  }

  return {
    refused: add,
    passed({ orgId, agentId, host: given, sentBytes, receivedBytes, connections }) {
      const host = hosts.counted(agentId, given, now());
      const row = traffic.add(agentId, host, (isBeyond) => ({
        ...{ orgId, agentId, sentBytes: 0, receivedBytes: 0, connections: 0 },
        host: isBeyond ? beyond : host,
      }));
      row.sentBytes += sentBytes;
      row.receivedBytes += receivedBytes;
      row.connections += connections;
      soon('traffic', trafficMs, writeTraffic);
    },
    async flush() {
      writing = writing.then(writeRefusals).then(writeTraffic);
      await writing;
    },
    async close() {
      for (const timer of timers.values()) clearTimeout(timer);
      timers.clear();
      await writing.then(writeRefusals).then(writeTraffic);
    },
  };
}

/** A program that may reach a whole zone can make up names without end; each would be a row. */
class HostsOfDay {
  #day = '';
  #hosts = new Map<string, Set<string>>();

  counted(agentId: string, host: string, at: Date): string {
    const day = at.toISOString().slice(0, 10);
    if (day !== this.#day) this.#hosts.clear();
    this.#day = day;
    let own = this.#hosts.get(agentId);
    if (!own) this.#hosts.set(agentId, (own = new Set()));
    if (own.has(host)) return host;
    if (own.size >= limits.egressHostsPerDay) return beyond;
    own.add(host);
    return host;
  }
}

/** Rows by agent and kind, so many for each agent. */
class Waiting<Row> {
  #rows = new Map<string, Map<string, Row>>();

  add(agentId: string, kind: string, make: (isBeyond: boolean) => Row): Row {
    let own = this.#rows.get(agentId);
    if (!own) this.#rows.set(agentId, (own = new Map()));
    const isBeyond = own.size >= maxWaiting && !own.has(kind);
    const key = isBeyond ? beyond : kind;
    let row = own.get(key);
    if (row === undefined) own.set(key, (row = make(isBeyond)));
    return row;
  }

  take(): Row[] {
    const rows = [...this.#rows.values()].flatMap((own) => [...own.values()]);
    this.#rows.clear();
    return rows;
  }
}

/** One row an agent: the organisation's bill has a line for the bytes, the hosts are in a table of their own. */
function ledgerRows(rows: Traffic[], at: string) {
  const sums = new Map<string, { orgId: string; bytes: number }>();
  for (const { orgId, agentId, sentBytes, receivedBytes } of rows) {
    const sum = sums.get(agentId) ?? { orgId, bytes: 0 };
    sum.bytes += sentBytes + receivedBytes;
    sums.set(agentId, sum);
  }
  return [...sums]
    .filter(([, { bytes }]) => bytes > 0)
    .map(([agentId, { orgId, bytes }]) => ({
      id: newId(),
      org_id: orgId,
      agent_id: agentId,
      run_id: null,
      key_id: null,
      meter: 'egress.bytes',
      model: null,
      quantity: bytes,
      unit_price: '0',
      price_version: 'free',
      cost_micros: '0',
      at,
      reservation_id: null,
    }));
}

/** What a program asked for is shown to people. */
function printable(host: string): string {
  return host.slice(0, 255).replace(/[^\x21-\x7e]/g, '?');
}
