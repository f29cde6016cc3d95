import type { Log } from '../domain/log.ts';
import { tryImage, type ImageTrial } from './disk/image-probe.ts';
import { DiskImages } from './disk/images.ts';
import { quotaFor, type Quota } from './disk/quota.ts';
import { clearStaged, prepareVolume, removeVolume, type SandboxUser } from './volume.ts';

/**
 * How new volumes are held to their size. `image`: by a file system of their own, or not at all. `watch`: by measuring.
 * `auto`: the former where it works, else the latter.
 */
export type DiskMode = 'auto' | 'image' | 'watch';

export interface DiskOptions {
  mode: DiskMode;
  /** Folder for the images, closed for everybody but the service. */
  imagesDir: string;
  /** The size of volumes that are used before a sandbox with another limit starts. */
  bytes: number;
}

/** A volume as a sandbox is about to use it. */
export interface OpenVolume {
  /** RLIMIT_FSIZE. */
  fileBytes: number;
  /** What has to be watched; null where the kernel holds the limit. */
  quota: Quota | null;
  /** A folder on the file system of the host that the volume takes its space from. */
  hostDir: string;
  /** Whether a program that ends now may have ended because of that. */
  isFull(): boolean;
  /** Whether the kernel has closed it after an error. The next opening mends it. */
  isBroken(): boolean;
}

/** Agents' volumes: plain folders, or images. What a volume is, it stays; the mode decides for new ones. */
export class Volumes {
  private readonly mode: DiskMode;
  private readonly bytes: number;
  private readonly log: Log;
  private readonly images: DiskImages;
  private readonly queues = new Map<string, Promise<unknown>>();
  private found: Promise<ImageTrial> | null = null;

  constructor({ mode, imagesDir, bytes }: DiskOptions, log: Log) {
    this.mode = mode;
    this.bytes = bytes;
    this.log = log;
    this.images = new DiskImages(imagesDir, log);
  }

  /** Whether new volumes can be images here. */
  private trial(): Promise<ImageTrial> {
    return (this.found ??= tryImage(this.images.folder, this.log));
  }

  /** For the driver's report: whether new volumes are images, and what there is to say of it. */
  async report(): Promise<{ isHard: boolean; problems: string[]; notes: string[] }> {
    if (this.mode === 'watch') return { isHard: false, problems: [], notes: [] };
    const { problem, isDirect } = await this.trial();
    if (problem === null) {
      const notes = ['New agents get a disk of their own, in an image that the kernel holds to its size.'];
      if (!isDirect)
        notes.push(
          'BERTH_DATA_DIR lies on a file system or disk without direct writes: an agent that writes much slows down its neighbours.',
        );
      return { isHard: true, problems: [], notes };
    }
    if (this.mode === 'auto')
      return { isHard: false, problems: [], notes: [`Disks are watched. ${problem}`] };
    return { isHard: false, problems: [`BERTH_DISK_MODE=image: ${problem}`], notes: [] };
  }

  /** Makes `workspace/` and `home/`. Idempotent. */
  prepare(volumeDir: string, user: SandboxUser): Promise<void> {
    return this.inTurn(volumeDir, () => this.prepareOnce(volumeDir, user, this.bytes, false));
  }

  /** The same for a sandbox that starts, and fits the volume to its limit. Nothing may run in it. */
  open(volumeDir: string, user: SandboxUser, limitBytes: number): Promise<OpenVolume> {
    return this.inTurn(volumeDir, async () => {
      await this.prepareOnce(volumeDir, user, limitBytes, true);
      if (!this.images.has(volumeDir)) return this.folder(volumeDir, limitBytes);
      const fits = await this.images.fit(volumeDir, limitBytes);
      return this.image(volumeDir, limitBytes, fits);
    });
  }

  /** For one that runs. */
  adopt(volumeDir: string, limitBytes: number): Promise<OpenVolume> {
    return this.inTurn(volumeDir, async () => {
      if (!this.images.has(volumeDir)) return this.folder(volumeDir, limitBytes);
      await this.images.open(volumeDir, null, limitBytes);
      return this.image(volumeDir, limitBytes, this.images.fits(volumeDir, limitBytes));
    });
  }

  /** Idempotent. */
  remove(volumeDir: string): Promise<void> {
    return this.inTurn(volumeDir, () =>
      this.images.has(volumeDir) || this.images.isLeft(volumeDir)
        ? this.images.remove(volumeDir)
        : removeVolume(volumeDir),
    );
  }

  /** Unmounts all but those that sandboxes use that live on. */
  async close(used: Iterable<string>): Promise<void> {
    await this.images.close(new Set(used));
  }

  /** `isUnused`: nothing may run in it. */
  private async prepareOnce(
    volumeDir: string,
    user: SandboxUser,
    limitBytes: number,
    isUnused: boolean,
  ): Promise<void> {
    if (this.images.has(volumeDir) || (await this.shallBeImage(volumeDir))) {
      const isFresh = await this.images.open(volumeDir, user, limitBytes);
      if (!isFresh) await this.images.mend(volumeDir, isUnused);
      // Nothing can be at work on it, so what is half done there was left by a crash of the host.
      if (isFresh) await clearStaged(volumeDir);
    }
    await prepareVolume(volumeDir, user);
  }

  private async shallBeImage(volumeDir: string): Promise<boolean> {
    if (this.mode === 'watch' || this.images.isFolder(volumeDir)) return false;
    const { problem } = await this.trial();
    if (problem === null) return true;
    if (this.mode === 'auto') return false;
    throw new Error(`BERTH_DISK_MODE=image: ${problem}`);
  }

  private async folder(volumeDir: string, limitBytes: number): Promise<OpenVolume> {
    const quota = await quotaFor(volumeDir, limitBytes);
    return {
      quota,
      fileBytes: quota.fileBytes,
      hostDir: volumeDir,
      isFull: () => false,
      isBroken: () => false,
    };
  }

  private async image(volumeDir: string, limitBytes: number, fits: boolean): Promise<OpenVolume> {
    // One that could not be made as small as the limit is watched like a folder.
    const quota = fits ? null : await quotaFor(volumeDir, limitBytes);
    return {
      quota,
      fileBytes: quota?.fileBytes ?? limitBytes,
      hostDir: this.images.folder,
      isFull: () => this.images.isFull(volumeDir),
      isBroken: () => this.images.isBroken(volumeDir),
    };
  }

  /** One thing at a time is done to a volume. */
  private inTurn<T>(volumeDir: string, work: () => Promise<T>): Promise<T> {
    const mine = (this.queues.get(volumeDir) ?? Promise.resolve()).then(work);
    const tail: Promise<unknown> = mine
      .catch(() => undefined)
      .then(() => {
        if (this.queues.get(volumeDir) === tail) this.queues.delete(volumeDir);
      });
    this.queues.set(volumeDir, tail);
    return mine;
  }
}
