import type { Log } from '../domain/log.ts';
import { missingForImages, tryImage, type ImageTrial } from './disk/image-probe.ts';
import type { BlankDiskOptions } from './disk/blank-disk.ts';
import { DiskImages } from './disk/images.ts';
import { quotaFor, type Quota } from './disk/quota.ts';
import { clearStaged, prepareVolume, removeVolume, type SandboxUser } from './volume.ts';

/**
 * How new volumes are held to their size. `image`: by a file system of their own, or not at all. `watch`: by measuring.
 * `auto`: the former where it works, else the latter.
 */
export type DiskMode = 'auto' | 'image' | 'watch';

const NO_ROOM =
  'The disk of BERTH_DATA_DIR has no room for an image of one more agent: new ones are watched until it has. A tenth of it, and 1 GiB, stay free.';

const NOT_DIRECT =
  'BERTH_DATA_DIR lies on a file system or disk without direct writes: an agent that writes much slows down its neighbours.';

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
  private hasTold = false;

  constructor({ mode, imagesDir, bytes }: DiskOptions, log: Log, blanks: BlankDiskOptions | null = null) {
    this.mode = mode;
    this.bytes = bytes;
    this.log = log;
    this.images = new DiskImages(imagesDir, log, blanks);
  }

  /** Whether new volumes can be images here. */
  private trial(): Promise<ImageTrial> {
    return (this.found ??= tryImage(this.images.folder, this.log));
  }

  /** For the driver's report: whether new volumes are images, and what there is to say of it. Not `isThorough`: without a trial. */
  async report(isThorough: boolean): Promise<{ isHard: boolean; problems: string[]; notes: string[] }> {
    if (this.mode === 'watch') return { isHard: false, problems: [], notes: [] };
    // What is asked for by name must be known to work before anybody relies on it.
    if (this.mode === 'auto' && !isThorough)
      return { isHard: missingForImages() === null, problems: [], notes: [] };
    const problem = await this.problem();
    if (problem !== null) {
      return this.mode === 'auto'
        ? { isHard: false, problems: [], notes: [`Disks are watched. ${problem}`] }
        : { isHard: false, problems: [`BERTH_DISK_MODE=image: ${problem}`], notes: [] };
    }
    const notes = ['New agents get a disk of their own, in an image that the kernel holds to its size.'];
    if (this.mode === 'auto' && !(await this.images.hasRoom(this.bytes))) notes.push(NO_ROOM);
    if (!(await this.trial()).isDirect) notes.push(NOT_DIRECT);
    return { isHard: true, problems: [], notes };
  }

  /** What stands against images here; null when nothing does. */
  private async problem(): Promise<string | null> {
    const { problem, isSafe } = await this.trial();
    if (problem !== null || isSafe || this.mode === 'image') return problem;
    return 'The file system of BERTH_DATA_DIR lies in memory, or cannot set room aside.';
  }

  /** Makes the disk of the next new agent before it is there, where it is to be an image. What fails is told in the log. */
  async expect(limitBytes: number): Promise<void> {
    // That of a trial is of another size.
    if (this.mode === 'watch' || limitBytes !== this.bytes) return;
    try {
      if (await this.wantsImage(limitBytes)) await this.images.keepBlank(limitBytes);
    } catch (error) {
      this.log.warn('No disk could be made before its agent.', { error: String(error) });
    }
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
    if (this.images.has(volumeDir) || (await this.shallBeImage(volumeDir, limitBytes))) {
      const isFresh = await this.images.open(volumeDir, user, limitBytes);
      if (!isFresh) await this.images.mend(volumeDir, isUnused);
      // Nothing can be at work on it, so what is half done there was left by a crash of the host.
      if (isFresh) await clearStaged(volumeDir);
    }
    await prepareVolume(volumeDir, user);
  }

  private async shallBeImage(volumeDir: string, limitBytes: number): Promise<boolean> {
    if (this.mode === 'watch' || this.images.isFolder(volumeDir)) return false;
    if (await this.wantsImage(limitBytes)) return true;
    if (this.mode === 'auto') return false;
    throw new Error(`BERTH_DISK_MODE=image: ${await this.problem()}`);
  }

  /** Whether the next new volume is an image. */
  private async wantsImage(limitBytes: number): Promise<boolean> {
    const problem = await this.problem();
    if (problem === null && (this.mode !== 'auto' || (await this.images.hasRoom(limitBytes)))) return true;
    if (this.mode === 'auto' && !this.hasTold) {
      this.hasTold = true;
      this.log.warn(problem === null ? NO_ROOM : `The disks of new agents are watched. ${problem}`);
    }
    return false;
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
