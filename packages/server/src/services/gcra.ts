import type { RateVerdict } from './api.ts';

export interface RateLimit {
  quota: number;
  windowSeconds: number;
}

/**
 * The generic cell rate algorithm (ITU-T I.371): a token bucket of `quota`, refilled evenly over the window, kept as
 * one number, the time at which the bucket will be full again.
 */
export interface Cell {
  fullAtMs: number;
}

export function takeOne(cell: Cell, limit: RateLimit, nowMs: number): RateVerdict {
  const perRequestMs = (limit.windowSeconds * 1000) / limit.quota;
  const next = Math.max(cell.fullAtMs, nowMs) + perRequestMs;
  const overMs = next - nowMs - limit.windowSeconds * 1000;
  // A little more than nothing, since sums of fractions of milliseconds are not exact.
  if (overMs > 0.001) return verdict(cell, limit, nowMs, Math.max(1, Math.ceil(overMs / 1000)));
  cell.fullAtMs = next;
  return verdict(cell, limit, nowMs, 0);
}

/** Counts what was let through elsewhere; at most until the bucket is empty. */
export function takeMany(cell: Cell, limit: RateLimit, nowMs: number, count: number): void {
  const windowMs = limit.windowSeconds * 1000;
  const next = Math.max(cell.fullAtMs, nowMs) + (count * windowMs) / limit.quota;
  cell.fullAtMs = Math.min(next, Math.max(cell.fullAtMs, nowMs + windowMs));
}

export function verdict(cell: Cell, limit: RateLimit, nowMs: number, retryAfterSeconds: number): RateVerdict {
  const windowMs = limit.windowSeconds * 1000;
  const untilFullMs = Math.max(0, cell.fullAtMs - nowMs);
  const remaining = Math.floor(((windowMs - untilFullMs) / windowMs) * limit.quota + 1e-6);
  return {
    allowed: retryAfterSeconds === 0,
    quota: limit.quota,
    windowSeconds: limit.windowSeconds,
    remaining: Math.min(limit.quota, Math.max(0, remaining)),
    resetSeconds: Math.ceil(untilFullMs / 1000),
    retryAfterSeconds,
  };
}

/** A cell for each name, in bounded memory. An absent cell is a full bucket. */
export class BoundedCells {
  readonly #cells = new Map<string, Cell>();
  readonly #max: number;

  constructor(max: number) {
    this.#max = max;
  }

  of(name: string, nowMs: number): Cell {
    let cell = this.#cells.get(name);
    if (cell) return cell;
    if (this.#cells.size >= this.#max) this.sweep(nowMs);
    // Still full: a flood of very many names. Forgetting them is better than growing without end.
    if (this.#cells.size >= this.#max) this.#cells.clear();
    cell = { fullAtMs: 0 };
    this.#cells.set(name, cell);
    return cell;
  }

  /** Drops what is full again. */
  sweep(nowMs: number): void {
    for (const [name, { fullAtMs }] of this.#cells) if (fullAtMs <= nowMs) this.#cells.delete(name);
  }
}
