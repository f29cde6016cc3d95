import { existsSync, readFileSync, readdirSync, readlinkSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Log } from '../../domain/log.ts';
import { allocateImage, checkImage, tool } from './image-file.ts';

const BUSY_TRIES = 40;
const BUSY_MS = 50;
/** Far below what the arguments of a program may take. */
const UNMOUNTED_AT_ONCE = 200;
/** Exit codes of umount(8). */
const NONE_UNMOUNTED = 32;
const SOME_UNMOUNTED = 64;

/** Whether another file system lies on the folder. */
export function isMounted(folder: string): boolean {
  const stat = statSync(folder, { throwIfNoEntry: false });
  return stat !== undefined && stat.dev !== statSync(dirname(folder)).dev;
}

/** Whether anything is mounted there, also a folder of the same file system. */
export const isMountPoint = (folder: string): boolean => mounts().some((mount) => mount.folder === folder);

/** How the kernel says so of ext4: older ones make it read-only, newer ones (from 6.14) leave it as it is but for a mark. */
const CLOSED_OPTIONS = ['ro', 'emergency_ro', 'shutdown'];

/** Whether the kernel has stopped writing to what is mounted there, after an error. */
export function isReadOnly(folder: string): boolean {
  return mounts().some(
    (mount) =>
      mount.folder === folder && CLOSED_OPTIONS.some((option) => mount.superOptions.includes(option)),
  );
}

/**
 * Mends what is left of a crash first, where nobody has it mounted. Resolves with whether what is written in it passes by the
 * memory of the host; see `writeDirectly`.
 */
export async function mountImage(image: string, folder: string, log: Log): Promise<boolean> {
  // Without `discard`: an image keeps the room that it was given.
  const options = ['nosuid', 'nodev', 'noinit_itable'];
  await allocateImage(image, log);
  for (let tries = 1; ; tries += 1) {
    const device = await deviceOf(image);
    if (device === null) await checkImage(image, log);
    // One that mount finds for itself is in its hands until it is mounted, so that nobody can take it for a stray one.
    const source =
      device === null ? ['-o', ['loop', ...options].join(','), image] : ['-o', options.join(','), device];
    try {
      await tool('mount', ['-t', 'ext4', ...source, folder], [0], image);
      if (isMountOf(image, folder)) return await writeDirectly(image);
      // The device that was found was given back meanwhile, and has become another image's.
      await unmount(folder, true);
      if (tries === BUSY_TRIES) throw new Error(`${image} cannot be mounted: its loop device changes hands.`);
    } catch (error) {
      // Whoever had it mounted has let go of it just now.
      const isGone = device !== null && loopOf(image)?.device !== device;
      if (!isGone || tries === BUSY_TRIES) throw error;
    }
  }
}

/**
 * Lets the loop device of a mounted image write past the memory of the host. Else what is written gathers there until somebody asks
 * for it to be kept, and then hundreds of megabytes come to the disk at once, behind which every commit of the service's database
 * waits (docs/decisions/0335). Resolves with whether it does; where the file system of the host, or its disk, knows no such writes, it
 * goes on as before.
 */
export async function writeDirectly(image: string): Promise<boolean> {
  const loop = loopOf(image);
  if (loop === undefined) return false;
  if (!loop.isDirect) await tool('losetup', ['--direct-io=on', loop.device]).catch(() => undefined);
  return loopOf(image)?.isDirect ?? false;
}

/**
 * After `unmount`: whether nobody has the image in his hands any more, so that it is whole and may be changed. The kernel gives
 * its loop device back a moment after the last mount is gone, and every start of a sandbox on the host, of whomever, has a
 * copy of all mounts for a moment. While one of them is left, what was written last is in the memory of the kernel only.
 */
export async function isLetGo(image: string): Promise<boolean> {
  for (let tries = 1; loopOf(image) !== undefined; tries += 1) {
    if (tries === BUSY_TRIES) return false;
    await delay(BUSY_MS);
  }
  return true;
}

/**
 * The loop device by which an image is mounted: in a sandbox that lives on, or in another mount namespace. A second one
 * would destroy what is in it. Null: nobody has it. One that is about to be given back cannot be used.
 */
async function deviceOf(image: string): Promise<string | null> {
  for (let tries = 1; ; tries += 1) {
    const loop = loopOf(image);
    if (loop === undefined) return null;
    if (tries === BUSY_TRIES || isMountedAnywhere(loop.numbers)) return loop.device;
    await delay(BUSY_MS);
  }
}

