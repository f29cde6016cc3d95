import { closeSync, constants, fstatSync, lstatSync } from 'node:fs';
import { mkdir, rename, rmdir, unlink } from 'node:fs/promises';
import { deed } from '../domain/deeds.ts';
import { DomainError } from '../domain/errors.ts';
import type { VolumeCheck, VolumeEntry, VolumePath, VolumeWriteOptions } from '../domain/ports/volume.ts';
import { close, fchmod, fchown, fdatasync, open, write } from './calls.ts';
import { closeStaging, itIn, openStaging, ownerOf, type Owner, type Staging } from './staging.ts';
import {
  conflict,
  entryOf,
  fdPath,
  inFolder,
  openEntry,
  openFolder,
  openTree,
  step,
  stepIntoFolder,
  telling,
  told,
} from './walk.ts';

const { O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_RDONLY, O_WRONLY } = constants;
const FILE_MODE = 0o644;
const FOLDER_MODE = 0o755;

const folderOf = (path: VolumePath): VolumePath => ({ ...path, names: path.names.slice(0, -1) });

/** Writes beside the volume and moves it into place: whole or not at all. */
export async function writeFile(
  volumeDir: string,
  path: VolumePath,
  content: AsyncIterable<Buffer>,
  options: VolumeWriteOptions,
): Promise<{ entry: VolumeEntry; created: boolean }> {
  if (path.names.length === 0) throw conflict('This is a folder; a file needs a name.');
  const staging = await deed(volumeDir, () => openStaging(volumeDir, ownerOf(volumeDir)));
  try {
    const flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
    const fd = await deed(volumeDir, () => open(itIn(staging), flags, 0o600));
    try {
      await writeAll(volumeDir, fd, content, options.maxBytes);
      await deed(volumeDir, () => fdatasync(fd));
      return await deed(volumeDir, () => place(staging, fd, path, options));
    } finally {
      await deed(volumeDir, () => close(fd));
    }
  } catch (error) {
    throw told(error);
  } finally {
    await closeStaging(staging);
  }
}

/** One deed, so that nothing else of this process comes between the check and the renaming. */
async function place(
  staging: Staging,
  fd: number,
  path: VolumePath,
  options: VolumeWriteOptions,
): Promise<{ entry: VolumeEntry; created: boolean }> {
  const { volumeDir, owner } = staging;
  const name = path.names.at(-1)!;
  const checked = presentAt(volumeDir, path);
  options.check(checked);
  const { fd: folderFd } = await makeFolders(volumeDir, folderOf(path), owner);
  try {
    const before = fileOrNothing(folderFd, name);
    if (owner) await fchown(fd, owner.uid, owner.gid);
    const kept = before?.type === 'file' ? before.mode : FILE_MODE;
    await fchmod(fd, (options.mode ?? kept) & 0o777);
    // The disk may have taken its time meanwhile, and the sandbox may have changed what is there.
    const present = fileOrNothing(folderFd, name);
    if (present?.version !== checked?.version) options.check(present);
    await telling(rename(itIn(staging), inFolder(folderFd, name)));
    return { entry: entryOf(name, fstatSync(fd, { bigint: true }), null), created: present === null };
  } finally {
    await close(folderFd);
  }
}

function fileOrNothing(folderFd: number, name: Buffer): VolumeEntry | null {
  const present = found(folderFd, name);
  if (present?.type === 'folder') throw conflict('There is a folder of this name.');
  return present;
}

export async function writeAll(
  volumeDir: string,
  fd: number,
  content: AsyncIterable<Buffer>,
  maxBytes: number,
): Promise<number> {
  let bytes = 0;
  for await (const piece of content) {
    bytes += piece.length;
    if (bytes > maxBytes)
      throw new DomainError('body_too_large', `There is room for ${maxBytes} bytes in the sandbox.`);
    for (let at = 0; at < piece.length;)
      at += (await deed(volumeDir, () => write(fd, piece, at, piece.length - at))).bytesWritten;
  }
  return bytes;
}

/** Null: there is nothing, or not even its folder. */
function presentAt(volumeDir: string, path: VolumePath): VolumeEntry | null {
  const folderFd = orMissing(() => openFolder(volumeDir, folderOf(path)));
  if (folderFd === null) return null;
  try {
    return found(folderFd, path.names.at(-1)!);
  } finally {
    closeSync(folderFd);
  }
}

