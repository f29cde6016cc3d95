import { DomainError } from '../domain/errors.ts';
import { limits } from '../domain/limits.ts';
import type { Documents } from '../domain/ports/channel.ts';
import type { GuardedCaller } from './guarded-call.ts';

/** Certificates and key sets that prove who sends, as providers publish them. */
export interface ProofDocuments {
  /** Those that hold now, by their URL. */
  fresh(): Documents;
  /** Makes it one of them; whoever asks at the same moment shares the call. Throws `unavailable`. */
  fetch(url: string): Promise<void>;
  /**
   * For a key that the text in `seen` does not name: whether another text is there now. Providers publish new keys at any
   * moment, and strangers name keys that never were, so each text is fetched anew once in `limits.keyRefreshSeconds` at
   * most. Throws `unavailable` when it cannot be had.
   */
  refresh(url: string, seen: Documents): Promise<boolean>;
  /** Whether it is being fetched, or was there before and has not been asked for lately: nobody makes many calls with it. */
  isDue(url: string): boolean;
}

interface Kept {
  text: string;
  atMs: number;
}

const keptMs = 15 * 60_000;
const refreshMs = limits.keyRefreshSeconds * 1000;
const maxKept = 200;

export function createProofDocuments(caller: GuardedCaller, now: () => number = Date.now): ProofDocuments {
  const kept = new Map<string, Kept>();
  const underWay = new Map<string, Promise<void>>();
  /** When each was last fetched though it was there, and when that failed. */
  const refreshed = new Map<string, number>();
  const failed = new Map<string, number>();
  const isLately = (map: Map<string, number>, url: string) =>
    now() - (map.get(url) ?? -refreshMs) < refreshMs;

  async function call(url: string): Promise<void> {
    const sent = { method: 'GET' as const, url, headers: {}, body: null, token: null };
    const reply = await caller
      .call(sent, { timeoutMs: 2_000, maxBytes: 256 * 1024 })
      .catch((error: unknown) => {
        throw unavailable(error);
      });
    if (reply.status !== 200) throw unavailable(null);
    if (kept.size >= maxKept && !kept.has(url)) {
      for (const map of [kept, refreshed, failed]) map.clear();
    }
    kept.set(url, { atMs: now(), text: reply.body.toString() });
    failed.delete(url);
  }

  function fetch(url: string): Promise<void> {
    const before = underWay.get(url);
    if (before) return before;
    const fetching = call(url)
      .catch((error: unknown) => {
        if (kept.has(url)) failed.set(url, now());
        throw error;
      })
      .finally(() => underWay.delete(url));
    underWay.set(url, fetching);
    return fetching;
  }

  return {
    fetch,

    fresh: () =>
      new Map(
        [...kept].filter(([, { atMs }]) => now() - atMs < keptMs).map(([url, { text }]) => [url, text]),
      ),

    async refresh(url, seen) {
      const isOther = () => kept.get(url)?.text !== seen.get(url);
      if (isOther()) return true;
      if (underWay.has(url) || !isLately(refreshed, url)) {
        refreshed.set(url, now());
        await fetch(url);
        return isOther();
      }
      // Nobody knows whether the key is in a text that could not be had.
      if (isLately(failed, url)) throw unavailable(null);
      return false;
    },

    isDue(url) {
      if (underWay.has(url)) return true;
      if (!kept.has(url) || isLately(refreshed, url)) return false;
      refreshed.set(url, now());
      return true;
    },
  };
}

const unavailable = (cause: unknown) =>
  new DomainError('unavailable', 'What proves the sender could not be fetched; send it again.', {
    cause,
    retryAfterSeconds: 10,
  });
