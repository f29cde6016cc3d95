import type { Log } from '../domain/log.ts';
import { missingForImages, tryImage, type ImageTrial } from './disk/image-probe.ts';
import type { BlankDiskOptions } from './disk/blank-disk.ts';
import { DiskImages } from './disk/images.ts';
import { diskPace, type DiskPace } from './disk/pace.ts';
import { quotaFor, type Quota } from './disk/quota.ts';
import { realFolder, realVolume } from './disk/real-folder.ts';
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

/** Of the sandbox that a driver tries itself with: less than an agent may have. `auto` makes no image for it. */
export const TRIAL_DISK_BYTES = 15 * 1024 * 1024;

export interface DiskOptions {
  mode: DiskMode;
  /** Folder for the images, closed for everybody but the service. */
  imagesDir: string;
  /** The size of volumes that are used before a sandbox with another limit starts. */
  bytes: number;
  /** What an agent may write to an image in a second; absent or 0: as much as the disk takes. */
  bytesPerSecond?: number;
}

/** A volume as a sandbox is about to use it. */
export interface OpenVolume {
  /** RLIMIT_FSIZE. */
  fileBytes: number;
  /** What has to be watched; null where the kernel holds the limit. */
  quota: Quota | null;
  /** What is written to it in a second; null where that is as it comes. Whoever asks for it closes it. */
  pace(): DiskPace | null;
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
  private readonly bytesPerSecond: number;
  private readonly log: Log;
  private readonly images: DiskImages;
  private readonly queues = new Map<string, Promise<unknown>>();
  private found: Promise<ImageTrial> | null = null;
  private hasTold = false;
  private expected: Promise<void> | null = null;

  constructor(
    { mode, imagesDir, bytes, bytesPerSecond = 0 }: DiskOptions,
    log: Log,
    blanks: BlankDiskOptions | null = null,
  ) {
    this.bytesPerSecond = bytesPerSecond;
    this.mode = mode;
    this.bytes = bytes;
    this.log = log;
    this.images = new DiskImages(realFolder(imagesDir), log, blanks);
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
    if (this.mode === 'auto') {
      const release = await this.images.plan(this.bytes);
      if (!release) notes.push(NO_ROOM);
      release?.();
    }
    if (!(await this.trial()).isDirect) notes.push(NOT_DIRECT);
    if (this.bytesPerSecond > 0)
      notes.push(
        `An agent may write ${this.bytesPerSecond / 1024 / 1024} MiB a second to it; one that writes more stands still for a while, where sandboxes can be frozen.`,
      );
    return { isHard: true, problems: [], notes };
  }

  /** What stands against images here; null when nothing does. */
  private async problem(): Promise<string | null> {
    const { problem, isSafe } = await this.trial();
    if (problem !== null || isSafe || this.mode === 'image') return problem;
    return 'The file system of BERTH_DATA_DIR lies in memory, or cannot set room aside.';
  }

  /** Makes the disk of the next new agent before it is there, where it is to be an image. What fails is told in the log. */
  expect(limitBytes: number): Promise<void> {
    if (this.mode === 'watch' || limitBytes !== this.bytes || this.images.isBlankReady(limitBytes))
      return Promise.resolve();
    // It is one, however many ask for it, and takes the room of one.
    this.expected ??= this.expectOne(limitBytes).finally(() => (this.expected = null));
    return this.expected;
  }

  private async expectOne(limitBytes: number): Promise<void> {
    try {
      if ((await this.problem()) !== null) return;
      // The room of what earlier services made for nobody is this one's.
      await this.images.takeOver();
      const release = await this.images.plan(limitBytes);
      if (release) await this.images.keepBlank(limitBytes).finally(release);
    } catch (error) {
      this.log.warn('No disk could be made before its agent.', { error: String(error) });
    }
  }

  /** Makes `workspace/` and `home/`. Idempotent. */
  prepare(volumeDir: string, user: SandboxUser): Promise<void> {
    return this.inTurn(volumeDir, (dir) => this.prepareOnce(dir, user, this.bytes, false));
  }

  /** The same for a sandbox that starts, and fits the volume to its limit. Nothing may run in it. */
  open(volumeDir: string, user: SandboxUser, limitBytes: number): Promise<OpenVolume> {
    return this.inTurn(volumeDir, async (dir) => {
      await this.prepareOnce(dir, user, limitBytes, true);
      if (!this.images.has(dir)) return this.folder(dir, limitBytes);
      const fits = await this.images.fit(dir, limitBytes);
      return this.image(dir, limitBytes, fits);
    });
  }