function found(folderFd: number, name: Buffer): VolumeEntry | null {
  const fd = orMissing(() => step(folderFd, name));
  if (fd === null) return null;
  try {
    return entryOf(name, fstatSync(fd, { bigint: true }), null);
  } finally {
    closeSync(fd);
  }
}

function orMissing<T>(look: () => T): T | null {
  try {
    return look();
  } catch (error) {
    if (error instanceof DomainError && error.code === 'not_found') return null;
    throw error;
  }
}

/** Walks to a folder and makes what is missing on the way, in a deed. The caller closes the descriptor. */
export async function makeFolders(
  volumeDir: string,
  path: VolumePath,
  owner: Owner | null,
): Promise<{ fd: number; created: boolean }> {
  let at = openTree(volumeDir, path.tree);
  let created = false;
  for (const name of path.names) {
    const from = at;
    try {
      created = await telling(makeOne(from, name));
      at = await enter(from, name, created ? owner : null);
    } finally {
      await close(from);
    }
  }
  return { fd: at, created };
}

async function makeOne(folderFd: number, name: Buffer): Promise<boolean> {
  // Most are there already.
  if (lstatSync(inFolder(folderFd, name), { throwIfNoEntry: false })) return false;
  try {
    await mkdir(inFolder(folderFd, name), FOLDER_MODE);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

/** What was swapped in for a folder just made is a folder of the same owner anyway, or is refused. */
async function enter(folderFd: number, name: Buffer, owner: Owner | null): Promise<number> {
  let fd: number;
  try {
    fd = stepIntoFolder(folderFd, name);
  } catch (error) {
    if (!(error instanceof DomainError) || error.code !== 'not_found') throw error;
    throw conflict('A part of the path is there and is no folder; links are not followed here.');
  }
  if (!owner) return fd;
  try {
    await fchownFolder(fd, owner);
  } catch (error) {
    await close(fd);
    throw told(error);
  }
  return fd;
}

/** A descriptor to look at cannot be changed by; it is opened again for that. In a deed. */
export async function fchownFolder(fd: number, owner: Owner): Promise<void> {
  const own = await open(fdPath(fd), O_RDONLY | O_DIRECTORY);
  try {
    await fchown(own, owner.uid, owner.gid);
  } finally {
    await close(own);
  }
}

/** Deletes a file or link, or an empty folder; with `recursive` a folder is moved away in one step and then deleted. */
export async function removeEntry(
  volumeDir: string,
  path: VolumePath,
  recursive: boolean,
  check: VolumeCheck,
): Promise<void> {
  if (path.names.length === 0)
    throw conflict('The folder itself belongs to the sandbox; delete what is in it.');
  const isFull = await deed(volumeDir, () => removeNow(volumeDir, path, recursive, check));
  if (!isFull) return;
  const staging = await deed(volumeDir, () => openStaging(volumeDir, ownerOf(volumeDir)));
  try {
    await deed(volumeDir, () => moveAway(staging, path, check));
  } finally {
    await closeStaging(staging);
  }
}

/** What goes by one call. True: it is a folder that is to go with all that is in it, and is there as before. */
async function removeNow(
  volumeDir: string,
  path: VolumePath,
  recursive: boolean,
  check: VolumeCheck,
): Promise<boolean> {
  const { isFolder } = checkEntry(volumeDir, path, check);
  if (isFolder && recursive) return true;
  const folderFd = openFolder(volumeDir, folderOf(path));
  try {
    const target = inFolder(folderFd, path.names.at(-1)!);
    if (isFolder) await removeEmpty(target);
    else await telling(unlink(target));
    return false;
  } finally {
    await close(folderFd);
  }
}

async function moveAway(staging: Staging, path: VolumePath, check: VolumeCheck): Promise<void> {
  checkEntry(staging.volumeDir, path, check);
  const folderFd = openFolder(staging.volumeDir, folderOf(path));
  try {
    await telling(rename(inFolder(folderFd, path.names.at(-1)!), itIn(staging)));
  } finally {
    await close(folderFd);
  }
}

function checkEntry(volumeDir: string, path: VolumePath, check: VolumeCheck): { isFolder: boolean } {
  const { fd, stats } = openEntry(volumeDir, path);
  closeSync(fd);
  check(entryOf(path.names.at(-1)!, stats, null));
  return { isFolder: stats.isDirectory() };
}

async function removeEmpty(target: Buffer): Promise<void> {
  try {
    await rmdir(target);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOTEMPTY' || code === 'EEXIST')
      throw conflict('The folder is not empty; say recursive=true to delete it with all that is in it.');
    throw told(error);
  }
}
