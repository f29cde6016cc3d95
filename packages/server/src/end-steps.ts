import type { Log } from './domain/log.ts';
import { within } from './domain/time-limit.ts';

/** What is ended, how, and for how long that is waited for. */
export type EndStep = [what: string, end: () => void | Promise<void>, limitMs: number];

/**
 * Ends one thing after another. One that fails or is late is logged and keeps none of the others: a database that is
 * away must hinder neither the listener from closing nor the process from ending.
 * @returns what did not end in order.
 */
export async function endInSteps(steps: EndStep[], log: Log): Promise<string[]> {
  const failed: string[] = [];
  for (const [what, end, limitMs] of steps) {
    try {
      await within(limitMs, Promise.resolve(end()), () => {
        throw new Error(`It was given up after ${limitMs / 1000} s.`);
      });
    } catch (error) {
      failed.push(what);
      log.warn('A part of the service did not end in order.', { what, error: String(error) });
    }
  }
  return failed;
}
