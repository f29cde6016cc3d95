import { randomUUID } from 'node:crypto';
import { constants, existsSync } from 'node:fs';
import { open, rename } from 'node:fs/promises';
import { join } from 'node:path';
import type { VolumeSwap } from '../domain/ports/volume.ts';

/**
 * All trees of a volume are replaced together. The kernel renames one folder at a time, so the decision is a rename of
 * its own: the new trees, whole and on the disk, become `next` beside the old ones. Before it nothing has happened, and
 * after it the swap is finished, by whoever comes next: this call, the start of the service, or the next use.
 */
export const volumeSwap: VolumeSwap = {
  trees: ['workspace', 'home'],
  nextOf: (volumeDir) => join(volumeDir, 'next'),
  formerIn: (next) => join(next, 'former'),
  finish: finishSwap,
  syncFolder,
};

async function finishSwap(volumeDir: string, onStep: (step: string) => void = () => {}): Promise<void> {
  const next = volumeSwap.nextOf(volumeDir);
  if (!existsSync(next)) return;
  for (const tree of volumeSwap.trees) {
    if (!existsSync(join(next, tree))) continue;
    const place = join(volumeDir, tree);
    if (existsSync(place)) {
      const former = join(volumeSwap.formerIn(next), tree);
      // What was made in the place of a tree that had been moved already is kept apart from it.
      await rename(place, existsSync(former) ? `${former}-${randomUUID()}` : former);
      onStep(`${tree} is away`);
    }
    await rename(join(next, tree), place);
    onStep(`${tree} is placed`);
  }
  await syncFolder(volumeDir);
}

/** A rename in it outlives a power cut only after this. */
async function syncFolder(folder: string): Promise<void> {
  const file = await open(folder, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}
