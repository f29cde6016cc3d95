import { setTimeout as delay } from 'node:timers/promises';

/** Waits for a condition instead of a time; `what` is said when it does not come true. */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  deadlineMs = 10_000,
): Promise<void> {
  const endMs = Date.now() + deadlineMs;
  while (!(await condition())) {
    if (Date.now() > endMs) throw new Error(`After ${deadlineMs} ms it is still not so that ${what}.`);
    await delay(10);
  }
}
