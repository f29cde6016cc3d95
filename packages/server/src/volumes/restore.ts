import { chmodSync, chownSync, existsSync, mkdirSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import type { UnpackLimits, VolumeSwap } from '../domain/ports/volume.ts';
import {
  clearStaging,
  closeStaging,
  itIn,
  openStaging,
  ownerOf,
  syncFileSystem,
  type Owner,
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
  const owner = ownerOf(volumeDir);
  const staging = openStaging(volumeDir, owner);
  try {
    await unpackTrees(itIn(staging), work, owner);
    onStep('unpacked');
    await syncFileSystem(itIn(staging));
    onStep('on the disk');
    renameSync(itIn(staging), swap.nextOf(volumeDir));
    swap.syncFolder(volumeDir);
    onStep('decided');
    swap.finish(volumeDir, onStep);
    onStep('finished');
    renameSync(swap.nextOf(volumeDir), itIn(staging));
    onStep('old ones aside');
  } catch (error) {
    // Decided is decided: either it can be finished now, or it is finished before the volume is used again.
    if (!existsSync(swap.nextOf(volumeDir))) throw told(error);
    await clearSwap(volumeDir, swap);
  } finally {
    await closeStaging(staging, owner);
  }
}

async function unpackTrees(folder: string, work: RestoreVolume, owner: Owner | null): Promise<void> {
  const { swap } = work;
  mkdirSync(folder, 0o755);
  await unpackAt(folder, work.archive, work.limits, owner);
  for (const tree of swap.trees) {
    if (!existsSync(join(folder, tree))) throw new Error('The snapshot is not whole.');
    chmodSync(join(folder, tree), 0o700);
  }
  // Made now: a disk that is full later must not stop what was decided.
  const former = swap.formerIn(folder);
  mkdirSync(former, { mode: 0o755 });
  // Who deletes it must be able to.
  if (owner) chownSync(former, owner.uid, owner.gid);
}

/** Finishes a restore that was decided, and removes whatever a service that was killed left beside a volume. */
export async function clearVolume(volumeDir: string, swap: VolumeSwap): Promise<void> {
  await clearSwap(volumeDir, swap);
  await clearStaging(volumeDir);
}

async function clearSwap(volumeDir: string, swap: VolumeSwap): Promise<void> {
  swap.finish(volumeDir);
  const next = swap.nextOf(volumeDir);
  if (!existsSync(next)) return;
  const owner = ownerOf(volumeDir);
  const staging = openStaging(volumeDir, owner);
  try {
    renameSync(next, itIn(staging));
  } finally {
    await closeStaging(staging, owner);
  }
}