  /** For one that runs. */
  adopt(volumeDir: string, limitBytes: number): Promise<OpenVolume> {
    return this.inTurn(volumeDir, async (dir) => {
      if (!this.images.has(dir)) return this.folder(dir, limitBytes);
      await this.images.open(dir, null, limitBytes);
      return this.image(dir, limitBytes, this.images.fits(dir, limitBytes));
    });
  }

  /** Idempotent. */
  remove(volumeDir: string): Promise<void> {
    return this.inTurn(volumeDir, (dir) =>
      this.images.has(dir) || this.images.isLeft(dir) ? this.images.remove(dir) : removeVolume(dir),
    );
  }

  /** Unmounts all but those that sandboxes use that live on. */
  async close(used: Iterable<string>): Promise<void> {
    await this.images.close(new Set([...used].map(realVolume)));
  }

  /** `isUnused`: nothing may run in it. */
  private async prepareOnce(
    volumeDir: string,
    user: SandboxUser,
    limitBytes: number,
    isUnused: boolean,
  ): Promise<void> {
    const isImage = this.images.has(volumeDir) || (await this.madeImage(volumeDir, user, limitBytes));
    if (isImage) {
      const isFresh = await this.images.open(volumeDir, user, limitBytes);
      if (!isFresh) await this.images.mend(volumeDir, isUnused);
      // Nothing can be at work on it, so what is half done there was left by a crash of the host.
      if (isFresh) await clearStaged(volumeDir);
    }
    await prepareVolume(volumeDir, user);
  }

  /** Makes the image of a new volume, and mounts it. False: it is to be a folder. */
  private async madeImage(volumeDir: string, user: SandboxUser, limitBytes: number): Promise<boolean> {
    if (this.mode === 'watch' || this.images.isFolder(volumeDir)) return false;
    const isAuto = this.mode === 'auto';
    if (isAuto && limitBytes === TRIAL_DISK_BYTES) return false;
    let release: (() => void) | null = null;
    try {
      const problem = await this.problem();
      release = problem === null ? await this.planImage(limitBytes) : null;
      if (!release) {
        if (!isAuto) throw new Error(`BERTH_DISK_MODE=image: ${problem}`);
        // What is so for every agent is told once.
        if (problem === null) this.log.warn(NO_ROOM, { volumeDir });
        else if (!this.hasTold) this.log.warn(`The disks of new agents are watched. ${problem}`);
        this.hasTold ||= problem !== null;
        return false;
      }
      await this.images.open(volumeDir, user, limitBytes);
      return true;
    } catch (error) {
      if (!isAuto) throw error;
      // As when there are no more loop devices. Nothing is in it yet.
      this.log.warn('A new agent is watched, since its disk could not be made.', {
        volumeDir,
        error: String(error),
      });
      await this.images.remove(volumeDir);
      return false;
    } finally {
      release?.();
    }
  }

  /** Null: the next new volume is none. Else it has its room until the function is called. */
  private async planImage(limitBytes: number): Promise<(() => void) | null> {
    if (limitBytes !== TRIAL_DISK_BYTES) await this.images.takeOver();
    const release = await this.images.plan(limitBytes);
    // An image that was asked for by name is made while there is any room at all.
    return release ?? (this.mode === 'image' ? () => undefined : null);
  }

  private async folder(volumeDir: string, limitBytes: number): Promise<OpenVolume> {
    const quota = await quotaFor(volumeDir, limitBytes);
    return {
      quota,
      fileBytes: quota.fileBytes,
      hostDir: volumeDir,
      pace: () => null,
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
      // One that is watched stands still for that.
      pace: () => (quota ? null : diskPace(volumeDir, this.bytesPerSecond)),
      isFull: () => this.images.isFull(volumeDir),
      isBroken: () => this.images.isBroken(volumeDir),
    };
  }

  /** One thing at a time is done to a volume. */
  private inTurn<T>(volumeDir: string, work: (realDir: string) => Promise<T>): Promise<T> {
    const mine = (this.queues.get(volumeDir) ?? Promise.resolve()).then(() => work(realVolume(volumeDir)));
    const tail: Promise<unknown> = mine
      .catch(() => undefined)
      .then(() => {
        if (this.queues.get(volumeDir) === tail) this.queues.delete(volumeDir);
      });
    this.queues.set(volumeDir, tail);
    return mine;
  }
}
