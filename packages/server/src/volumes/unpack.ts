import { closeSync, constants, fstatSync, lstatSync, openSync } from 'node:fs';
import { link, mkdir, symlink, unlink } from 'node:fs/promises';
import { deed } from '../domain/deeds.ts';
import { DomainError } from '../domain/errors.ts';
import type { UnpackLimits, VolumePath } from '../domain/ports/volume.ts';
import { tarBlock } from '../domain/tar.ts';
import { Bytes, EndError } from './bytes.ts';
import { fchmod, futimes, letGo, open } from './calls.ts';
import { mergeFolder } from './merge.ts';
import { closeStaging, giveAll, itIn, openStaging, ownerOf, type Owner } from './staging.ts';
import { badArchive, namesOf, nextEntry, type ReadTarEntry } from './tar-read.ts';
import { turn } from './turns.ts';
import { descend, fdPath, inFolder, MAX_DEPTH, step, stepIntoFolder, told } from './walk.ts';
import { fchownFolder, makeFolders, writeAll } from './write.ts';

const { O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_PATH_ONLY, O_RDONLY, O_WRONLY } = {
  ...constants,
  O_PATH_ONLY: 0o10000000,
};
/** Nothing of what follows the end of an archive is kept, so that it needs no room; tar itself pads to some KiB. */
const PADDING_BYTES = 1024 * 1024;
/** What a name takes on the disk even when it is empty. */
const ENTRY_BYTES = 512;

/**
 * Unpacks beside the volume, where no sandbox can interfere, and moves the result into place once the whole archive was
 * good. Links in the archive are made but never followed, neither by what comes after them in it nor by us.
 */
export async function unpackInto(
  volumeDir: string,
  path: VolumePath,
  archive: AsyncIterable<Buffer>,
  limits: UnpackLimits,
): Promise<{ entries: number; bytes: number }> {
  const staging = await deed(volumeDir, () => openStaging(volumeDir, ownerOf(volumeDir)));
  const folder = itIn(staging);
  try {
    await deed(volumeDir, () => mkdir(folder, 0o755));
    const sum = await unpackAt({ volumeDir, owner: staging.owner }, folder, archive, limits);
    const { fd } = await deed(volumeDir, () => makeFolders(volumeDir, path, staging.owner));
    try {
      await mergeFolder(volumeDir, folder, fd);
    } finally {
      await letGo(volumeDir, fd);
    }
    return sum;
  } catch (error) {
    throw told(error);
  } finally {
    await closeStaging(staging);
  }
}

/** Whose files are unpacked. */
export interface Target {
  volumeDir: string;
  owner: Owner | null;
}

/** Where they are unpacked: nobody else is in that folder, so nothing there is parted by waiting. */
interface Place extends Target {
  root: number;
}

/** Into an empty folder of ours. */
export async function unpackAt(
  target: Target,
  folder: string,
  archive: AsyncIterable<Buffer>,
  limits: UnpackLimits,
): Promise<{ entries: number; bytes: number }> {
  const { volumeDir, owner } = target;
  const bytes = new Bytes(archive);
  const root = openSync(folder, O_PATH_ONLY | O_DIRECTORY | O_NOFOLLOW);
  const sum = { entries: 0, bytes: 0 };
  try {
    if (owner) await deed(volumeDir, () => fchownFolder(root, owner));
    for (let entry = await nextEntry(bytes); entry; entry = await nextEntry(bytes)) {
      sum.entries += 1;
      sum.bytes += entry.sizeBytes;
      if (sum.entries > limits.maxEntries)
        throw new DomainError('body_too_large', `The archive has more than ${limits.maxEntries} entries.`);
      if (sum.bytes + sum.entries * ENTRY_BYTES > limits.maxBytes)
        throw new DomainError('body_too_large', `There is room for ${limits.maxBytes} bytes in the sandbox.`);
      await turn();
      await place({ ...target, root }, entry, bytes);
    }
    // An archive ends before its stream: what pads it, and the sum of a packed one, may still be missing or wrong.
    if (!(await bytes.drain(limits.maxBytes + PADDING_BYTES)))
      throw new DomainError('body_too_large', 'Too much follows the end of the archive.');
    if (owner) await giveAll(folder, owner);
    return sum;
  } catch (error) {
    throw error instanceof EndError ? badArchive('it ends before it is complete') : error;
  } finally {
    await letGo(volumeDir, root);
    await bytes.end();
  }
}

async function place(to: Place, entry: ReadTarEntry, bytes: Bytes): Promise<void> {
  const name = entry.names.at(-1);
  if (!name) {
    // The folder itself, as `tar -C folder .` begins.
    if (entry.kind !== 'directory') throw badArchive('an entry in it has no name');
    return;
  }
  if (entry.names.length > MAX_DEPTH) throw badArchive(`folders in it are nested deeper than ${MAX_DEPTH}`);
  if (entry.kind === 'file') return placeFile(to, entry, bytes);
  await deed(to.volumeDir, async () => {
    const folderFd = await parentOf(to, entry.names.slice(0, -1));
    try {
      await placeOther(to, folderFd, name, entry);
    } finally {
      closeSync(folderFd);
    }
  });
}

