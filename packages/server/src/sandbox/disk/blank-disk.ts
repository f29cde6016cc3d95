import { existsSync, statSync } from 'node:fs';
import { mkdir, rename, rm, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { deed } from '../../domain/deeds.ts';
import type { Log } from '../../domain/log.ts';
import { addReserve, blankOf, imageBytesFor, lockOf, makeImage } from './image-file.ts';
import { isMountPoint, mountImage, unmount } from './image-mounts.ts';

/** Unmounts what is mounted there and removes the folder, never what is in it. */
export async function discardBlank(folder: string): Promise<void> {
  if (!existsSync(folder)) return;
  if (isMountPoint(folder)) await unmount(folder, true);
  await deed(folder, () => rmdir(folder));
}

const fileOf = (folder: string): string => `${folder}.img`;

export interface BlankDiskOptions {
  /** Mounts at one folder what is mounted at another. When it rejects, it may be at either or both. */
  move: (from: string, to: string) => Promise<void>;
  /** Before one is made: whatever asks for it has something better to do at first. */
  pauseMs: number;
}

/**
 * One image that is nobody's yet, formatted, with its room set aside, and mounted: the first turn of a new agent waits
 * only until it has its name and its place. It ends with the service, or with the next one's start.
 */
export class BlankDisk {
  private readonly imagesDir: string;
  private readonly move: BlankDiskOptions['move'];
  private readonly pauseMs: number;
  private readonly log: Log;
  /** The kernel gives its device number to no other while it is mounted. */
  private ready: { folder: string; bytes: number; dev: number } | null = null;
  /** Folders of those that were made, of which something may be left. */
  private readonly left = new Set<string>();
  private count = 0;
  private readonly closing = new AbortController();
  /** One thing at a time is done to it. */
  private last: Promise<unknown> = Promise.resolve();

  constructor(imagesDir: string, { move, pauseMs }: BlankDiskOptions, log: Log) {
    this.imagesDir = imagesDir;
    this.move = move;
    this.pauseMs = pauseMs;
    this.log = log;
  }

  /** Whether one for this limit is ready, so that the next agent needs no more room. */
  isReady(limitBytes: number): boolean {
    return this.ready?.bytes === imageBytesFor(limitBytes);
  }

  /** Makes one when there is none, a little later. One that failed is tried again by the next call. */
  async keep(limitBytes: number): Promise<void> {
    if (this.ready) return;
    const { signal } = this.closing;
    await delay(this.pauseMs, undefined, { signal, ref: false }).catch(() => undefined);
    await this.inTurn(async () => {
      if (!signal.aborted && !this.ready) await this.make(limitBytes);
    });
  }

  /**
   * Gives it to an agent, as `image`, mounted at `volumeDir`. False: there is none, or it could not be mounted there; then the
   * image may be there all the same.
   */
  async give(image: string, volumeDir: string, limitBytes: number): Promise<boolean> {
    // Nobody waits for one that is being made: to make another takes no longer.
    if (!this.ready || !this.isReady(limitBytes)) return false;
    const { folder, dev } = this.ready;
    this.ready = null;
    return this.inTurn(async () => {
      try {
        // Else its folder would be moved, and nothing of a disk.
        if (statSync(folder).dev !== dev) throw new Error('Somebody has unmounted it.');
        await deed(image, () => rename(fileOf(folder), image));
        await this.move(folder, volumeDir);
        if (statSync(volumeDir).dev !== dev) throw new Error('Another disk was mounted.');
        return true;
      } catch (error) {
        this.log.warn('A disk that was ready could not be given.', { image, error: String(error) });
        // An order that was given up and is done late must find nothing to move.
        await this.discard().catch((left: unknown) =>
          this.log.warn('It could not be removed.', { folder, error: String(left) }),
        );
        if (isMountPoint(volumeDir)) await unmount(volumeDir, true);
        return false;
      }
    });
  }

  async close(): Promise<void> {
    this.closing.abort();
    await this.inTurn(async () => {
      this.ready = null;
      await this.discard();
    });
  }

  private async make(limitBytes: number): Promise<void> {
    await this.discard();
    // Each has a name of its own: what is done late to an earlier one must not reach it.
    const folder = join(this.imagesDir, blankOf((this.count += 1)));
    this.left.add(folder);
    try {
      await mkdir(folder, { recursive: true, mode: 0o700 });
      await makeImage(fileOf(folder), limitBytes, null);
      await mountImage(fileOf(folder), folder, this.log);
      await addReserve(folder, limitBytes);
      this.ready = { folder, bytes: imageBytesFor(limitBytes), dev: statSync(folder).dev };
      this.log.debug('A disk is ready for the next new agent.');
    } catch (error) {
      await this.discard().catch(() => undefined);
      throw error;
    }
  }

  private async discard(): Promise<void> {
    for (const folder of this.left) {
      await discardBlank(folder);
      for (const path of [fileOf(folder), lockOf(fileOf(folder))])
        await deed(folder, () => rm(path, { force: true }));
      this.left.delete(folder);
    }
  }

  private inTurn<T>(work: () => Promise<T>): Promise<T> {
    const mine = this.last.then(work);
    this.last = mine.catch(() => undefined);
    return mine;
  }
}
