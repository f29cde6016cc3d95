import { readFileSync } from 'node:fs';

const UNKNOWN = 1024;

/** How many descriptors this process may have open (Node raises the soft limit to the hard one when it starts). */
export function openFilesLimit(): number {
  try {
    const limit = /^Max open files\s+(\d+|unlimited)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1];
    return limit === 'unlimited' ? 1_048_576 : Number(limit ?? UNKNOWN);
  } catch {
    return UNKNOWN;
  }
}
