import type { Log } from '../domain/log.ts';
import type { OthersUsage, RateUsageStore } from '../store/rate-usage.ts';
import type { RateLimitService } from './api.ts';
import type { Cell, RateLimit } from './gcra.ts';
import { BoundedCells, takeMany, takeOne, verdict } from './gcra.ts';

export interface RateLimitDependencies {
  usage: RateUsageStore;
  nodeId: string;
  log: Log;
  /** How many bad keys one client address may send. */
  authFailures: RateLimit;
  now?: () => number;
}

export interface RateLimiter extends RateLimitService {
  /** Exchanges counts with the other nodes, if there are any, every `everyMs`. */
  start(everyMs: number): void;
  /** One exchange. A failed one is made good by the next. */
  sync(): Promise<void>;
  close(): void;
}

interface KeyCell extends Cell {
  limit: RateLimit;
  /** Let through here and not yet told to the others. */
  untold: number;
  /** Whether the others were asked about this key before. */
  asked: boolean;
  /** By exchange window: what the others were known to have used. */
  heard: Map<number, number>;
}

const maxAddresses = 10_000;
/** While alone, other nodes are looked for at every tenth exchange only. */
const aloneRounds = 10;
const purgeRounds = 240;

/**
 * Decides in memory (0.2 µs a request). Nodes tell each other what they let through, so that over all of them a key
 * gets at most its quota and what is let through within one exchange.
 */
export function createRateLimit(deps: RateLimitDependencies): RateLimiter {
  const now = deps.now ?? Date.now;
  const cells = new Map<string, KeyCell>();
  const addresses = new BoundedCells(maxAddresses);
  let timer: NodeJS.Timeout | null = null;
  let syncing = false;
  let alone = true;
  let round = 0;

  function cellOf(keyId: string, limit: RateLimit): KeyCell {
    let cell = cells.get(keyId);
    if (!cell) {
      cell = { fullAtMs: 0, limit, untold: 0, asked: false, heard: new Map() };
      cells.set(keyId, cell);
    }
    cell.limit = limit;
    return cell;
  }

  /** Drops what is full again and has nothing to tell: an absent cell is a full bucket. */
  function sweep(nowMs: number): void {
    for (const [keyId, cell] of cells) if (cell.fullAtMs <= nowMs && cell.untold === 0) cells.delete(keyId);
    addresses.sweep(nowMs);
  }

  function hear(cell: KeyCell, usage: OthersUsage): void {
    const before = cell.heard.get(usage.window);
    cell.heard.set(usage.window, usage.used);
    // Of what was used before this node knew the key, that much has been refilled since the window began.
    const refilled = cell.asked ? 0 : (usage.ageSeconds * cell.limit.quota) / cell.limit.windowSeconds;
    const added = usage.used - (before ?? 0) - refilled;
    if (added > 0) takeMany(cell, cell.limit, now(), added);
    for (const window of cell.heard.keys()) if (window < usage.window - 1) cell.heard.delete(window);
  }

  async function exchange(): Promise<void> {
    const untold = new Map<string, number>();
    for (const [keyId, cell] of cells) if (cell.untold > 0) untold.set(keyId, cell.untold);
    for (const keyId of untold.keys()) cells.get(keyId)!.untold = 0;
    const asked = [...cells.entries()];
    try {
      const others = await deps.usage.exchange(deps.nodeId, untold, [...cells.keys()]);
      const byKey = new Map(asked);
      for (const usage of others) hear(byKey.get(usage.keyId)!, usage);
      for (const [, cell] of asked) cell.asked = true;
    } catch (error) {
      for (const [keyId, count] of untold) {
        const cell = cells.get(keyId);
        if (cell) cell.untold += count;
      }
      throw error;
    }
  }

  async function sync(): Promise<void> {
    if (syncing) return;
    syncing = true;
    round += 1;
    try {
      if (!alone || round % aloneRounds === 1) alone = !(await deps.usage.hasOtherNodes(deps.nodeId));
      if (alone) for (const cell of cells.values()) cell.untold = 0;
      else if (cells.size > 0) await exchange();
      if (!alone && round % purgeRounds === 0) await deps.usage.purge();
      sweep(now());
    } catch (error) {
      deps.log.warn('rate-limit counts could not be exchanged', { cause: error });
    } finally {
      syncing = false;
    }
  }

  return {
    take(keyId, limit) {
      const cell = cellOf(keyId, limit);
      const result = takeOne(cell, limit, now());
      if (result.allowed) cell.untold += 1;
      return result;
    },
    peek: (keyId, limit) => verdict(cells.get(keyId) ?? { fullAtMs: 0 }, limit, now(), 0),
    authFailure(address) {
      const nowMs = now();
      const result = takeOne(addresses.of(address, nowMs), deps.authFailures, nowMs);
      return result.allowed ? null : result.retryAfterSeconds;
    },
    start(everyMs) {
      timer ??= setInterval(() => void sync(), everyMs);
      timer.unref();
    },
    sync,
    close() {
      if (timer) clearInterval(timer);
      timer = null;
    },
  };
}
