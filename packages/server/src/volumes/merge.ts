import { constants, lstatSync, openSync } from 'node:fs';
import { rename, unlink } from 'node:fs/promises';
import { deed } from '../domain/deeds.ts';
import { letGo } from './calls.ts';
import { conflict, inFolder, stepIntoFolder } from './walk.ts';
import { namesIn } from './names.ts';
import { turn } from './turns.ts';

const O_PATH = 0o10000000;

/**
 * Moves what is in a folder of ours into one of a sandbox: folders are joined, all else replaces what has its name.
 * Looks first, so that a folder in the place of a file is refused before anything has moved.
 */
export async function mergeFolder(volumeDir: string, fromFolder: string, toFd: number): Promise<void> {
  const fromFd = openSync(fromFolder, O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  try {
    await walk(volumeDir, fromFd, toFd, false);
    await walk(volumeDir, fromFd, toFd, true);
  } finally {
    await letGo(volumeDir, fromFd);
  }
}

async function walk(volumeDir: string, fromFd: number, toFd: number, isMoving: boolean): Promise<void> {
  for await (const name of namesIn(volumeDir, fromFd)) {
    await turn();
    const from = folderIn(fromFd, name);
    let to: number | null = null;
    try {
      to = isMoving
        ? await deed(volumeDir, () => moveOrEnter(fromFd, toFd, name, from !== null))
        : folderIn(toFd, name);
      if (to === null) continue;
      if (from === null) throw conflict('The archive has a file where the sandbox has a folder.');
      await walk(volumeDir, from, to, isMoving);
    } finally {
      if (from !== null) await letGo(volumeDir, from);
      if (to !== null) await letGo(volumeDir, to);
    }
  }
}

/** Null when it was moved; else the folder that is in its place. */
async function moveOrEnter(
  fromFd: number,
  toFd: number,
  name: Buffer,
  isFolder: boolean,
): Promise<number | null> {
  const there = folderIn(toFd, name);
  if (there === null) await move(fromFd, toFd, name, isFolder);
  return there;
}

async function move(fromFd: number, toFd: number, name: Buffer, isFolder: boolean): Promise<void> {
  try {
    await rename(inFolder(fromFd, name), inFolder(toFd, name));
  } catch (error) {
    // A folder does not replace a file by itself.
    if (!isFolder || (error as NodeJS.ErrnoException).code !== 'ENOTDIR') throw error;
    await unlink(inFolder(toFd, name));
    await rename(inFolder(fromFd, name), inFolder(toFd, name));
  }
}

/** Null when there is none of this name, or it is no folder. */
function folderIn(folderFd: number, name: Buffer): number | null {
  try {
    // Most names are of no folder, and to be told so without an error takes a third of the time. The step decides.
    if (!lstatSync(inFolder(folderFd, name), { throwIfNoEntry: false })?.isDirectory()) return null;
    return stepIntoFolder(folderFd, name);
  } catch {
    return null;
  }
}
