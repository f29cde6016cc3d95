import { chmodSync, chownSync, existsSync, mkdirSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { DomainError } from '../domain/errors.ts';
import type { Chunk, Snapshots, UnpackLimits } from '../domain/ports/volume.ts';
import { tarOfVolume } from './archive.ts';
import { loadChunks, saveChunks, sweepChunks } from './chunk-store.ts';
import { closeStaging, itIn, openStaging, ownerOf } from './staging.ts';
import { unpackAt } from './unpack.ts';

const trees = ['workspace', 'home'] as const;

/** Whole volumes as chunks of one tar archive: the walk, the archive and the unpacking are those of the files API. */
export function createSnapshotStore(): Snapshots {
  return {
    async save(storeDir, volumeDir, maxBytes) {
      mkdirSync(storeDir, { recursive: true, mode: 0o700 });
      const saved = await saveChunks(storeDir, tarOfVolume(volumeDir), maxBytes);
      if (!saved)
        throw new DomainError(
          'body_too_large',
          `The files are more than ${maxBytes} bytes; delete some first.`,
        );
      return saved;
    },
    restore,
    sweep: sweepChunks,
  };
}

/** Unpacked whole beside the volume, then put in the place of what is there. */
async function restore(
  storeDir: string,
  volumeDir: string,
  chunks: Chunk[],
  limits: UnpackLimits,
): Promise<void> {
  const owner = ownerOf(volumeDir);
  const staging = openStaging(volumeDir, owner);
  const former = openStaging(volumeDir, owner);
  try {
    const unpacked = itIn(staging);
    mkdirSync(unpacked, 0o755);
    await unpackAt(unpacked, loadChunks(storeDir, chunks), limits, owner);
    for (const tree of trees)
      if (!existsSync(join(unpacked, tree))) throw new Error('The snapshot is not whole.');
    mkdirSync(itIn(former), 0o755);
    // Who deletes it must be able to.
    if (owner) chownSync(itIn(former), owner.uid, owner.gid);
    for (const tree of trees) {
      chmodSync(join(unpacked, tree), 0o700);
      renameSync(join(volumeDir, tree), join(itIn(former), tree));
      renameSync(join(unpacked, tree), join(volumeDir, tree));
    }
  } finally {
    await closeStaging(staging, owner);
    await closeStaging(former, owner);
  }
}
