import { mkdirSync } from 'node:fs';
import { DomainError } from '../domain/errors.ts';
import type { Snapshots, VolumeSwap } from '../domain/ports/volume.ts';
import { tarOfVolume } from './archive.ts';
import { loadChunks, saveChunks, sweepChunks } from './chunk-store.ts';
import { restoreVolume } from './restore.ts';

/** Whole volumes as chunks of one tar archive: the walk, the archive and the unpacking are those of the files API. */
export function createSnapshotStore(swap: VolumeSwap): Snapshots {
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
    restore: (storeDir, volumeDir, chunks, limits) =>
      restoreVolume({ volumeDir, archive: loadChunks(storeDir, chunks), limits, swap }),
    sweep: sweepChunks,
  };
}
