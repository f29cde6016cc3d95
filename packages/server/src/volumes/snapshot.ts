import { mkdir, statfs } from 'node:fs/promises';
import { DomainError } from '../domain/errors.ts';
import type { Snapshots, VolumeSwap } from '../domain/ports/volume.ts';
import { tarOfVolume } from './archive.ts';
import { loadChunks, saveChunks, sweepChunks } from './chunk-store.ts';
import { restoreVolume } from './restore.ts';

const MIB = 1024 * 1024;
const RETRY_SECONDS = 60;

export interface SnapshotStoreOptions {
  /** So much of the disk stays free for all else. */
  minFreeBytes: number;
  /** Of the file system of a folder; asked anew for each chunk that is written. */
  freeBytes?: (dir: string) => Promise<number>;
}

/** Whole volumes as chunks of one tar archive: the walk, the archive and the unpacking are those of the files API. */
export function createSnapshotStore(swap: VolumeSwap, options: SnapshotStoreOptions): Snapshots {
  const { minFreeBytes, freeBytes = freeOnDisk } = options;

  async function save(storeDir: string, volumeDir: string, maxBytes: number) {
    await mkdir(storeDir, { recursive: true, mode: 0o700 });
    const check = async (bytes: number): Promise<void> => {
      if ((await freeBytes(storeDir)) - bytes < minFreeBytes) throw diskFull(minFreeBytes);
    };
    // At once, not after the first megabytes.
    await check(0);
    const saved = await saveChunks(storeDir, tarOfVolume(volumeDir), { maxBytes, check });
    if (saved) return saved;
    throw new DomainError('body_too_large', `The files are more than ${maxBytes} bytes; delete some first.`);
  }

  return {
    async save(storeDir, volumeDir, maxBytes) {
      try {
        return await save(storeDir, volumeDir, maxBytes);
      } catch (error) {
        // Somebody else was faster in filling it.
        const { code } = error as NodeJS.ErrnoException;
        throw code === 'ENOSPC' || code === 'EDQUOT' ? diskFull(minFreeBytes, error) : error;
      }
    },
    restore: (storeDir, volumeDir, chunks, limits) =>
      restoreVolume({ volumeDir, archive: loadChunks(storeDir, chunks), limits, swap }),
    sweep: sweepChunks,
  };
}

function diskFull(minFreeBytes: number, cause?: unknown): DomainError {
  return new DomainError(
    'unavailable',
    `The disk of the service is nearly full: snapshots leave ${Math.ceil(minFreeBytes / MIB)} MiB of it free. Delete snapshots that are not needed, or have the operator make room.`,
    { retryAfterSeconds: RETRY_SECONDS, cause },
  );
}

async function freeOnDisk(dir: string): Promise<number> {
  const { bavail, bsize } = await statfs(dir);
  return bavail * bsize;
}
