import { closeSync, constants, fstatSync, openSync, readlinkSync } from 'node:fs';
import type { BigIntStats } from 'node:fs';
import { join } from 'node:path';
import { DomainError } from '../domain/errors.ts';
import type { VolumeEntry, VolumePath } from '../domain/ports/volume.ts';

/**
 * The only way by which the service looks at what a sandbox made. A descriptor pins each folder, and the next name is
 * looked up in it, through /proc/self/fd, by a call that follows no link: whatever is renamed or replaced meanwhile,
 * the walk cannot leave the volume. Descriptors are opened with O_PATH, which touches no pipe and no device. Looking up
 * a name takes microseconds on a local file system, so these calls are synchronous, like those of the sandbox room;
 * whatever changes, reads or writes files is done in deeds (`domain/deeds.ts`).
 */

/** Linux has it on every architecture that Node runs on; Node does not name it. */
const O_PATH = 0o10000000;
const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_NOCTTY, O_RDONLY } = constants;

/** A folder in a folder and so on costs a descriptor each while an archive is written. */
export const MAX_DEPTH = 256;

const EARLIEST_MS = Date.UTC(1000, 0, 1);
const LATEST_MS = Date.UTC(9999, 11, 31, 23, 59, 59);

/** Refers to what a descriptor of this process has open. */
export const fdPath = (fd: number): string => `/proc/self/fd/${fd}`;

/** Refers to a name in an open folder. */
export function inFolder(folderFd: number, name: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`/proc/self/fd/${folderFd}/`), name]);
}

export const missing = () => new DomainError('not_found', 'There is no such file or folder in the sandbox.');
export const conflict = (message: string) => new DomainError('conflict', message);

/** The caller closes what it gets. */
export function openTree(volumeDir: string, tree: VolumePath['tree']): number {
  return guarded(() => openSync(join(volumeDir, tree), O_PATH | O_DIRECTORY | O_NOFOLLOW));
}

/** A descriptor of whatever has this name, a link itself included; it can be looked at, not read. */
export function step(folderFd: number, name: Buffer): number {
  return guarded(() => openSync(inFolder(folderFd, name), O_PATH | O_NOFOLLOW));
}

/** Throws `not_found` when it is no folder; a link to one is none. */
export function stepIntoFolder(folderFd: number, name: Buffer): number {
  return guarded(() => openSync(inFolder(folderFd, name), O_PATH | O_DIRECTORY | O_NOFOLLOW));
}

/** The folder at a path. */
export function openFolder(volumeDir: string, path: VolumePath): number {
  return descend(openTree(volumeDir, path.tree), path.names);
}

/** Walks from a folder, whose descriptor it closes, to one below it. */
export function descend(fromFd: number, names: Buffer[]): number {
  let at = fromFd;
  for (const name of names) {
    const next = attempt(() => stepIntoFolder(at, name), at);
    closeSync(at);
    at = next;
  }
  return at;
}

/** The file, link, folder or whatever is at a path, as a descriptor to look at, with its folder's. */
export function openEntry(volumeDir: string, path: VolumePath): { fd: number; stats: BigIntStats } {
  const last = path.names.at(-1);
  if (!last) {
    const fd = openTree(volumeDir, path.tree);
    return { fd, stats: fstatSync(fd, { bigint: true }) };
  }
  const folderFd = openFolder(volumeDir, { ...path, names: path.names.slice(0, -1) });
  try {
    const fd = step(folderFd, last);
    return { fd, stats: fstatSync(fd, { bigint: true }) };
  } finally {
    closeSync(folderFd);
  }
}

/**
 * Opens for reading exactly what the descriptor has: it was looked at before, so it is no pipe that would wait for a
 * writer. O_NONBLOCK all the same.
 */
export function openToRead(fd: number): number {
  return guarded(() => openSync(fdPath(fd), O_RDONLY | O_NONBLOCK | O_NOCTTY));
}

export function entryOf(name: Buffer, stats: BigIntStats, folderFd: number | null): VolumeEntry {
  const type = typeOf(stats);
  return {
    name,
    type,
    sizeBytes: type === 'file' ? Number(stats.size) : 0,
    mode: Number(stats.mode & 0o777n),
    modifiedAt: dateOf(stats.mtimeNs),
    target: type === 'link' && folderFd !== null ? targetOf(folderFd, name) : null,
    version: `${stats.ino.toString(36)}-${stats.size.toString(36)}-${stats.ctimeNs.toString(36)}`,
  };
}

/** A program sets the time that it likes, and file systems keep years that neither a date nor HTTP can tell. */
function dateOf(mtimeNs: bigint): Date {
  const ms = Number(mtimeNs / 1_000_000n);
  return new Date(Math.min(Math.max(ms, EARLIEST_MS), LATEST_MS));
}

function typeOf(stats: BigIntStats): VolumeEntry['type'] {
  if (stats.isFile()) return 'file';
  if (stats.isDirectory()) return 'folder';
  return stats.isSymbolicLink() ? 'link' : 'other';
}

/** Only read, never followed. Null when it is no link any more. */
export function targetOf(folderFd: number, name: Buffer): Buffer | null {
  try {
    return readlinkSync(inFolder(folderFd, name), { encoding: 'buffer' });
  } catch {
    return null;
  }
}

/** Does it, and closes the descriptor when it throws. */
export function attempt<T>(work: () => T, fd: number): T {
  try {
    return work();
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** System errors that a caller brings about, as words to it. */
export function guarded<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw told(error);
  }
}

export async function telling<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw told(error);
  }
}

export function told(error: unknown): unknown {
  switch ((error as NodeJS.ErrnoException).code) {
    case 'ENOENT':
    case 'ENOTDIR':
    case 'ELOOP':
      return missing();
    case 'EISDIR':
    case 'ENOTEMPTY':
    case 'EEXIST':
      return conflict('A program in the sandbox changed it meanwhile; try again.');
    case 'EMLINK':
      return conflict('The folder holds as many folders as the file system allows.');
    case 'ENAMETOOLONG':
      return new DomainError('invalid_request', 'path: a name may have at most 255 bytes', {
        details: [{ path: 'path', message: 'a name may have at most 255 bytes' }],
      });
    case 'EACCES':
    case 'EPERM':
      return conflict(
        'Its owner in the sandbox has closed this file or folder; change its mode there first.',
      );
    case 'ENOSPC':
    case 'EDQUOT':
    case 'EFBIG':
      return new DomainError('body_too_large', 'There is no room left on the disk of the sandbox.');
    default:
      return error;
  }
}
