import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { deed } from '../domain/deeds.ts';
import type { Volumes, VolumeSwap } from '../domain/ports/volume.ts';
import { tarOf } from './archive.ts';
import { close } from './calls.ts';
import { listFolder, openFile, PIECE_BYTES, statEntry } from './read.ts';
import { clearVolume } from './restore.ts';
import { ownerOf } from './staging.ts';
import { unpackInto } from './unpack.ts';
import { conflict } from './walk.ts';
import { makeFolders, removeEntry, writeFile } from './write.ts';

/** The files of agents on this host's file system (docs/sandbox-api.md). */
export function createVolumes(swap: VolumeSwap): Volumes {
  return {
    async clearInterrupted(volumesDir) {
      const volumes = await readdir(volumesDir).catch(() => []);
      // One that cannot be cleared is cleared, or told of, when it is used.
      for (const name of volumes) await clearVolume(join(volumesDir, name), swap).catch(() => undefined);
    },
    stat: async (volumeDir, path) => statEntry(volumeDir, path),
    open: async (volumeDir, path) => openFile(volumeDir, path),
    list: listFolder,
    write: writeFile,
    makeFolder: (volumeDir, path) =>
      deed(volumeDir, async () => {
        const { fd, created } = await makeFolders(volumeDir, path, ownerOf(volumeDir));
        await close(fd);
        return created;
      }),
    remove: removeEntry,
    async archive(volumeDir, path) {
      // What is wrong with the path is told before the first byte.
      const { type } = statEntry(volumeDir, path);
      if (type !== 'file' && type !== 'folder')
        throw conflict('Only folders and files can be had as an archive.');
      return Readable.from(tarOf(volumeDir, path), { objectMode: false, highWaterMark: PIECE_BYTES });
    },
    unpack: unpackInto,
  };
}
