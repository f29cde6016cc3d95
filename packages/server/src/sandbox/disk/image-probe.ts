import type { Log } from '../../domain/log.ts';
import { existsSync } from 'node:fs';
import { mkdir, rm, rmdir, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { lockOf, makeImage, makeImagesDir, trialOf } from './image-file.ts';
import { mountImage, unmount } from './image-mounts.ts';

const TRIAL_BYTES = 16 * 1024 * 1024;
const programs = [
  { names: ['mkfs.ext4', 'e2fsck', 'resize2fs'], debianPackage: 'e2fsprogs' },
  { names: ['mount', 'umount'], debianPackage: 'mount' },
  { names: ['losetup', 'flock', 'fallocate'], debianPackage: 'util-linux' },
];
const folders = ['/usr/sbin', '/usr/bin', '/sbin', '/bin'];

export interface ImageTrial {
  /** What stands against images, and what to do; null when they work. */
  problem: string | null;
  /** Whether what is written in them passes by the memory of the host. */
  isDirect: boolean;
  /** Whether their room can be set aside, on a disk. Else what an agent has written may be lost when the host has no more. */
  isSafe: boolean;
}

/** statfs(2): tmpfs and ramfs, where an image would take memory. */
const IN_MEMORY = [0x01021994, 0x858458f6];

const without = (problem: string): ImageTrial => ({ problem, isDirect: false, isSafe: false });

/** Makes a small image and mounts it. Never rejects. */
export async function tryImage(imagesDir: string, log: Log): Promise<ImageTrial> {
  const missing = missingForImages();
  if (missing !== null) return without(missing);
  const folder = join(imagesDir, trialOf());
  const image = `${folder}.img`;
  try {
    await makeImagesDir(imagesDir);
    await mkdir(folder, { recursive: true, mode: 0o700 });
    await makeImage(image, TRIAL_BYTES, null);
    const isDirect = await mountImage(image, folder, log);
    await unmount(folder, true);
    const { size, blocks } = await stat(image);
    const isSafe = blocks * 512 >= size && !IN_MEMORY.includes((await statfs(imagesDir)).type);
    return { problem: null, isDirect, isSafe };
  } catch (error) {
    return without(`Disk images cannot be mounted here: ${(error as Error).message}`);
  } finally {
    // What cannot be removed is the next service's to remove, and says nothing against images.
    await tidied(folder, image).catch((error: unknown) =>
      log.warn('A disk that was tried could not be removed.', { folder, error: String(error) }),
    );
  }
}

async function tidied(folder: string, image: string): Promise<void> {
  await unmount(folder, true);
  for (const file of [lockOf(image), image]) await rm(file, { force: true });
  if (existsSync(folder)) await rmdir(folder);
}

/** What can be known without a trial. */
export function missingForImages(): string | null {
  if (process.getuid?.() !== 0) return 'Disk images need a service with root rights.';
  for (const { names, debianPackage } of programs) {
    const missing = names.filter((name) => !folders.some((folder) => existsSync(join(folder, name))));
    if (missing.length > 0)
      return `Disk images need ${missing.join(', ')}: apt-get install -y ${debianPackage}`;
  }
  if (!existsSync('/dev/loop-control'))
    return 'Disk images need loop devices, and there is no /dev/loop-control: load the module loop, or give it to the container.';
  return null;
}
