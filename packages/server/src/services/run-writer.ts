import { setTimeout as delay } from 'node:timers/promises';
import type { EventBody } from '../domain/events.ts';
import type { Log } from '../domain/log.ts';
import type { Question } from '../domain/questions.ts';
import type { Database } from '../store/database.ts';
import { wasWritten, writeRuns } from '../store/lanes.ts';
import type { Claim, LaneWrite, LaneWritten, LedgerRow } from '../store/lanes.ts';
import { joinRows } from './join-rows.ts';
import type { Publish } from './publish.ts';

export interface WriterEnd {
  status: 'completed' | 'failed' | 'cancelled';
  error: LaneWrite['error'];
  message: LaneWrite['message'];
}

/** How the owner of a run writes: everything goes through one queue, so the order of calls is the order in the log. */
export interface RunWriter {
  readonly claim: Claim;
  /** Aborts when the lane is another owner's: the turn must end without a trace. */
  readonly lost: AbortSignal;
  /** Written as soon as the write before it is done. What one tick appends is one write. */
  append(...events: EventBody[]): void;
  /** With the next write of it: the run is on record up to this position of its harness's output. */
  told(position: number): void;
  /** As `append`, of what the run asks and waits for from now on: the question is written with them. */
  ask(question: Question, ...events: EventBody[]): void;
  /**
   * Usage, with its events if the run is not over. `isUrgent`: at once; else with what is written next, soon. `isJoined`:
   * rows of one kind that wait for the same write become one.
   */
  addUsage(rows: LedgerRow[], events: EventBody[], how: { isUrgent: boolean; isJoined: boolean }): void;
  /** The last write. Resolves with what was written, or null when the lane is another owner's. */
  settle(end: WriterEnd, events: EventBody[]): Promise<{ at: Date; isReady: boolean } | null>;
  /** Resolves when everything appended so far is durable, or the lane is lost. */
  flushed(): Promise<void>;
}

interface Settled {
  at: Date;
  written: LaneWritten | null;
}

interface Writer {
  claim: Claim;
  abort: AbortController;
  writeNo: number;
  told: number | null;
  events: EventBody[];
  asked: Question[];
  ledger: LedgerRow[];
  status: LaneWrite['status'];
  end: WriterEnd | null;
  isClosed: boolean;
  onSettled: ((settled: Settled) => void) | null;
  waiters: (() => void)[];
  /** Runs while something waits for the next write. */
  soon: NodeJS.Timeout | null;
}

interface Share {
  writer: Writer;
  lane: LaneWrite;
  /** It settles the run; what was asked for while another share is under way is not in that one. */
  isLast: boolean;
}

/** A model's usage comes just before the end of its turn, or before a tool call: one write less for most messages. */
const SOON_MS = 50;
/** Far longer than a lease: by then the run is somebody else's. */
const MAX_TRIES = 30;
/** With so many runs in one write the process is busy: the next write waits for more that will share its statement. */
const BUSY_RUNS = 4;
const PACE_MS = 5;

/**
 * Joins what all runs of this process write: one statement is under way at a time, the next one takes everything that
 * came meanwhile. An idle process therefore writes at once, a busy one in large batches with one commit each, some milliseconds
 * apart.
 */
