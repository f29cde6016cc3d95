import {
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  fstatSync,
  futimesSync,
  lchownSync,
  linkSync,
  lstatSync,
  mkdir as mkdirCallback,
  mkdirSync,
  open as openCallback,
  openSync,
  symlinkSync,
  unlinkSync,
} from 'node:fs';
import { promisify } from 'node:util';
import { DomainError } from '../domain/errors.ts';
import type { UnpackLimits, VolumePath } from '../domain/ports/volume.ts';
import { tarBlock } from '../domain/tar.ts';
import { Bytes, EndError } from './bytes.ts';
import { mergeFolder } from './merge.ts';
import { closeStaging, itIn, openStaging, ownerOf, type Owner } from './staging.ts';
import { badArchive, namesOf, nextEntry, type ReadTarEntry } from './tar-read.ts';
import { turn } from './turns.ts';
import { attempt, descend, fdPath, inFolder, MAX_DEPTH, step, stepIntoFolder, told } from './walk.ts';
import { makeFolders, writeAll } from './write.ts';

const { O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_PATH_ONLY, O_RDONLY, O_WRONLY } = {
  ...constants,
  O_PATH_ONLY: 0o10000000,
};
/**
 * What takes an inode is not done on the event loop: a file system that looks for a free one can take a millisecond.
 * Nobody else is in the folder that it is made in, so nothing is parted by waiting.
 */
const makeOpen = promisify(openCallback);
const makeFolder = promisify(mkdirCallback);
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
  const owner = ownerOf(volumeDir);
  const staging = openStaging(volumeDir, owner);
  try {
    mkdirSync(itIn(staging), 0o755);
    const sum = await unpackAt(itIn(staging), archive, limits, owner);
    const { fd } = makeFolders(volumeDir, path, owner);
    try {
      await mergeFolder(itIn(staging), fd);
    } finally {
      closeSync(fd);
    }
    return sum;
  } catch (error) {
    throw told(error);
  } finally {
    await closeStaging(staging, owner);
  }
}

/** Into an empty folder of ours. */
export async function unpackAt(
  folder: string,
  archive: AsyncIterable<Buffer>,
  limits: UnpackLimits,
  owner: Owner | null,
): Promise<{ entries: number; bytes: number }> {
  const bytes = new Bytes(archive);
  const root = openSync(folder, O_PATH_ONLY | O_DIRECTORY | O_NOFOLLOW);
  const sum = { entries: 0, bytes: 0 };
  try {
    if (owner) fchownFolder(root, owner);
    for (let entry = await nextEntry(bytes); entry; entry = await nextEntry(bytes)) {
      sum.entries += 1;
      sum.bytes += entry.sizeBytes;
      if (sum.entries > limits.maxEntries)
        throw new DomainError('body_too_large', `The archive has more than ${limits.maxEntries} entries.`);
      if (sum.bytes + sum.entries * ENTRY_BYTES > limits.maxBytes)
        throw new DomainError('body_too_large', `There is room for ${limits.maxBytes} bytes in the sandbox.`);
      await turn();
      await place(root, entry, bytes, owner);
    }
    // An archive ends before its stream: what pads it, and the sum of a packed one, may still be missing or wrong.
    if (!(await bytes.drain(limits.maxBytes + PADDING_BYTES)))
      throw new DomainError('body_too_large', 'Too much follows the end of the archive.');
    return sum;
  } catch (error) {
    throw error instanceof EndError ? badArchive('it ends before it is complete') : error;
  } finally {
    closeSync(root);
    await bytes.end();
  }
}

async function place(root: number, entry: ReadTarEntry, bytes: Bytes, owner: Owner | null): Promise<void> {
  const name = entry.names.at(-1);
  if (!name) {
    // The folder itself, as `tar -C folder .` begins.
    if (entry.kind !== 'directory') throw badArchive('an entry in it has no name');
    return;
  }
  if (entry.names.length > MAX_DEPTH) throw badArchive(`folders in it are nested deeper than ${MAX_DEPTH}`);
  const folderFd = await parentOf(root, entry.names.slice(0, -1), owner);
  try {
    switch (entry.kind) {
      case 'directory':
        closeSync(await ownFolder(folderFd, name, owner));
        return setFolder(folderFd, name, entry);
      case 'file':
        await placeFile(folderFd, name, entry, bytes, owner);
        return await bytes.skip((tarBlock - (entry.sizeBytes % tarBlock)) % tarBlock);
      case 'symlink':
        clear(folderFd, name);
        symlinkSync(entry.target, inFolder(folderFd, name));
        if (owner) lchownSync(inFolder(folderFd, name), owner.uid, owner.gid);
        return;
      case 'hardlink':
        return placeHardLink(root, folderFd, name, entry.target);
    }
  } finally {
    closeSync(folderFd);
  }
}

async function parentOf(root: number, names: Buffer[], owner: Owner | null): Promise<number> {
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
  if (!there) await makeFolder(inFolder(folderFd, name), 0o755);
  let fd: number;
  try {
    fd = stepIntoFolder(folderFd, name);
  } catch {
    throw badArchive('a path in it leads through a link or a file');
  }
  if (!there && owner) attempt(() => fchownFolder(fd, owner), fd);
  return fd;
}

function fchownFolder(fd: number, owner: Owner): void {
  const own = openSync(fdPath(fd), O_RDONLY | O_DIRECTORY);
  fchownSync(own, owner.uid, owner.gid);
  closeSync(own);
}

function setFolder(folderFd: number, name: Buffer, entry: ReadTarEntry): void {
  const fd = openSync(inFolder(folderFd, name), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  // One that its owner cannot enter would stop what follows here, where the service is not root.
  fchmodSync(fd, entry.mode | 0o700);
  closeSync(fd);
}

async function placeFile(
  folderFd: number,
  name: Buffer,
  entry: ReadTarEntry,
  bytes: Bytes,
  owner: Owner | null,
): Promise<void> {
  const make = () => makeOpen(inFolder(folderFd, name), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  const fd = await make().catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error;
    clear(folderFd, name);
    return make();
  });
  try {
    await writeAll(fd, bytes.stream(entry.sizeBytes), entry.sizeBytes);
    if (owner) fchownSync(fd, owner.uid, owner.gid);
    fchmodSync(fd, entry.mode);
    futimesSync(fd, entry.mtimeSeconds, entry.mtimeSeconds);
  } finally {
    closeSync(fd);
  }
}

/** The later one of two entries of the same name is the one that stays, as with tar. */
function clear(folderFd: number, name: Buffer): void {
  try {
    unlinkSync(inFolder(folderFd, name));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return;
    if (code === 'EISDIR' || code === 'EPERM') throw badArchive('a name in it is both a folder and a file');
    throw error;
  }
}

function placeHardLink(root: number, folderFd: number, name: Buffer, target: Buffer): void {
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
    clear(folderFd, name);
    linkSync(inFolder(targetFd, last), inFolder(folderFd, name));
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