/** In any mount namespace in which there is a process. `numbers`: as in proc_pid_mountinfo(5), `major:minor`. */
function isMountedAnywhere(numbers: string): boolean {
  const seen = new Set<string>();
  for (const pid of readdirSync('/proc')) {
    if (!/^\d+$/.test(pid)) continue;
    try {
      const namespace = readlinkSync(`/proc/${pid}/ns/mnt`);
      if (seen.has(namespace)) continue;
      const lines = readFileSync(`/proc/${pid}/mountinfo`, 'utf8').split('\n');
      seen.add(namespace);
      if (lines.some((line) => line.split(' ')[2] === numbers)) return true;
    } catch (error) {
      // Else it ended.
      throwShortage(error);
    }
  }
  return false;
}

/** False: somebody has files open there. `must`: then it goes as soon as they are closed. */
export async function unmount(folder: string, must: boolean): Promise<boolean> {
  for (let tries = 1; ; tries += 1) {
    try {
      await tool('umount', [folder]);
      return true;
    } catch (error) {
      if (!isMounted(folder)) return true;
      if (tries < BUSY_TRIES && must) await delay(BUSY_MS);
      else if (!must) return false;
      else if (tries === BUSY_TRIES) {
        await tool('umount', ['--lazy', folder]);
        return true;
      } else throw error;
    }
  }
}

/** All that nobody has files open in. Many by one program, since a service that stops has little time for it. */
export async function unmountIdle(folders: string[]): Promise<void> {
  for (let from = 0; from < folders.length; from += UNMOUNTED_AT_ONCE)
    await tool('umount', folders.slice(from, from + UNMOUNTED_AT_ONCE), [0, NONE_UNMOUNTED, SOME_UNMOUNTED]);
}

/** Folders on which images of `imagesDir` are mounted. */
export function mountedFrom(imagesDir: string): { folder: string; image: string }[] {
  const images = new Map(loops().map(({ device, backing }) => [device, backing]));
  return mounts().flatMap(({ folder, source }) => {
    const image = images.get(source);
    return image?.startsWith(`${imagesDir}/`) ? [{ folder, image }] : [];
  });
}

/** By what the kernel says of the folder's device: names may lead by links. */
function isMountOf(image: string, folder: string): boolean {
  const { dev } = statSync(folder);
  // A container sees more devices of the host than it has nodes for.
  const numberOf = (path: string) => statSync(path, { throwIfNoEntry: false })?.rdev;
  const backing = loops().find(({ device }) => numberOf(device) === dev)?.backing;
  const [own, its] = [image, backing ?? ''].map((path) => statSync(path, { throwIfNoEntry: false }));
  return own !== undefined && own.dev === its?.dev && own.ino === its.ino;
}

/** Loop devices that a crash left without a mount let go of their images. */
export async function detachStray(imagesDir: string): Promise<string[]> {
  const used = new Set(mounts().map(({ source }) => source));
  const stray = loops().filter(
    ({ device, backing }) => backing.startsWith(`${imagesDir}/`) && !used.has(device),
  );
  // One that a sandbox still has mounted stays until that is gone: the kernel sees to it.
  for (const { device } of stray) await tool('losetup', ['--detach', device]).catch(() => undefined);
  return stray.map(({ device }) => device);
}

interface Mount {
  folder: string;
  source: string;
  superOptions: string[];
}

/** proc_pid_mountinfo(5): optional fields end with ` - `; blanks in names are written in octal. */
function mounts(): Mount[] {
  return readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .flatMap((line) => {
      const [head = '', tail = ''] = line.split(' - ');
      const folder = head.split(' ')[4];
      const [, source, options] = tail.split(' ');
      if (folder === undefined || source === undefined) return [];
      return [{ folder: plain(folder), source: plain(source), superOptions: (options ?? '').split(',') }];
    });
}

function plain(name: string): string {
  return name.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}

/** What the service has too few of says nothing of who has an image: it must not be taken for free. */
function throwShortage(error: unknown): void {
  if (['EMFILE', 'ENFILE', 'ENOMEM'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
}

const loopOf = (image: string) => loops().find(({ backing }) => backing === image);

/** Loop devices in use. The kernel writes ` (deleted)` after the name of an image that is gone. */
function loops(): { device: string; numbers: string; backing: string; isDirect: boolean }[] {
  if (!existsSync('/sys/block')) return [];
  return readdirSync('/sys/block').flatMap((name) => {
    if (!name.startsWith('loop')) return [];
    try {
      const backing = readFileSync(join('/sys/block', name, 'loop/backing_file'), 'utf8').trimEnd();
      const numbers = readFileSync(join('/sys/block', name, 'dev'), 'utf8').trim();
      const isDirect = readFileSync(join('/sys/block', name, 'loop/dio'), 'utf8').trim() === '1';
      return [{ device: `/dev/${name}`, numbers, backing, isDirect }];
    } catch (error) {
      throwShortage(error);
      // Not in use.
      return [];
    }
  });
}