export function createRunWriters(
  db: Database,
  publish: Publish,
  log: Log,
): { open(claim: Claim): RunWriter } {
  const dirty = new Set<Writer>();
  let isRunning = false;

  function schedule(writer: Writer): void {
    if (writer.soon) clearTimeout(writer.soon);
    writer.soon = null;
    if (writer.abort.signal.aborted) {
      giveUp(writer);
      // The money was spent whoever owns the run now.
      if (writer.ledger.length === 0) return;
    }
    dirty.add(writer);
    if (isRunning) return;
    isRunning = true;
    // What the same tick still brings goes along.
    setImmediate(() => void run());
  }

  async function run(): Promise<void> {
    while (dirty.size > 0) {
      const batch = [...dirty];
      dirty.clear();
      await flush(batch);
      for (const writer of batch) if (!dirty.has(writer)) wake(writer);
      // A statement costs as much as the rows of some runs. Of a process that is not busy nothing waits.
      if (batch.length >= BUSY_RUNS && dirty.size > 0) await delay(PACE_MS);
    }
    isRunning = false;
  }

  async function flush(batch: Writer[]): Promise<void> {
    const shares = batch.map(takeShare).filter((share) => share !== null);
    const ledger = batch.flatMap((writer) => writer.ledger.splice(0));
    if (shares.length > 0 || ledger.length > 0) await write(shares, ledger);
  }

  /** Never rejects: a share that cannot be written ends its run's ownership, and the run is tried again from the log. */
  async function write(shares: Share[], ledger: LedgerRow[]): Promise<void> {
    const at = new Date();
    const lanes = shares.map((share) => share.lane);
    for (let tries = 1; ; tries += 1) {
      try {
        const written = await db.outside(() => writeRuns(db, lanes, ledger, at));
        for (const share of shares)
          await conclude(share, written.get(share.lane.conversationId), at, tries > 1);
        return;
      } catch (error) {
        const isRefused = isRefusal(error);
        log.error('Events could not be written.', { tries, runs: shares.length, error: String(error) });
        if (isRefused && shares.length + (ledger.length > 0 ? 1 : 0) > 1) {
          // One bad row must not take the others with it.
          for (const share of shares) await write([share], []);
          if (ledger.length > 0) await write([], ledger);
          return;
        }
        if (isRefused || isClosing(error) || tries === MAX_TRIES)
          return shares.forEach(({ writer }) => lose(writer));
        await pause(tries);
      }
    }
  }

  /** A connection that is lost again says nothing of the write before it: what was written is not to be done twice. */
  async function isWritten(lane: LaneWrite): Promise<boolean> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await db.outside(() => wasWritten(db, lane));
      } catch (error) {
        if (isClosing(error) || tries === MAX_TRIES) return false;
        await pause(tries);
      }
    }
  }

  async function conclude(
    { writer, lane, isLast }: Share,
    written: LaneWritten | undefined,
    at: Date,
    isRetried: boolean,
  ): Promise<void> {
    if (written) {
      publish(lane, lane.events, written.firstSeq, at);
    } else {
      // The answer to an earlier try may have been lost with its connection: then the log has it all.
      const isThere = isRetried && (await isWritten(lane));
      if (isRetried) publish.stale(lane.conversationId);
      if (!isThere) return lose(writer);
    }
    if (isLast) writer.onSettled?.({ at, written: written ?? { firstSeq: 0, isReady: true } });
  }

  function lose(writer: Writer): void {
    writer.abort.abort();
    giveUp(writer);
  }

  return {
    open(claim) {
      const writer: Writer = {
        claim,
        abort: new AbortController(),
        writeNo: 0,
        told: null,
        events: [],
        asked: [],
        ledger: [],
        status: null,
        end: null,
        isClosed: false,
        onSettled: null,
        waiters: [],
        soon: null,
      };
      return {
        claim,
        lost: writer.abort.signal,
        append(...events) {
          writer.events.push(...events);
          schedule(writer);
        },
        told(position) {
          writer.told = position;
        },
        ask(question, ...events) {
          writer.status = 'awaiting_input';
          writer.asked.push(question);
          writer.events.push(...events);
          schedule(writer);
        },
        addUsage(rows, events, { isUrgent, isJoined }) {
          if (isJoined) joinRows(writer.ledger, rows);
          else writer.ledger.push(...rows);
          writer.events.push(...events);
          if (isUrgent || writer.isClosed) schedule(writer);
          else writer.soon ??= setTimeout(() => schedule(writer), SOON_MS);
        },
        async settle(end, events) {
          const settled = await new Promise<Settled>((resolve) => {
            writer.end = end;
            writer.onSettled = resolve;
            writer.events.push(...events);
            schedule(writer);
          });
          return settled.written && { at: settled.at, isReady: settled.written.isReady };
        },
        flushed() {
          const isIdle = !isRunning && writer.soon === null;
          if (isIdle || writer.abort.signal.aborted) return Promise.resolve();
          return new Promise((resolve) => {
            writer.waiters.push(resolve);
            schedule(writer);
          });
        },
      };
    },
  };
}

function takeShare(writer: Writer): Share | null {
  if (
    writer.isClosed ||
    writer.abort.signal.aborted ||
    (writer.events.length === 0 && writer.status === null && writer.end === null)
  ) {
    return null;
  }
  const { claim, end } = writer;
  writer.writeNo += 1;
  // After it only usage can follow, which belongs to no lane.
  writer.isClosed = end !== null;
  const lane: LaneWrite = {
    conversationId: claim.conversationId,
    epoch: claim.epoch,
    writeNo: writer.writeNo,
    runId: claim.runId,
    told: writer.told,
    events: writer.events,
    asked: writer.asked,
    status: end?.status ?? writer.status,
    error: end?.error ?? null,
    message: end?.message ?? null,
  };
  writer.events = [];
  writer.asked = [];
  writer.status = null;
  return { writer, lane, isLast: end !== null };
}

function wake(writer: Writer): void {
  for (const waiter of writer.waiters.splice(0)) waiter();
}

/** Nothing more will be written for it; whoever waits is told so. */
function giveUp(writer: Writer): void {
  writer.events = [];
  writer.asked = [];
  writer.onSettled?.({ at: new Date(), written: null });
  wake(writer);
}

const pause = (tries: number) => delay(Math.min(25 * 2 ** tries, 1_000));

/** The service itself has closed its connections. */
function isClosing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'CONNECTION_ENDED';
}

/** The database has looked at it and said no (SQLSTATE classes 22, 23, 42, 54); anything else may pass by itself. */
function isRefusal(error: unknown): boolean {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  return /^(21|22|23|42|54)[0-9A-Z]{3}$/.test(code);
}
