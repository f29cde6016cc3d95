import { realpathSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';

/** The path without links, as the kernel tells it of mounts and loop devices. What is not there yet is taken as it is. */
export function realFolder(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    const parent = dirname(path);
    return parent === path ? path : join(realFolder(parent), basename(path));
  }
}

/** The same for a volume, whose own name is never a link. */
export const realVolume = (volumeDir: string): string =>
  join(realFolder(dirname(volumeDir)), basename(volumeDir));
