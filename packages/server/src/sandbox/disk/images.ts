import { existsSync, readdirSync, statfsSync, statSync } from 'node:fs';
import { mkdir, readdir, rm, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { deed } from '../../domain/deeds.ts';
import type { Log } from '../../domain/log.ts';
import { BlankDisk, discardBlank, type BlankDiskOptions } from './blank-disk.ts';
import {
  addReserve,
  imageBytesFor,
  imageSize,
  isBlank,
  lockOf,
  makeImage,
  makeImagesDir,
  makerOf,
  reserveBytes,
  reserveOf,
  resizeImage,
} from './image-file.ts';
import {
  detachStray,
  isLetGo,
  isMounted,
  isReadOnly,
  mountedFrom,
  mountImage,
  unmount,
  unmountIdle,
  writeDirectly,
} from './image-mounts.ts';
import type { SandboxUser } from '../volume.ts';

/** `work` is done once, for whoever calls; again only when it failed. */
function doneOnce(work: () => Promise<void>): () => Promise<void> {
  let done: Promise<void> | null = null;
  return () =>
    (done ??= work().catch((error: unknown) => {
      done = null;
      throw error;
    }));
}

const MIB = 1024 * 1024;
/** Less than this share of a disk, or than a mebibyte, is nothing to work with. */
const FULL_SHARE = 0.01;
const FULL_ENTRIES = 8;
/** Of the disk of the host: where less would be left, a new agent need not get an image. */
const LEFT_SHARE = 0.1;

/**
 * Volumes that are file systems of their own, each in an image of the service's: the kernel holds them to their size. An
 * image is mounted by the first use of its volume and stays mounted, also when the service is killed.
 */
export class DiskImages {
  private readonly imagesDir: string;
  private readonly log: Log;
  private readonly blank: BlankDisk | null;
  private plannedBytes = 0;
  private readonly tidiedOnce = doneOnce(() => this.tidy());
  private readonly blanksTidiedOnce = doneOnce(() => this.tidyBlanks());

  /** `blanks`: absent, no disk is made before its agent. */
  constructor(imagesDir: string, log: Log, blanks: BlankDiskOptions | null) {
    this.imagesDir = imagesDir;
    this.log = log;
    this.blank = blanks && new BlankDisk(imagesDir, blanks, log);
  }

  get folder(): string {
    return this.imagesDir;
  }

  /** Whether the volume is such a one: once made, it stays so. */
  has(volumeDir: string): boolean {
    return existsSync(this.imageOf(volumeDir));
  }

  /** Whether files lie in the volume as in a plain folder: any, since a restore moves `workspace` away for a moment. */
  isFolder(volumeDir: string): boolean {
    return !this.has(volumeDir) && existsSync(volumeDir) && readdirSync(volumeDir).length > 0;
  }

  /** Whether a removal was broken off. */
  isLeft(volumeDir: string): boolean {
    return isMounted(volumeDir) || existsSync(lockOf(this.imageOf(volumeDir)));
  }

  fits(volumeDir: string, limitBytes: number): boolean {
    return imageSize(this.imageOf(volumeDir)) <= imageBytesFor(limitBytes);
  }

  /** Makes the image when there is none, and mounts it. Resolves with true when there may be something in it that nobody looked at. */
  async open(volumeDir: string, user: SandboxUser, limitBytes: number): Promise<boolean> {
    await this.tidiedOnce();
    const image = this.imageOf(volumeDir);
    if (!existsSync(image) && !isMounted(volumeDir)) {
      await mkdir(volumeDir, { recursive: true, mode: 0o700 });
      if (await this.blank?.give(image, volumeDir, limitBytes)) return false;
    }
    if (!existsSync(image)) await makeImage(image, limitBytes, user);
    if (isMounted(volumeDir)) return false;
    await mkdir(volumeDir, { recursive: true, mode: 0o700 });
    await mountImage(image, volumeDir, this.log);
    return true;
  }

  isBlankReady(limitBytes: number): boolean {
    return this.blank?.isReady(limitBytes) ?? false;
  }

  /**
   * Gives back the room of what earlier services left. For the service, which is the only one on its data directory: `berth doctor`
   * may be at work beside it.
   */
  async takeOver(): Promise<void> {
    await this.tidiedOnce();
    await this.blanksTidiedOnce();
  }

  /** Makes one ready for the next new agent. After `takeOver`. */
  async keepBlank(limitBytes: number): Promise<void> {
    await this.blank?.keep(limitBytes);
  }

  /**
   * Sets aside, until the function that it resolves with is called, the room for one more: an image takes all of it at
   * once. Null: the host would not have a tenth of its disk, and a gibibyte, for all else.
   */
  async plan(limitBytes: number): Promise<(() => void) | null> {
    const bytes = imageBytesFor(limitBytes);
    await makeImagesDir(this.imagesDir);
    const { bavail, blocks, bsize } = await statfs(this.imagesDir);
    const left = bavail * bsize - this.plannedBytes - bytes;
    // One that is ready has its room already, and is for one agent.
    const isReady = this.plannedBytes === 0 && this.isBlankReady(limitBytes);
    if (!isReady && left < Math.max(1024 * MIB, blocks * bsize * LEFT_SHARE)) return null;
    this.plannedBytes += bytes;
    return () => void (this.plannedBytes -= bytes);
  }

  /** Whether the kernel has closed it after an error, as when the disk below it had no room. */
  isBroken(volumeDir: string): boolean {
    return isReadOnly(volumeDir);
  }

  /** Checks and opens again what the kernel has closed. One that is in use is left, unless it `must` be. */
  async mend(volumeDir: string, must: boolean): Promise<void> {
    if (!isReadOnly(volumeDir)) return;
    this.log.warn('A disk that was closed after an error is mended.', { volumeDir });
    if (!(await unmount(volumeDir, must))) return;
    const image = this.imageOf(volumeDir);
    // Else it is the same file system that is mounted again, closed as it is: the next start tries it again.
    await isLetGo(image);
    await mountImage(image, volumeDir, this.log);
  }

  /**
   * Before a sandbox starts: gives the image the size for the limit, and a full one some room. False when the image is
   * larger than the limit, since what is in it takes more.
   */
  async fit(volumeDir: string, limitBytes: number): Promise<boolean> {
    const image = this.imageOf(volumeDir);
    const wanted = imageBytesFor(limitBytes);
    if (imageSize(image) !== wanted) {
      if (await unmount(volumeDir, false)) {
        if (await isLetGo(image)) await this.resized(image, limitBytes);
        await mountImage(image, volumeDir, this.log);
      }
    }
    await this.balance(volumeDir, limitBytes);
    return this.fits(volumeDir, limitBytes);
  }

  isFull(volumeDir: string): boolean {
    const { bavail, bsize, blocks, ffree } = statfsSync(volumeDir);
    return bavail * bsize < Math.min(MIB, blocks * bsize * FULL_SHARE) || ffree < FULL_ENTRIES;
  }

  /** Nothing in it is looked at. Idempotent. */
  async remove(volumeDir: string): Promise<void> {
    const image = this.imageOf(volumeDir);
    // A mount that was given up may have come late, over another.
    while (isMounted(volumeDir)) await unmount(volumeDir, true);
    for (const file of [image, lockOf(image)]) await deed(volumeDir, () => rm(file, { force: true }));
    await detachStray(this.imagesDir);
    // Never through a mount.
    if (existsSync(volumeDir) && !isMounted(volumeDir))
      await deed(volumeDir, () => rm(volumeDir, { recursive: true, force: true }));
  }

  /** Nothing of a service that was stopped stays mounted but what sandboxes use that live on. */
  async close(used: ReadonlySet<string>): Promise<void> {
    await this.blank?.close().catch((error: unknown) => this.cannot('A disk that is nobody’s', error));
    // Of earlier services, when nobody has asked for a disk of this one.
    if (existsSync(this.imagesDir))
      await this.takeOver().catch((error: unknown) => this.cannot('What earlier services left', error));
    const folders = mountedFrom(this.imagesDir).map(({ folder }) => folder);
    await unmountIdle(folders.filter((folder) => !used.has(folder)));
  }

  private cannot(what: string, error: unknown): void {
    this.log.warn(`${what} could not be removed.`, { error: String(error) });
  }

  private async resized(image: string, limitBytes: number): Promise<void> {
    if (imageSize(image) === imageBytesFor(limitBytes)) return;
    try {
      await resizeImage(image, limitBytes);
    } catch (error) {
      this.log.warn('A disk could not be given another size.', { image, error: String(error) });
    }
  }

  private async balance(volumeDir: string, limitBytes: number): Promise<void> {
    const reserve = reserveOf(volumeDir);
    const bytes = reserveBytes(limitBytes);
    const { bavail, bsize } = statfsSync(volumeDir);
    const free = bavail * bsize;
    const has = statSync(reserve, { throwIfNoEntry: false }) !== undefined;
    if (has && free < bytes / 2) await deed(volumeDir, () => rm(reserve));
    else if (!has && free > 2 * bytes) await addReserve(volumeDir, limitBytes);
  }

  /** What an earlier service left: images that it did not finish, loop devices without a mount, mounts without an image. */
  private async tidy(): Promise<void> {
    await makeImagesDir(this.imagesDir);
    for (const name of await readdir(this.imagesDir)) {
      // What cannot be removed must not keep anybody from his disk.
      await this.tidyOne(name).catch((error: unknown) => this.cannot(`${name} in ${this.imagesDir}`, error));
    }
    for (const { folder, image } of mountedFrom(this.imagesDir)) {
      if (!existsSync(image)) await unmount(folder, true);
      // An older service may have mounted it.
      else await writeDirectly(image);
    }
    const stray = await detachStray(this.imagesDir);
    if (stray.length > 0) this.log.info('Loop devices without a mount were let go.', { devices: stray });
  }

  /** What was nobody's of services that were killed. */
  private async tidyBlanks(): Promise<void> {
    for (const name of (await readdir(this.imagesDir)).filter(isBlank)) {
      const left = join(this.imagesDir, name);
      const removed = name.includes('.') ? rm(left, { force: true }) : discardBlank(left);
      await removed.catch((error: unknown) => this.cannot(left, error));
    }
  }

  private async tidyOne(name: string): Promise<void> {
    const left = join(this.imagesDir, name);
    const maker = makerOf(name);
    if (maker === null || existsSync(`/proc/${maker}`)) return;
    // The trial of a service that was killed in the middle of it.
    if (isMounted(left)) await unmount(left, true);
    await rm(left, { recursive: true, force: true });
  }

  private imageOf(volumeDir: string): string {
    return join(this.imagesDir, `${volumeDir.slice(volumeDir.lastIndexOf('/') + 1)}.img`);
  }
}
