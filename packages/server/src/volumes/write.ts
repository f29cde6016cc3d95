import {
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  fdatasync,
  fstatSync,
  mkdirSync,
  openSync,
  renameSync,
  rmdirSync,
  unlinkSync,
  write as writeCallback,
} from 'node:fs';
import { promisify } from 'node:util';
import { DomainError } from '../domain/errors.ts';
import type { VolumeCheck, VolumeEntry, VolumePath, VolumeWriteOptions } from '../domain/ports/volume.ts';
import { closeStaging, itIn, openStaging, ownerOf, type Owner } from './staging.ts';
import {
  conflict,
  entryOf,
  fdPath,
  guarded,
  inFolder,
  openEntry,
  openFolder,
  openTree,
  step,
  stepIntoFolder,
  told,
} from './walk.ts';

const writeSome = promisify(writeCallback);
const sync = promisify(fdatasync);
const FILE_MODE = 0o644;
const FOLDER_MODE = 0o755;

/** Writes beside the volume and moves it into place: whole or not at all. */
export async function writeFile(
  volumeDir: string,
  path: VolumePath,
  content: AsyncIterable<Buffer>,
  options: VolumeWriteOptions,
): Promise<{ entry: VolumeEntry; created: boolean }> {
  const name = path.names.at(-1);
  if (!name) throw conflict('This is a folder; a file needs a name.');
  const owner = ownerOf(volumeDir);
  const staging = openStaging(volumeDir, owner);
  const temporary = itIn(staging);
  try {
    const { O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY } = constants;
    const fd = openSync(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
    try {
      await writeAll(fd, content, options.maxBytes);
      await sync(fd);
      // From here to the renaming nothing else of this process comes in between.
      options.check(presentAt(volumeDir, path));
      const folderFd = makeFolders(volumeDir, { ...path, names: path.names.slice(0, -1) }, owner).fd;
      try {
        const before = found(folderFd, name);
        if (before?.type === 'folder') throw conflict('There is a folder of this name.');
        if (owner) fchownSync(fd, owner.uid, owner.gid);
        const kept = before?.type === 'file' ? before.mode : FILE_MODE;
        fchmodSync(fd, (options.mode ?? kept) & 0o777);
        guarded(() => renameSync(temporary, inFolder(folderFd, name)));
        return { entry: entryOf(name, fstatSync(fd, { bigint: true }), null), created: before === null };
      } finally {
        closeSync(folderFd);
      }
    } finally {
      closeSync(fd);
    }
  } catch (error) {
    throw told(error);
  } finally {
    await closeStaging(staging, owner);
  }
}

export async function writeAll(
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
      at += (await writeSome(fd, piece, at, piece.length - at)).bytesWritten;
  }
  return bytes;
}

/** Null: there is nothing, or not even its folder. */
function presentAt(volumeDir: string, path: VolumePath): VolumeEntry | null {
  const folderFd = orMissing(() => openFolder(volumeDir, { ...path, names: path.names.slice(0, -1) }));
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

/** Walks to a folder and makes what is missing on the way. The caller closes the descriptor. */
export function makeFolders(
  volumeDir: string,
  path: VolumePath,
  owner: Owner | null,
): { fd: number; created: boolean } {
  let at = openTree(volumeDir, path.tree);
  let created = false;
  for (const name of path.names) {
    try {
      const made = guarded(() => makeOne(at, name));
      const next = enter(at, name, made ? owner : null);
      closeSync(at);
      at = next;
      created = made;
    } catch (error) {
      closeSync(at);
      throw error;
    }
  }
  return { fd: at, created };
}

function makeOne(folderFd: number, name: Buffer): boolean {
  try {
    mkdirSync(inFolder(folderFd, name), FOLDER_MODE);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

/** What was swapped in for a folder just made is a folder of the same owner anyway, or is refused. */
function enter(folderFd: number, name: Buffer, owner: Owner | null): number {
  let fd: number;
  try {
    fd = stepIntoFolder(folderFd, name);
  } catch (error) {
    if (!(error instanceof DomainError) || error.code !== 'not_found') throw error;
    throw conflict('A part of the path is there and is no folder; links are not followed here.');
  }
  if (!owner) return fd;
  try {
    // A descriptor to look at cannot be changed by; this one is of the very same folder.
    const own = openSync(fdPath(fd), constants.O_RDONLY | constants.O_DIRECTORY);
    fchownSync(own, owner.uid, owner.gid);
    closeSync(own);
  } catch (error) {
    closeSync(fd);
    throw told(error);
  }
  return fd;
}

/** Deletes a file or link, or an empty folder; with `recursive` a folder is moved away in one step and then deleted. */
export async function removeEntry(
  volumeDir: string,
  path: VolumePath,
  recursive: boolean,
  check: VolumeCheck,
): Promise<void> {
  const name = path.names.at(-1);
  if (!name) throw conflict('The folder itself belongs to the sandbox; delete what is in it.');
  const { fd, stats } = openEntry(volumeDir, path);
  closeSync(fd);
  check(entryOf(name, stats, null));
  const folderFd = openFolder(volumeDir, { ...path, names: path.names.slice(0, -1) });
  try {
    if (!stats.isDirectory()) return guarded(() => unlinkSync(inFolder(folderFd, name)));
    if (!recursive) return removeEmpty(folderFd, name);
    const owner = ownerOf(volumeDir);
    const staging = openStaging(volumeDir, owner);
    try {
      guarded(() => renameSync(inFolder(folderFd, name), itIn(staging)));
    } finally {
      await closeStaging(staging, owner);
    }
  } finally {
    closeSync(folderFd);
  }
}

function removeEmpty(folderFd: number, name: Buffer): void {
  try {
    rmdirSync(inFolder(folderFd, name));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOTEMPTY' || code === 'EEXIST')
      throw conflict('The folder is not empty; say recursive=true to delete it with all that is in it.');
    throw told(error);
  }
}
