import { readdirSync, realpathSync, statfsSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { readText } from './files.ts';

/** What a sandbox may write to a disk: the device as `<major>:<minor>`, bytes a second. */
export interface WriteLimit {
  device: string;
  bytesPerSecond: number;
}

/** Of statfs(2). */
const EXT = 0xef53;
const XFS = 0x58465342;

/**
 * The limit for the disk that holds `folder`; null where there is none to set. Where others' commits to the file system would
 * wait for what is held back here, a limit would harm those whom it protects: a journal of ext4 waits for the data of all
 * files that grew, so only one without a journal is limited, and XFS, whose log waits for no data.
 */
export function writeLimit(folder: string, bytesPerSecond: number): WriteLimit | null {
  if (bytesPerSecond === 0) return null;
  try {
    const { type } = statfsSync(folder);
    if (type !== EXT && type !== XFS) return null;
    const place = realpathSync(join('/sys/dev/block', numbersOf(statSync(folder).dev)));
    if (type === EXT && hasJournal(basename(place))) return null;
    // What a partition is given is limited at its disk.
    const disk = readText(join(place, 'partition')) === null ? place : dirname(place);
    const device = readText(join(disk, 'dev'))?.trim();
    return device ? { device, bytesPerSecond } : null;
  } catch {
    // The file system is on no block device, or this is no Linux.
    return null;
  }
}

/** As makedev(3) of the C library puts them together. */
function numbersOf(dev: number): string {
  const bits = BigInt(dev);
  const major = ((bits >> 8n) & 0xfffn) | ((bits >> 32n) & ~0xfffn);
  const minor = (bits & 0xffn) | ((bits >> 12n) & ~0xffn & 0xffffffffn);
  return `${major}:${minor}`;
}

/** Each journal in use has a folder there, by the name of the device and the number of its file. */
function hasJournal(device: string): boolean {
  try {
    return readdirSync('/proc/fs/jbd2').some((name) => name.startsWith(`${device}-`));
  } catch {
    return false;
  }
}