async function placeOther(to: Place, folderFd: number, name: Buffer, entry: ReadTarEntry): Promise<void> {
  switch (entry.kind) {
    case 'directory':
      closeSync(await ownFolder(folderFd, name, to.owner));
      return setFolder(folderFd, name, entry);
    case 'symlink':
      return anew(folderFd, name, () => symlink(entry.target, inFolder(folderFd, name)));
    default:
      return placeHardLink(to.root, folderFd, name, entry.target);
  }
}

async function parentOf({ root, owner }: Place, names: Buffer[]): Promise<number> {
  let at = openSync(fdPath(root), O_PATH_ONLY | O_DIRECTORY);
  for (const name of names) {
    const from = at;
    try {
      at = await ownFolder(from, name, owner);
    } finally {
      closeSync(from);
    }
  }
  return at;
}

/** A folder in a folder, made when absent. What is there and is no folder is refused: a link above all. */
async function ownFolder(folderFd: number, name: Buffer, owner: Owner | null): Promise<number> {
  // Most are there already.
  const there = lstatSync(inFolder(folderFd, name), { throwIfNoEntry: false });
  if (!there) await mkdir(inFolder(folderFd, name), 0o755);
  let fd: number;
  try {
    fd = stepIntoFolder(folderFd, name);
  } catch {
    throw badArchive('a path in it leads through a link or a file');
  }
  if (there || !owner) return fd;
  try {
    await fchownFolder(fd, owner);
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

async function setFolder(folderFd: number, name: Buffer, entry: ReadTarEntry): Promise<void> {
  const fd = openSync(inFolder(folderFd, name), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  try {
    // One that its owner cannot enter would stop what follows here, where the service is not root.
    await fchmod(fd, entry.mode | 0o700);
  } finally {
    closeSync(fd);
  }
}

/** Between its deeds it waits for what is still to come of the archive. */
async function placeFile(to: Place, entry: ReadTarEntry, bytes: Bytes): Promise<void> {
  const { volumeDir } = to;
  const fd = await deed(volumeDir, () => makeFile(to, entry));
  try {
    await writeAll(volumeDir, fd, bytes.stream(entry.sizeBytes), entry.sizeBytes);
    await deed(volumeDir, async () => {
      // The umask of the service may have taken something of it away. To look is much less work than to set.
      if ((fstatSync(fd).mode & 0o7777) !== entry.mode) await fchmod(fd, entry.mode);
      await futimes(fd, entry.mtimeSeconds, entry.mtimeSeconds);
    });
  } finally {
    await letGo(volumeDir, fd);
  }
  await bytes.skip((tarBlock - (entry.sizeBytes % tarBlock)) % tarBlock);
}

async function makeFile(to: Place, { names, mode }: ReadTarEntry): Promise<number> {
  const name = names.at(-1)!;
  const folderFd = await parentOf(to, names.slice(0, -1));
  const flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
  try {
    return await anew(folderFd, name, () => open(inFolder(folderFd, name), flags, mode));
  } finally {
    closeSync(folderFd);
  }
}

/** The later one of two entries of the same name is the one that stays, as with tar. */
async function anew<T>(folderFd: number, name: Buffer, make: () => Promise<T>): Promise<T> {
  try {
    return await make();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    await clear(folderFd, name);
    return make();
  }
}

async function clear(folderFd: number, name: Buffer): Promise<void> {
  try {
    await unlink(inFolder(folderFd, name));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return;
    if (code === 'EISDIR' || code === 'EPERM') throw badArchive('a name in it is both a folder and a file');
    throw error;
  }
}

async function placeHardLink(root: number, folderFd: number, name: Buffer, target: Buffer): Promise<void> {
  const names = namesOf(target);
  const last = names.at(-1);
  const unknown = badArchive('a hard link in it leads to no file before it');
  if (!last) throw unknown;
  let targetFd: number;
  try {
    targetFd = descend(openSync(fdPath(root), O_PATH_ONLY | O_DIRECTORY), names.slice(0, -1));
  } catch {
    throw unknown;
  }
  try {
    const fd = attemptStep(targetFd, last);
    if (fd === null) throw unknown;
    const isFile = fstatSync(fd).isFile();
    closeSync(fd);
    if (!isFile) throw unknown;
    if (isSame(folderFd, name, targetFd, last)) return;
    await anew(folderFd, name, () => link(inFolder(targetFd, last), inFolder(folderFd, name)));
  } finally {
    closeSync(targetFd);
  }
}

function attemptStep(folderFd: number, name: Buffer): number | null {
  try {
    return step(folderFd, name);
  } catch {
    return null;
  }
}

function isSame(folderFd: number, name: Buffer, targetFd: number, targetName: Buffer): boolean {
  const fd = attemptStep(folderFd, name);
  if (fd === null) return false;
  const target = step(targetFd, targetName);
  const isSameFile = fstatSync(fd, { bigint: true }).ino === fstatSync(target, { bigint: true }).ino;
  closeSync(fd);
  closeSync(target);
  return isSameFile;
}
