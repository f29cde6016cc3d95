import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { checkImage, tool } from './image-file.ts';

const BUSY_TRIES = 40;
const BUSY_MS = 50;

/** Whether another file system lies on the folder. */
export function isMounted(folder: string): boolean {
  const stat = statSync(folder, { throwIfNoEntry: false });
  return stat !== undefined && stat.dev !== statSync(dirname(folder)).dev;
}

/** Whether the kernel has stopped writing to what is mounted there, after an error. */
export function isReadOnly(folder: string): boolean {
  return mounts().some((mount) => mount.folder === folder && mount.superOptions.includes('ro'));
}

export async function mountImage(image: string, folder: string): Promise<void> {
  const options = ['nosuid', 'nodev', 'discard', 'noinit_itable'];
  // A sandbox that lives on, or another mount namespace, may have it mounted: twice would destroy it.
  const device = loops().find((loop) => loop.backing === image)?.device;
  if (device === undefined) await checkImage(image);
  const source =
    device === undefined ? ['-o', ['loop', ...options].join(','), image] : ['-o', options.join(','), device];
  await tool('mount', ['-t', 'ext4', ...source, folder], [0], image);
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

/** Folders on which images of `imagesDir` are mounted. */
export function mountedFrom(imagesDir: string): { folder: string; image: string }[] {
  const images = new Map(loops().map(({ device, backing }) => [device, backing]));
  return mounts().flatMap(({ folder, source }) => {
    const image = images.get(source);
    return image?.startsWith(`${imagesDir}/`) ? [{ folder, image }] : [];
  });
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

/** Loop devices in use. The kernel writes ` (deleted)` after the name of an image that is gone. */
function loops(): { device: string; backing: string }[] {
  if (!existsSync('/sys/block')) return [];
  return readdirSync('/sys/block').flatMap((name) => {
    if (!name.startsWith('loop')) return [];
    try {
      const backing = readFileSync(join('/sys/block', name, 'loop/backing_file'), 'utf8').trimEnd();
      return [{ device: `/dev/${name}`, backing }];
    } catch {
      // Not in use.
      return [];
    }
  });
}
