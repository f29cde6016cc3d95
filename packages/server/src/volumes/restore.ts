import { existsSync } from 'node:fs';
import { chmod, chown, mkdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { deed } from '../domain/deeds.ts';
import type { UnpackLimits, VolumeSwap } from '../domain/ports/volume.ts';
import {
  clearStaging,
  closeStaging,
  itIn,
  openStaging,
  ownerOf,
  syncFileSystem,
  type Staging,
} from './staging.ts';
import { unpackAt } from './unpack.ts';
import { told } from './walk.ts';

export interface RestoreVolume {
  volumeDir: string;
  archive: AsyncIterable<Buffer>;
  limits: UnpackLimits;
  swap: VolumeSwap;
  /** Told what has just been done; for tests, which stop here. */
  onStep?: (step: string) => void;
}

/**
 * Replaces all that is in a volume, or nothing. The new trees are unpacked beside the old ones and put on the disk; one
 * rename decides; then they are moved to their place. Whoever is stopped after that rename has it finished by
 * `clearVolume` or by the driver, and before it nothing has changed.
 */
export async function restoreVolume(work: RestoreVolume): Promise<void> {
  const { volumeDir, swap, onStep = () => {} } = work;
  await clearSwap(volumeDir, swap);
  const staging = await deed(volumeDir, () => openStaging(volumeDir, ownerOf(volumeDir)));
  try {
    await unpackTrees(staging, work);
    onStep('unpacked');
    await syncFileSystem(itIn(staging));
    onStep('on the disk');
    // One deed: whoever uses the volume meanwhile finds it before the decision or when all is in its place.
    await deed(volumeDir, () => replaceTrees(staging, work));
  } catch (error) {
    // Decided is decided: either it can be finished now, or it is finished before the volume is used again.
    if (!existsSync(swap.nextOf(volumeDir))) throw told(error);
    await clearSwap(volumeDir, swap);
  } finally {
    await closeStaging(staging);
  }
}

async function replaceTrees(staging: Staging, { swap, onStep = () => {} }: RestoreVolume): Promise<void> {
  const { volumeDir } = staging;
  await rename(itIn(staging), swap.nextOf(volumeDir));
  await swap.syncFolder(volumeDir);
  onStep('decided');
  await swap.finish(volumeDir, onStep);
  onStep('finished');
  await rename(swap.nextOf(volumeDir), itIn(staging));
  onStep('old ones aside');
}

async function unpackTrees(staging: Staging, { archive, limits, swap }: RestoreVolume): Promise<void> {
  const { volumeDir, owner } = staging;
  const folder = itIn(staging);
  await deed(volumeDir, () => mkdir(folder, 0o755));
  await unpackAt(staging, folder, archive, limits);
  await deed(volumeDir, async () => {
    for (const tree of swap.trees) {
      if (!existsSync(join(folder, tree))) throw new Error('The snapshot is not whole.');
      await chmod(join(folder, tree), 0o700);
    }
    // Made now: a disk that is full later must not stop what was decided.
    const former = swap.formerIn(folder);
    await mkdir(former, { mode: 0o755 });
    // Who deletes it must be able to.
    if (owner) await chown(former, owner.uid, owner.gid);
  });
}

/** Finishes a restore that was decided, and removes whatever a service that was killed left beside a volume. */
export async function clearVolume(volumeDir: string, swap: VolumeSwap): Promise<void> {
  await clearSwap(volumeDir, swap);
  await clearStaging(volumeDir);
}

async function clearSwap(volumeDir: string, swap: VolumeSwap): Promise<void> {
  const next = swap.nextOf(volumeDir);
  if (!existsSync(next)) return;
  // First, since a tree that tells the owner may be away.
  await deed(volumeDir, () => swap.finish(volumeDir));
  const staging = await deed(volumeDir, () => openStaging(volumeDir, ownerOf(volumeDir)));
  try {
    await deed(volumeDir, async () => {
      // What is there by now may have been decided by another one, and not finished.
      await swap.finish(volumeDir);
      if (existsSync(next)) await rename(next, itIn(staging));
    });
  } finally {
    await closeStaging(staging);
  }
}
