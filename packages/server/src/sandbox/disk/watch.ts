import { statfsSync } from 'node:fs';
import type { Log } from '../../domain/log.ts';
import { deletedBytes, measure, writtenBytes, type Unit } from './measure.ts';
import type { DiskPace } from './pace.ts';
import { foldersOf, markFull, type Quota } from './quota.ts';
import { Slices } from './slices.ts';

const TICK_MS = 100;
const TICKS_A_BROKEN_LOOK = 10;
/** The first look waits, so that it does not slow the start of the program. */
const FIRST_MEASURE_MS = 3000;
/** A program that measures costs the service its start: all are suspect when one writes, and only that one may be over. */
const LEAST_REST_MS = 200;
const MIB = 1024 * 1024;
/** What the file system of the volumes keeps free for the service and its database. */
const RESERVE_MAX_BYTES = 512 * MIB;
const RESERVE_SHARE = 0.02;
const HEAVY_WRITER_BYTES = 64 * MIB;

export interface WatchedSandbox {
  id: string;
  volumeDir: string;
  /** Null: the kernel holds it to its limit, and only the disk of the host is looked after. */
  quota: Quota | null;
  /** What it may write in a second; null where that is as it comes. */
  pace: DiskPace | null;
  /** Where the space that it takes is missing. */
  hostDir: string;
  /** Host pids of its processes. */
  pids(): number[];
  /** Whether its file system takes no writes any more, after an error: only the next start can mend it. */
  isBroken(): boolean;
  /** Ends it because its disk is full. */
  end(): void;
  /** Lets it stand still between the two, where that is possible. */
  hold(): Promise<void>;
  release(): void;
}

/** One limit of one sandbox, and what is known of how far it is used. */
interface Gauge {
  unit: Unit;
  limit: number;
  /** Null until the first measurement. */
  used: number | null;
  /** Free space or inodes that the file system lost since the last measurement, whoever took them. */
  lost: number;
  lastFree: number;
  firstMeasureMs: number;
  writtenAtMeasure: number;
}

interface Entry {
  sandbox: WatchedSandbox;
  gauges: Gauge[];
  lastFreeBytes: number;
  isMeasuring: boolean;
  /** When the last measurement ended, and how long it took, without the rests of its slices. */
  measuredMs: number;
  tookMs: number;
  /** Whether it had written most by itself, and stood still. */
  wasHeld: boolean;
  /** While it stands still for what it has written. */
  rest: NodeJS.Timeout | null;
}

/**
 * Ends sandboxes that take more disk than they may. There is no quota in bubblewrap, so the free space of the file system
 * is looked at ten times a second, which costs one system call; only when it shrank by what could matter is the volume
 * measured.
 */
export class DiskWatch {
  private readonly entries = new Map<string, Entry>();
  private readonly log: Log;
  private timer: NodeJS.Timeout | null = null;
  private ticks = 0;
  private isEndingHeaviest = false;

  constructor(log: Log) {
    this.log = log;
  }

  add(sandbox: WatchedSandbox): void {
    const { quota } = sandbox;
    const free = freeOf(sandbox.volumeDir);
    const gauge = (unit: Unit, limit: number): Gauge => ({
      unit,
      limit,
      used: null,
      lost: 0,
      lastFree: free[unit],
      firstMeasureMs: performance.now() + FIRST_MEASURE_MS,
      writtenAtMeasure: 0,
    });
    const gauges = quota ? [gauge('bytes', quota.bytes), gauge('entries', quota.entries)] : [];
    const lastFreeBytes = freeOf(sandbox.hostDir).bytes;
    const entry = {
      sandbox,
      gauges,
      lastFreeBytes,
      isMeasuring: false,
      measuredMs: 0,
      tookMs: 0,
      wasHeld: true,
      rest: null,
    };
    this.entries.set(sandbox.id, entry);
    this.timer ??= setInterval(() => this.tick(), TICK_MS).unref();
  }

