import { readdirSync, readlinkSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { LaunchError } from './settings.ts';

const maxMs = 10_000;
const softwareCode = 70;

/**
 * Resolves once the init of the sandbox has closed the /proc of the host. bwrap's holds that for its own use and closes it while
 * the first program begins, whichever of the two is first; until then every process inside could walk through `/proc/1/fd`. So
 * nothing of the agent runs before. Rejects with LaunchError when it stays open.
 */
export async function initHasClosed(folder: string, waitMs = maxMs): Promise<void> {
  const deadline = performance.now() + waitMs;
  while (holdsProc(folder)) {
    if (performance.now() > deadline)
      throw new LaunchError(
        softwareCode,
        'The first process of the sandbox keeps a folder of the host open.',
      );
    await delay(1);
  }
}

function holdsProc(folder: string): boolean {
  try {
    return readdirSync(folder).some((fd) => linkOf(`${folder}/${fd}`) === '/proc');
  } catch {
    // The init of an engine's container is somebody else's, and shows nothing.
    return false;
  }
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    // It was closed meanwhile.
    return '';
  }
}
