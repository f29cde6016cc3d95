import type { ConversationEvent, EventBody } from '../domain/events.ts';
import type { Log } from '../domain/log.ts';
import type { Database } from '../store/database.ts';
import {
  appendEvents,
  wasAppended,
  type Claim,
  type LedgerRow,
  type PendingLane,
} from '../store/run-life.ts';
import type { Hub } from './hub.ts';

export interface RunWriter {
  readonly claim: Claim;
  /** Aborts when the lane is another owner's: the turn must end without a trace. */
  readonly lost: AbortSignal;
  /** Written as soon as the write before it is done. */
  append(...events: EventBody[]): void;
  addUsage(rows: LedgerRow[]): void;
  /** Resolves when everything appended so far is durable (or the lane is lost). */
  flushed(): Promise<void>;
  /** Takes back what is not written yet, for the settling transaction; nothing is written after it. */
  close(): Promise<{ events: EventBody[]; ledger: LedgerRow[] }>;
}

/** About 30 s, longer than any lease by default. */
const MAX_WRITES = 20;

interface Writer {
  claim: Claim;
  abort: AbortController;
  events: EventBody[];
  ledger: LedgerRow[];
  isClosed: boolean;
  appendNo: number;
  inFlight: Promise<void> | null;
}

export interface Appender {
  open(claim: Claim): RunWriter;
}

/**
 * Joins what all runs of this process append: one statement is under way at a time, the next one takes everything
 * that came meanwhile. An idle process therefore writes at once, a busy one in large batches.
 */
export function createAppender(
  db: Database,
  hub: Hub,
  ring: (conversationId: string) => void,
  log: Log,
): Appender {
  const dirty = new Set<Writer>();
  let isFlushing = false;

  function schedule(writer: Writer): void {
    if (writer.isClosed) return;
    dirty.add(writer);
    if (isFlushing) return;
    isFlushing = true;
    // What the same tick still brings goes along.
    setImmediate(() => void run());
  }

  async function run(): Promise<void> {
    while (dirty.size > 0) {
      const batch = [...dirty];
      dirty.clear();
      const written = flush(batch);
      for (const writer of batch) writer.inFlight = written;
      await written;
      for (const writer of batch) writer.inFlight = null;
    }
    isFlushing = false;
  }

  async function flush(batch: Writer[]): Promise<void> {
    const lanes = new Map<Writer, PendingLane>();
    const ledger: LedgerRow[] = [];
    for (const writer of batch) {
      ledger.push(...writer.ledger);
      writer.ledger = [];
      if (writer.events.length === 0) continue;
      writer.appendNo += 1;
      const { conversationId, epoch, runId } = writer.claim;
      lanes.set(writer, { conversationId, epoch, runId, appendNo: writer.appendNo, events: writer.events });
      writer.events = [];
    }
    if (lanes.size === 0 && ledger.length === 0) return;
    const at = new Date();
    const { firstSeqs, isRetried } = await write([...lanes.values()], ledger, at);
    for (const [writer, lane] of lanes) {
      const firstSeq = firstSeqs.get(lane.conversationId);
      if (firstSeq !== undefined) publish(hub, ring, lane, lane.events, firstSeq, at);
      else if (isRetried && (await wasAppended(db, lane).catch(() => false))) hub.stale(lane.conversationId);
      else writer.abort.abort();
    }
  }

  /** The database may be away for a while; the events wait, since the lease decides whether they still count. */
  async function write(
    lanes: PendingLane[],
    ledger: LedgerRow[],
    at: Date,
  ): Promise<{ firstSeqs: Map<string, number>; isRetried: boolean }> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return { firstSeqs: await appendEvents(db, lanes, ledger, at), isRetried: attempt > 1 };
      } catch (error) {
        log.error('Events could not be written.', { attempt, error: String(error) });
        if (attempt === MAX_WRITES) return { firstSeqs: new Map(), isRetried: true };
        await new Promise((resolve) => setTimeout(resolve, Math.min(50 * 2 ** attempt, 2_000)));
      }
    }
  }

  return {
    open(claim) {
      const writer: Writer = {
        claim,
        abort: new AbortController(),
        events: [],
        ledger: [],
        isClosed: false,
        appendNo: 0,
        inFlight: null,
      };
      return {
        claim,
        lost: writer.abort.signal,
        append(...events) {
          if (writer.isClosed) return;
          writer.events.push(...events);
          schedule(writer);
        },
        addUsage(rows) {
          writer.ledger.push(...rows);
          schedule(writer);
        },
        async flushed() {
          while (dirty.has(writer) || writer.inFlight) {
            await (writer.inFlight ?? new Promise((resolve) => setImmediate(resolve)));
          }
        },
        async close() {
          dirty.delete(writer);
          writer.isClosed = true;
          if (writer.inFlight) await writer.inFlight;
          const rest = { events: writer.events, ledger: writer.ledger };
          writer.events = [];
          writer.ledger = [];
          return rest;
        },
      };
    },
  };
}

/** Hands committed events on: to followers here at once, to other replicas by the doorbell. */
export function publish(
  hub: Hub,
  ring: (conversationId: string) => void,
  place: { conversationId: string; runId: string },
  events: EventBody[],
  firstSeq: number,
  at: Date,
): void {
  const { conversationId, runId } = place;
  if (hub.isWatched(conversationId)) {
    const committed = events.map((body, index): ConversationEvent => ({
      ...body,
      conversationId,
      runId,
      seq: firstSeq + index,
      at,
    }));
    hub.publish(conversationId, committed);
  }
  ring(conversationId);
}