  remove(id: string): void {
    const entry = this.entries.get(id);
    this.entries.delete(id);
    if (entry) letGo(entry);
    if (this.entries.size > 0 || !this.timer) return;
    clearInterval(this.timer);
    this.timer = null;
  }

  private tick(): void {
    let isLow = false;
    this.ticks += 1;
    const looksAtAll = this.ticks % TICKS_A_BROKEN_LOOK === 0;
    for (const entry of this.entries.values()) {
      try {
        if (looksAtAll && entry.sandbox.isBroken()) {
          this.endBroken(entry);
          continue;
        }
        const host = freeOf(entry.sandbox.hostDir);
        isLow ||= host.bytes < host.reserveBytes && host.bytes < entry.lastFreeBytes;
        entry.lastFreeBytes = host.bytes;
        keepPace(entry);
        if (entry.gauges.length === 0) continue;
        const free = freeOf(entry.sandbox.volumeDir);
        for (const gauge of entry.gauges) note(gauge, free[gauge.unit]);
        const suspect = entry.gauges.filter(isSuspect);
        if (suspect.length > 0) void this.check(entry, suspect);
      } catch (error) {
        this.log.warn('a volume could not be looked at', {
          sandboxId: entry.sandbox.id,
          error: String(error),
        });
      }
    }
    if (isLow) void this.endHeaviest();
  }

  private async check(entry: Entry, suspect: Gauge[]): Promise<void> {
    const begunMs = performance.now();
    // Measuring may take a twentieth of the time, and half of it once the limit may be passed.
    const takenMs = entry.tookMs * (suspect.some(mayBeOver) ? 1 : 20);
    const restMs = Math.max(takenMs, entry.wasHeld ? 0 : LEAST_REST_MS);
    if (entry.isMeasuring || begunMs < entry.measuredMs + restMs) return;
    entry.isMeasuring = true;
    const slices = new Slices();
    try {
      const written = await writtenBytes(entry.sandbox.pids(), slices);
      // One that may have passed its limit by its own writing writes no more until that is known.
      entry.wasHeld = suspect.some((gauge) => mayBeOver(gauge) && wroteMost(gauge, written));
      if (entry.wasHeld) await entry.sandbox.hold();
      for (const gauge of suspect)
        if (isDue(gauge, written)) await this.update(entry, gauge, written, slices);
    } catch (error) {
      this.log.warn('a volume could not be measured', { sandboxId: entry.sandbox.id, error: String(error) });
    } finally {
      entry.sandbox.release();
      entry.isMeasuring = false;
      entry.measuredMs = performance.now();
      entry.tookMs = entry.measuredMs - begunMs - slices.restedMs;
    }
  }

  private async update(entry: Entry, gauge: Gauge, written: number | null, slices: Slices): Promise<void> {
    const { sandbox } = entry;
    const lost = gauge.lost;
    const before = gauge.used;
    gauge.lost = 0;
    gauge.writtenAtMeasure = written ?? 0;
    let used = await measure(foldersOf(sandbox.volumeDir), gauge.unit);
    // What the file system lost and no name explains may sit in files that were deleted while open.
    const explained = used - (before ?? used);
    if (gauge.unit === 'bytes' && lost - explained > MIB)
      used += await deletedBytes(sandbox.pids(), sandbox.volumeDir, slices);
    gauge.used = used;
    if (used <= gauge.limit || !this.entries.has(sandbox.id)) return;
    this.log.warn('a sandbox is ended: its disk is full', {
      sandboxId: sandbox.id,
      unit: gauge.unit,
      used,
      limit: gauge.limit,
    });
    this.endFull(entry);
  }

  /** An image whose host ran out of space. */
  private endBroken({ sandbox }: Entry): void {
    this.log.error('a sandbox is ended: its disk was closed by the kernel after an error', {
      sandboxId: sandbox.id,
    });
    this.remove(sandbox.id);
    sandbox.end();
  }

