import type { SandboxExit } from './ports/sandbox.ts';

/** How the end of a sandbox is told that had reached one of its limits; `error` is a sentence for people. */
export interface LimitEnd {
  code: 'sandbox_oom' | 'sandbox_disk_full';
  error: string;
}

/** Null when something else ended it. */
export function limitEndOf({ reason }: Pick<SandboxExit, 'reason'>): LimitEnd | null {
  if (reason === 'oom') return { code: 'sandbox_oom', error: 'The sandbox ran out of memory.' };
  if (reason === 'disk_full') return { code: 'sandbox_disk_full', error: "The agent's disk is full." };
  return null;
}
