import { keepNewest } from '../domain/keep-newest.ts';
import { limits } from '../domain/limits.ts';

export interface ForgeryBudget {
  /** A delivery that could not be verified; `key`: a channel, or what several share. */
  spend(key: string): void;
  /**
   * Whether so many came in the last minute that large bodies are not read any more, and nothing is fetched to verify one. Small
   * ones are verified all the same: whoever sends forgeries shuts out nobody else.
   */
  isSpent(key: string): boolean;
}

const windowMs = 60_000;
const maxKept = 20_000;

export function createForgeryBudget(now: () => number = Date.now): ForgeryBudget {
  const windows = new Map<string, { fromMs: number; count: number }>();
  const current = (key: string) => {
    const found = windows.get(key);
    return found && now() - found.fromMs < windowMs ? found : null;
  };
  return {
    spend(key) {
      const found = current(key);
      if (found) found.count += 1;
      else keepNewest(windows, key, { fromMs: now(), count: 1 }, maxKept);
    },
    isSpent: (key) => (current(key)?.count ?? 0) >= limits.forgeriesPerMinute,
  };
}