  /** The last resort: the disk of the host runs out, whatever the measurements say. */
  private async endHeaviest(): Promise<void> {
    if (this.isEndingHeaviest) return;
    this.isEndingHeaviest = true;
    const writers: { entry: Entry; bytes: number }[] = [];
    try {
      for (const entry of this.entries.values())
        writers.push({ entry, bytes: (await writtenBytes(entry.sandbox.pids())) ?? 0 });
    } finally {
      this.isEndingHeaviest = false;
    }
    const heaviest = writers.sort((a, b) => b.bytes - a.bytes)[0];
    if (!heaviest || heaviest.bytes < HEAVY_WRITER_BYTES) return;
    const { id } = heaviest.entry.sandbox;
    if (this.entries.get(id) !== heaviest.entry) return;
    this.log.error('a sandbox is ended: it wrote most while the disk of the host ran out', { sandboxId: id });
    this.endFull(heaviest.entry);
  }

  private endFull(entry: Entry): void {
    this.remove(entry.sandbox.id);
    entry.sandbox.end();
    if (!entry.sandbox.quota) return;
    // The disk of the host may be full too. Without the mark the next sandbox of the volume is measured as any other.
    markFull(entry.sandbox.volumeDir).catch((error: unknown) =>
      this.log.warn('a full volume could not be marked', {
        sandboxId: entry.sandbox.id,
        error: String(error),
      }),
    );
  }

  /** What lives on without its service must not stand still. */
  close(): void {
    for (const id of this.entries.keys()) this.remove(id);
  }
}

function letGo({ sandbox, rest }: Entry): void {
  sandbox.pace?.close();
  if (!rest) return;
  clearTimeout(rest);
  sandbox.release();
}

/** Lets it stand still as long as it has written ahead. */
function keepPace(entry: Entry): void {
  const { sandbox } = entry;
  const restMs = sandbox.pace?.look() ?? 0;
  if (restMs === 0 || entry.rest) return;
  void sandbox.hold();
  entry.rest = setTimeout(() => {
    entry.rest = null;
    sandbox.release();
  }, restMs).unref();
}

interface Free {
  bytes: number;
  entries: number;
  reserveBytes: number;
}

function freeOf(path: string): Free {
  const stat = statfsSync(path);
  return {
    bytes: stat.bfree * stat.bsize,
    entries: stat.ffree,
    reserveBytes: Math.min(RESERVE_MAX_BYTES, stat.blocks * stat.bsize * RESERVE_SHARE),
  };
}

function note(gauge: Gauge, free: number): void {
  gauge.lost += Math.max(0, gauge.lastFree - free);
  gauge.lastFree = free;
}

/** Whether the file system lost what could matter, whoever took it: by this alone nobody is measured. */
function isSuspect(gauge: Gauge): boolean {
  return isFirst(gauge) || mayBeOver(gauge) || gauge.lost >= leftOf(gauge) / 4;
}

/** Others take space too, so a quarter of what is left counts only if the sandbox wrote that much itself. */
function isDue(gauge: Gauge, written: number | null): boolean {
  if (gauge.unit === 'entries' || isFirst(gauge) || mayBeOver(gauge)) return true;
  return (written ?? Infinity) - gauge.writtenAtMeasure >= leftOf(gauge) / 4;
}

/** Others take space too: half of what is left of the limit must be its own. */
function wroteMost(gauge: Gauge, written: number | null): boolean {
  return gauge.unit === 'bytes' && (written ?? 0) - gauge.writtenAtMeasure >= leftOf(gauge) / 2;
}

const isFirst = (gauge: Gauge): boolean => gauge.used === null && performance.now() > gauge.firstMeasureMs;

function mayBeOver(gauge: Gauge): boolean {
  return gauge.lost > leftOf(gauge);
}

const leftOf = (gauge: Gauge): number => Math.max(0, gauge.limit - (gauge.used ?? 0));
