import { chmodSync, existsSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { reachable } from '../config-values.ts';

/** The path, or the nearest folder above it, that is there, as far as this user can see. */
export function nearestThere(path: string): string {
  let at = path;
  while (!existsSync(at) && dirname(at) !== at) at = dirname(at);
  return at;
}

/**
 * Folders to try something in, on the file systems on which others lie or will lie: what they can do is what those can
 * do, and nothing of the trial stays. Each can be entered by the users of sandboxes as far as its parent can.
 */
export class TrialFolders {
  readonly #made: string[] = [];

  /** Throws where none can be made. */
  for(path: string): string {
    const there = nearestThere(path);
    // Where the folder itself is not there yet, the one above it is somebody's: a repository, say.
    const parent = there === path || !isSameDisk(there, tmpdir()) ? there : tmpdir();
    const folder = mkdtempSync(join(parent, 'berth-doctor-'));
    this.#made.push(folder);
    chmodSync(folder, 0o711);
    return folder;
  }

  /** Throws when one cannot be removed, and removes the others all the same. */
  remove(): void {
    const folder = this.#made.pop();
    if (folder === undefined) return;
    try {
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    } finally {
      this.remove();
    }
  }
}

function isSameDisk(folder: string, temporary: string): boolean {
  const device = statSync(temporary, { throwIfNoEntry: false })?.dev;
  return device === statSync(folder).dev && reachable(join(temporary, 'any'));
}
