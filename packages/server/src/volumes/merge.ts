import { closeSync, constants, lstatSync, openSync, renameSync, unlinkSync } from 'node:fs';
import { conflict, inFolder, stepIntoFolder } from './walk.ts';
import { namesIn } from './names.ts';
import { turn } from './turns.ts';

const O_PATH = 0o10000000;

/**
 * Moves what is in a folder of ours into one of a sandbox: folders are joined, all else replaces what has its name.
 * Looks first, so that a folder in the place of a file is refused before anything has moved.
 */
export async function mergeFolder(fromFolder: string, toFd: number): Promise<void> {
  const fromFd = openSync(fromFolder, O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  try {
    await walk(fromFd, toFd, false);
    await walk(fromFd, toFd, true);
  } finally {
    closeSync(fromFd);
  }
}

async function walk(fromFd: number, toFd: number, isMoving: boolean): Promise<void> {
  for await (const name of namesIn(fromFd)) {
    await turn();
    const from = folderIn(fromFd, name);
    const to = folderIn(toFd, name);
    try {
      if (from !== null && to !== null) await walk(from, to, isMoving);
      else if (to !== null) throw conflict('The archive has a file where the sandbox has a folder.');
      else if (isMoving) move(fromFd, toFd, name, from !== null);
    } finally {
      if (from !== null) closeSync(from);
      if (to !== null) closeSync(to);
    }
  }
}

function move(fromFd: number, toFd: number, name: Buffer, isFolder: boolean): void {
  try {
    renameSync(inFolder(fromFd, name), inFolder(toFd, name));
  } catch (error) {
    // A folder does not replace a file by itself.
    if (!isFolder || (error as NodeJS.ErrnoException).code !== 'ENOTDIR') throw error;
    unlinkSync(inFolder(toFd, name));
    renameSync(inFolder(fromFd, name), inFolder(toFd, name));
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
